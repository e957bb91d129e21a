"""Single messages of a stream, asked for by their sequence or their subject; and what streams there are."""

from datetime import UTC, datetime, timedelta
from typing import Final

from nats.js.api import StreamInfo
from nats.js.errors import NotFoundError

from gpuledger.events.position import ORIGIN, Offset, is_origin, number_of
from gpuledger.ledger.api import Message
from gpuledger.ledger.connect import Connection

_EPOCH_START: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND: Final = timedelta(microseconds=1)


async def message_at(connection: Connection, stream: str, sequence: Offset) -> Message:
    """The message at a position.

    Raises:
        NotFoundError: there is none.
        LedgerUnavailableError: the server does not answer.
    """
    found = await connection.request(lambda: connection.jetstream.get_msg(stream, number_of(sequence)))
    return Message(found.subject or "", found.data or b"", sequence, 0)


async def recorded_at(connection: Connection, stream: str, sequence: Offset) -> Message | None:
    """The message at a position with the time of its recording, to the microsecond; None where there is none.

    Raises:
        LedgerUnavailableError: the server does not answer.
    """
    if is_origin(sequence):
        return None
    try:
        found = await connection.request(lambda: connection.jetstream.get_msg(stream, number_of(sequence)))
    except NotFoundError:
        return None
    assert found.subject is not None, "a stored message has a subject"
    assert found.time is not None, "a stored message has a time"
    return Message(found.subject, found.data or b"", sequence, _nanoseconds(found.time))


def _nanoseconds(time: datetime) -> int:
    """Nanoseconds since 1970; the client keeps the server's time to the microsecond."""
    return (time - _EPOCH_START) // _MICROSECOND * 1000


async def last_sequence(connection: Connection, stream: str, subject_filter: str) -> Offset:
    """The sequence of the last message that the filter matches, the origin for none.

    Raises:
        LedgerUnavailableError: the server does not answer.
    """
    try:
        message = await connection.request(lambda: connection.jetstream.get_last_msg(stream, subject_filter))
    except NotFoundError:
        return ORIGIN
    return message.seq or ORIGIN


async def last_match(connection: Connection, stream: str, subject_filter: str, until: int) -> Offset:
    """The sequence of the last message up to `until` that the filter matches, the origin for none; by bisection.

    Raises:
        LedgerUnavailableError: the server does not answer.
    """
    found, low, high = ORIGIN, 1, until
    while low <= high:
        middle = (low + high) // 2
        match = await next_match(connection, stream, subject_filter, middle)
        if match is None or match > until:
            high = middle - 1
        else:
            found, low = match, match + 1
    return found


async def next_match(connection: Connection, stream: str, subject_filter: str, at: int) -> int | None:
    """The sequence of the first message from one on that the filter matches; None where there is none."""
    try:
        found = await connection.request(lambda: connection.jetstream.get_msg(stream, at, subject_filter, next=True))
    except NotFoundError:
        return None
    return found.seq


async def all_streams(connection: Connection) -> dict[str, StreamInfo]:
    """All streams of the account by their names.

    Raises:
        LedgerUnavailableError: the server does not answer, or refuses permission.
    """
    found: dict[str, StreamInfo] = {}
    offset = 0
    while page := await _page(connection, offset):
        found |= {str(info.config.name): info for info in page}
        offset += len(page)  # one that is made meanwhile moves others to the next page, and they come once more
    return found


async def _page(connection: Connection, offset: int) -> list[StreamInfo]:
    return await connection.request(lambda: connection.jetstream.streams_info(offset))
