"""Reads a log of several partitions: the order and every partition, each by a reader of its own, merged.

Whoever reads a filter asks a partition for its last match where nothing of it has arrived and others wait for it: a
consumer does not report what it passed over. A stream that is away fails the reading as a whole.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Collection
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Final, NamedTuple

from gpuledger.events.position import NEVER, Offset, is_after, next_after, number_of
from gpuledger.ledger.api import MESSAGES_PER_BATCH_MAX, Message
from gpuledger.ledger.errors import LedgerUnavailableError, LogChangedError
from gpuledger.ledger.identity import Anchor, anchor_of
from gpuledger.ledger.merge import Merge
from gpuledger.ledger.order import Order, Step
from gpuledger.ledger.partitions import counts_at, read_upto
from gpuledger.ledger.read import OrderedReader, reading
from gpuledger.runtime.tasks import abandon, run_until_one_fails

WAITING_MAX: Final = MESSAGES_PER_BATCH_MAX
"""How many messages of a partition wait here for their turn before no more are taken from its reader."""

BLOCKS_MAX: Final = MESSAGES_PER_BATCH_MAX
"""How many pieces of the order wait here."""

BLOCKS_QUIET: Final = BLOCKS_MAX // 4
"""With so many of them, a reader of a filter asks for last matches also where nothing waits."""


class Parts(NamedTuple):
    """How the streams of a log are read: each reader begins behind one of its stream's own messages.

    `last_in` gives the last match of a partition, and `confirm` confirms the log and the event at a place.
    """

    read_order: Callable[[Offset], OrderedReader]
    read_partition: Callable[[int, Offset], OrderedReader]
    last_in: Callable[[int], Awaitable[Offset]]
    confirm: Callable[[Anchor], Awaitable[None]]


class MergedReader:
    """Reads `partitions` behind a place; see `gpuledger.ledger.api.Reader`. The others hold no match."""

    def __init__(
        self,
        order: Order,
        parts: Parts,
        partitions: Collection[int],
        after: Offset,
        anchor: Anchor | None,
        *,
        is_whole: bool,
    ) -> None:
        self._order = order
        self._parts = parts
        self._partitions = partitions
        self._after = after
        self._anchor = anchor
        self._is_whole = is_whole
        self._merge = Merge(order.nothing, order.nothing)
        self._begins_beyond = False
        self._coming: dict[int, int] = {}
        self._news = asyncio.Event()
        self._room = {partition: asyncio.Event() for partition in (None, *partitions)}
        self._failure: BaseException | None = None
        self._is_woken = False
        self._last: Message | None = None

    @property
    def anchor(self) -> Anchor | None:
        """The anchor at the last message that was handed out, or the one that was given."""
        last = self._last
        return self._anchor if last is None else anchor_of(last.sequence, last.subject, last.data)

    def wake(self) -> None:
        """Have `next_batch` return, with nothing if nothing has arrived."""
        self._is_woken = True
        self._news.set()

    async def next_batch(self, limit: int = MESSAGES_PER_BATCH_MAX, timeout_s: float | None = None) -> list[Message]:
        """See `gpuledger.ledger.api.Reader.next_batch`."""
        clock = asyncio.get_running_loop().time
        deadline = None if timeout_s is None else clock() + timeout_s
        while True:
            self._news.clear()
            if batch := self._take(limit):
                self._last = batch[-1]
                return batch
            if self._failure is not None:
                if isinstance(self._failure, LogChangedError):
                    raise self._failure
                raise LedgerUnavailableError(str(self._failure)) from self._failure
            if self._is_woken:
                self._is_woken = False
                return []
            if not self._is_whole and await self._look():
                continue
            try:
                async with asyncio.timeout(None if deadline is None else max(0.0, deadline - clock())):
                    await self._news.wait()
            except TimeoutError:
                return []

    def _take(self, limit: int) -> list[Message]:
        batch = self._merge.take(limit)
        for room in self._room.values():
            room.set()
        return [one for one in batch if is_after(one.sequence, self._after)] if self._begins_beyond else batch

    async def _look(self) -> bool:
        """Ask the partition that the others wait for whether it has a match at all; whether that let them go on."""
        merge = self._merge
        if not merge.blocks or not (merge.has_waiting or len(merge.blocks) >= BLOCKS_QUIET):
            return False
        partition, ordered = merge.blocks[0].partition, merge.upto
        if self._coming.get(partition, 0) > merge.complete_of(partition):
            return False
        last = number_of(await self._parts.last_in(partition))
        if last > merge.complete_of(partition):
            self._coming[partition] = last
            return False
        merge.complete(partition, ordered[partition])
        return True

    async def supervise(self) -> None:
        """Keep reading until cancelled; `next_batch` raises the error that ended it."""
        try:
            await self._read()
        except BaseException as error:
            self.fail(error)
            raise

    def fail(self, error: BaseException) -> None:
        """End every wait: nothing more will come."""
        self._failure = self._failure or error
        self._news.set()

    async def _read(self) -> None:
        if self._anchor is not None:
            await self._parts.confirm(self._anchor)
        step = await self._first_step()
        counts = counts_at(step.before, step.after, number_of(self._after))
        merge = self._merge = Merge(step.before, counts)
        for partition in range(len(counts)):
            if partition not in self._partitions:
                merge.complete(partition, number_of(NEVER))
        async with AsyncExitStack() as stack:
            readers = {one: self._parts.read_partition(one, counts[one]) for one in self._partitions}
            order = self._parts.read_order(step.number - 1)
            for reader in (order, *readers.values()):
                await stack.enter_async_context(reading(reader))
            following = [self._follow(partition, reader) for partition, reader in readers.items()]
            await run_until_one_fails([self._follow_order(order), *following])

    async def _first_step(self) -> Step:
        """The part of the order that has the first place to read; one of nothing where it is yet to come."""
        last = await self._order.last()
        step = await self._order.step_at(next_after(self._after), last)
        self._begins_beyond = step is None
        return step or Step(last.number + 1, last.upto, last.upto)

    async def _follow_order(self, reader: OrderedReader) -> None:
        merge, room = self._merge, self._room[None]
        while True:
            for message in await reader.next_batch():
                merge.order(read_upto(message.data, merge.upto))
            self._news.set()
            while len(merge.blocks) >= BLOCKS_MAX:
                room.clear()
                await room.wait()

    async def _follow(self, partition: int, reader: OrderedReader) -> None:
        merge, room = self._merge, self._room[partition]
        while True:
            merge.add(partition, await reader.next_batch())
            self._news.set()
            while merge.waiting_of(partition) >= WAITING_MAX:
                room.clear()
                await room.wait()


@asynccontextmanager
async def merging(reader: MergedReader) -> AsyncIterator[MergedReader]:
    """The reader, reading while the block runs."""
    task = asyncio.create_task(reader.supervise(), name="merging reader")
    try:
        yield reader
    finally:
        reader.fail(LedgerUnavailableError("The reader was closed."))
        await abandon(task)
