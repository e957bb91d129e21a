"""A merging reader whose partitions are slow: nothing overtakes what is still on its way."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import cast

import pytest

from gpuledger.events.position import Offset
from gpuledger.ledger.api import Message
from gpuledger.ledger.errors import LedgerUnavailableError, LogLostError
from gpuledger.ledger.identity import Anchor
from gpuledger.ledger.merged import MergedReader, Parts, merging
from gpuledger.ledger.order import Entry, Order, Step
from gpuledger.ledger.partitions import Upto, written
from gpuledger.ledger.read import OrderedReader

UPTO: Upto = (2, 1)


class Stream:
    """A reader of one stream that has what it was given."""

    def __init__(self) -> None:
        self.arrived: asyncio.Queue[Message | Exception] = asyncio.Queue()

    def put(self, number: int, data: bytes) -> None:
        self.arrived.put_nowait(Message("ledger.node.n.device.d.seen", data, number, 0))

    async def next_batch(self) -> list[Message]:
        found = await self.arrived.get()
        if isinstance(found, Exception):
            raise found
        return [found]

    async def supervise(self) -> None:
        await asyncio.Event().wait()

    @contextmanager
    def guarding(self) -> Iterator[None]:
        yield

    def fail(self, error: BaseException) -> None:
        pass


class OneStep:
    """An order of one message."""

    nothing: Upto = (0, 0)

    async def step_at(self, _place: Offset, _last: Entry) -> Step:
        return Step(1, self.nothing, UPTO)

    async def last(self) -> Entry:
        return Entry(1, UPTO)


class Log:
    """Two partitions with an order, and how often each was asked for its last match."""

    def __init__(self, last_matches: Upto) -> None:
        self.order, self.partitions = Stream(), (Stream(), Stream())
        self.order.put(1, written(UPTO))
        self.asked: list[int] = []
        self._last_matches = last_matches

    def reader(self, *, is_whole: bool) -> MergedReader:
        async def last_in(partition: int) -> Offset:
            self.asked.append(partition)
            return self._last_matches[partition]

        async def confirm(_anchor: Anchor) -> None:
            pass

        parts = Parts(
            lambda _: cast("OrderedReader", self.order),
            lambda partition, _: cast("OrderedReader", self.partitions[partition]),
            last_in,
            confirm,
        )
        return MergedReader(cast("Order", OneStep()), parts, (0, 1), 0, None, is_whole=is_whole)


@pytest.mark.parametrize("is_whole", [True, False])
async def test_what_is_on_its_way_is_waited_for(*, is_whole: bool) -> None:
    log = Log((2, 1))
    async with merging(log.reader(is_whole=is_whole)) as reader:
        log.partitions[1].put(1, b"c")
        log.partitions[0].put(1, b"a")
        assert [one.data for one in await reader.next_batch()] == [b"a"]
        assert await reader.next_batch(timeout_s=0.01) == []
        log.partitions[0].put(2, b"b")
        found = await reader.next_batch() + await reader.next_batch(timeout_s=0.01)
        assert [(one.data, one.sequence) for one in found] == [(b"b", 2), (b"c", 3)]
    assert log.asked == ([] if is_whole else [0])


async def test_a_partition_without_a_match_is_asked_and_not_waited_for() -> None:
    log = Log((0, 1))
    async with merging(log.reader(is_whole=False)) as reader:
        log.partitions[1].put(1, b"c")
        assert [(one.data, one.sequence) for one in await reader.next_batch()] == [(b"c", 3)]
    assert log.asked == [0]


@pytest.mark.parametrize("error", [LogLostError("there is no stream"), LedgerUnavailableError("It is away.")])
async def test_a_stream_that_fails_fails_the_reading(error: Exception) -> None:
    log = Log((2, 1))
    async with merging(log.reader(is_whole=True)) as reader:
        log.partitions[1].arrived.put_nowait(error)
        with pytest.raises(type(error), match=str(error)[:20]):
            await reader.next_batch()
