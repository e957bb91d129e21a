"""The short way off the wire: in whatever pieces bytes arrive, it hands on what the library's parser would."""

import asyncio
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from nats.errors import ProtocolError
from nats.protocol.parser import Parser

from gpuledger.ledger.wire import DeliveryParser, OnDelivered

HEADERS = b"NATS/1.0\r\nNats-Msg-Id: e1\r\n\r\n"
ACK = b"$JS.ACK.LEDGER.c1.1.7.3.1772366400000000000.0"
OURS, OTHERS = 7, 8


class Library:
    """What the library's parser calls."""

    def __init__(self) -> None:
        self.calls: list[tuple[object, ...]] = []

    async def _process_msg(self, sid: int, subject: bytes, reply: bytes, data: bytes, headers: bytes | None) -> None:
        self.calls.append((sid, subject.decode(errors="backslashreplace"), reply, data, headers))

    async def _process_ping(self) -> None:
        self.calls.append(("ping",))

    async def _process_err(self, error: str) -> None:
        self.calls.append((error,))

    async def _process_info(self, info: object) -> None:
        self.calls.append(("info", info))


class Short(Library):
    """Notes what goes the short way."""

    def __init__(self) -> None:
        super().__init__()
        self.taken = 0

    def taker(self, sid: int) -> OnDelivered | None:
        return self.take if sid == OURS else None

    def take(self, subject: str, reply: bytes, data: bytes) -> None:
        self.taken += 1
        self.calls.append((OURS, subject, reply, data, HEADERS))


def delivered(data: bytes, sid: int = OURS, reply: bytes = ACK, subject: bytes = b"ledger.node.n1.node.n1.x") -> bytes:
    size = len(HEADERS) + len(data)
    line = b"HMSG %s %d %s %d %d" % (subject, sid, reply, len(HEADERS), size)
    return line + b"\r\n" + HEADERS + data + b"\r\n"


pieces = st.one_of(
    st.builds(delivered, st.binary(max_size=40)),
    st.builds(delivered, st.just(b"{}"), st.just(OTHERS)),
    st.sampled_from(
        [
            delivered(b"a flow control message", reply=b"$JS.FC.x"),
            delivered(b"not UTF-8", subject=b"ledger.\xff"),
            b"PING\r\n",
            b"+OK\r\n",
            b'INFO {"a": 1}\r\n',
            b"MSG a 7 2\r\nhi\r\n",
            b"HMSG a 7 %d %d\r\n%shi\r\n" % (len(HEADERS), len(HEADERS) + 2, HEADERS),
        ]
    ),
)


def parsed(parser: Parser, stream: bytes, cuts: list[int]) -> None:
    async def parse() -> None:
        for start, end in pairwise([0, *sorted(cut % (len(stream) + 1) for cut in cuts), len(stream)]):
            await parser.parse(stream[start:end])

    asyncio.run(parse())


@given(st.lists(pieces, max_size=8), st.lists(st.integers(0, 10_000), max_size=6))
def test_it_hands_on_what_the_library_would(messages: list[bytes], cuts: list[int]) -> None:
    library, ours = Library(), Short()
    parsed(Parser(library), b"".join(messages), [])
    parsed(DeliveryParser(ours, ours.taker), b"".join(messages), cuts)
    assert ours.calls == library.calls


def test_whole_messages_of_the_log_go_the_short_way_though_a_piece_ends_within_one() -> None:
    ours, stream = Short(), b"".join(delivered(b"%d" % number) for number in range(100))
    parsed(DeliveryParser(ours, ours.taker), stream, [1_000, 5_000])
    assert [call[3] for call in ours.calls] == [b"%d" % number for number in range(100)]
    assert ours.taken >= 98


def test_what_is_no_protocol_is_refused() -> None:
    ours = Short()
    with pytest.raises(ProtocolError):
        parsed(DeliveryParser(ours, ours.taker), b"GET / HTTP/1.1\r\n", [])


def test_what_follows_the_end_of_a_connection_is_forgotten() -> None:
    class Reconnecting(Short):
        async def _process_err(self, error: str) -> None:
            parser.reset()

    ours = Reconnecting()
    parser = DeliveryParser(ours, ours.taker)
    parsed(parser, b"-ERR 'stale connection'\r\n" + delivered(b"of before"), [])
    parsed(parser, delivered(b"of now"), [])
    assert [call[3] for call in ours.calls] == [b"of now"]
