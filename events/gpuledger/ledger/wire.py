"""Takes the log's messages off the wire: most of what a reader of a long log receives.

The library's parser looks for each kind of line in turn with a pattern, and copies a message twice. Nothing that is not
a whole message of a consumer is handled here: the library's parser gets everything else, piece by piece.
"""

from collections.abc import Callable
from typing import Any, Final, Protocol

from nats.protocol.parser import AWAITING_MSG_PAYLOAD, CRLF_SIZE, Parser

DELIVERED: Final = b"$JS.ACK."
"""The reply subject of every message that a consumer delivers begins with this."""

_END: Final = b"\r\n"
_WITH_HEADERS: Final = b"HMSG "
_WORDS: Final = 6
"""Of the line before a message with headers: the command, subject, subscription, reply and two sizes."""


class OnDelivered(Protocol):
    """Takes a message of the log; `reply` holds its position."""

    def __call__(self, subject: str, reply: bytes, data: bytes) -> None:
        """See `gpuledger.ledger.client.Receiver`."""


class DeliveryParser(Parser):
    """The library's parser with a short way for messages of consumers."""

    def __init__(self, client: Any, receiver: Callable[[int], OnDelivered | None]) -> None:  # noqa: ANN401 - untyped there
        """`receiver` finds who takes the messages of a subscription, if not the library."""
        super().__init__(client)
        self._receiver = receiver

    def reset(self) -> None:
        """Forget what a connection has left that is no more."""
        super().reset()
        self._rest = b""

    async def parse(self, data: bytes = b"") -> None:
        """Take what has arrived; the rest of a message, or of a line, may follow."""
        self._rest = data
        if self.buf and self.state != AWAITING_MSG_PAYLOAD:
            self._rest = bytes(self.buf) + data
            self.buf.clear()
        while self._rest:
            if self.state == AWAITING_MSG_PAYLOAD:
                end = self.needed + CRLF_SIZE - len(self.buf)
            else:
                self._rest = self._rest[self._take_delivered(self._rest) :]
                end = self._rest.find(_END) + CRLF_SIZE
                if end < CRLF_SIZE:
                    self.buf.extend(self._rest)
                    return
            piece, self._rest = self._rest[:end], self._rest[end:]
            await super().parse(piece)

    def _take_delivered(self, data: bytes) -> int:
        """Hand on the whole messages of the log at the beginning; returns where they end."""
        at, length = 0, len(data)
        while data.startswith(_WITH_HEADERS, at):
            line = data.find(_END, at)
            words = data[at:line].split(b" ")
            if line < 0 or len(words) != _WORDS or not words[3].startswith(DELIVERED):
                return at
            body = line + CRLF_SIZE
            end = body + int(words[5])
            take = self._receiver(int(words[2])) if end + CRLF_SIZE <= length else None
            if take is None:
                return at
            take(text_of(words[1]), words[3], data[body + int(words[4]) : end])
            at = end + CRLF_SIZE
        return at


def text_of(subject: bytes) -> str:
    """A subject as text. The server accepts subjects that are not UTF-8."""
    return subject.decode() if subject.isascii() else subject.decode(errors="backslashreplace")
