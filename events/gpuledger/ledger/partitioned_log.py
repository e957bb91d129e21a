"""One generation of a log of several partitions: its order, its partitions' streams, and what puts the one in order.

The places of its events are their numbers in the order, and go on from one generation to the next, because each
partition's own numbers do.
"""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from gpuledger.events.position import ORIGIN, Offset, is_origin, is_same, latest, next_after, number_of
from gpuledger.events.subjects import ALL
from gpuledger.ledger.api import MESSAGES_AT_ONCE, Message
from gpuledger.ledger.connect import Connection
from gpuledger.ledger.continuity import kept_stream
from gpuledger.ledger.generation_log import GenerationLog, GenerationReader, Times
from gpuledger.ledger.identity import Anchor, LedgerIdentity
from gpuledger.ledger.merged import MergedReader, Parts, merging
from gpuledger.ledger.order import Entry, Order, OrderTail
from gpuledger.ledger.partition_guard import PartitionedGuard, StreamGuard
from gpuledger.ledger.partitions import Upto, changed_at, counts_at, partition_streams, partitions_matched
from gpuledger.ledger.read import OrderedReader
from gpuledger.ledger.repeats import recorded_behind
from gpuledger.ledger.sequencer import Sequencer
from gpuledger.ledger.single import last_match, last_sequence, recorded_at
from gpuledger.ledger.storage import StorageUse, storage_use
from gpuledger.ledger.stream import Generation, stream_info
from gpuledger.runtime.tasks import abandon, results_of


class PartitionedLog(GenerationLog):
    """The log of a generation of several partitions.

    What is read is confirmed where there is a `guard`, which is the whole log's. With `puts_in_order` what the
    partitions record is put into the log from here where nobody else does that.
    """

    def __init__(
        self,
        connection: Connection,
        generation: Generation,
        times: Times,
        guard: PartitionedGuard | None = None,
        *,
        puts_in_order: bool = False,
    ) -> None:
        self._connection = connection
        self._generation = generation
        self._times = times
        self._guard = guard
        self._puts_in_order = puts_in_order
        self.streams = partition_streams(generation.stream, generation.partitions)
        self.order = Order(connection, generation)
        identity = generation.identity or LedgerIdentity("", generation.number)
        self._order_guard = StreamGuard(connection, identity, generation.stream, "order")
        self._guards = [
            StreamGuard(connection, identity, stream, "partition", lambda one=one: self._length(one))  # type: ignore[misc]
            for one, stream in enumerate(self.streams)
        ]
        self.tail = OrderTail(self.order, self._read_order)
        self.sequencer = Sequencer(connection, self.order, self._read_headers)
        self._watching: asyncio.Task[None] | None = None

    @property
    def generation(self) -> Generation:
        """See `GenerationLog.generation`."""
        return self._generation

    @property
    def guards(self) -> list[StreamGuard]:
        """What confirms each of its streams."""
        return [self._order_guard, *self._guards]

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """See `GenerationLog.running`."""
        try:
            if self._puts_in_order:
                self._watching = asyncio.create_task(self.sequencer.watch(self.lengths))
            yield
        finally:
            await self.retire()
            await self.tail.aclose()

    async def retire(self) -> None:
        """See `GenerationLog.retire`; what it took is in the log, so nothing is left to be put in order."""
        if self._watching is not None:
            await abandon(self._watching)
        await self.sequencer.aclose()

    @asynccontextmanager
    async def reading(
        self, after: Offset, subject_filter: str, anchor: Anchor | None = None
    ) -> AsyncIterator[GenerationReader]:
        """See `GenerationLog.reading`."""
        parts = Parts(
            self._read_order,
            lambda partition, number: self._read_partition(partition, number, subject_filter),
            lambda partition: last_sequence(self._connection, self.streams[partition], subject_filter),
            self._confirm,
        )
        matched = partitions_matched(subject_filter, len(self.streams))
        reader = MergedReader(self.order, parts, matched, after, anchor, is_whole=subject_filter == ALL)
        async with merging(reader):
            yield reader

    async def head(self) -> Offset:
        """See `GenerationLog.head`."""
        return sum((await self.order.last()).upto)

    async def last_sequence(self, subject_filter: str) -> Offset:
        """See `GenerationLog.last_sequence`."""
        if subject_filter == ALL:
            head = await self.head()
            return ORIGIN if is_same(head, sum(self.order.nothing)) else head
        matched = partitions_matched(subject_filter, len(self.streams))
        found = {one: await last_sequence(self._connection, self.streams[one], subject_filter) for one in matched}
        last = await self.order.last()  # it is there, unless nothing was found because all of the log is gone
        return latest([await self._last_in(one, subject_filter, found[one], last) for one in matched])

    async def message_at(self, at: Offset) -> Message | None:
        """See `GenerationLog.message_at`."""
        return await self._message_at(at, await self.order.last())

    async def messages_at(self, places: Sequence[Offset]) -> list[Message | None]:
        """See `GenerationLog.messages_at`."""
        last = await self.order.last()
        return await results_of(lambda at: self._message_at(at, last), places, at_once_max=MESSAGES_AT_ONCE)

    async def _message_at(self, at: Offset, last: Entry) -> Message | None:
        step = await self.order.step_at(at, last)
        found = step and changed_at(step.before, step.after, number_of(at))
        if not found:
            return None
        partition, number = found
        stream = self.streams[partition]
        message = await recorded_at(self._connection, stream, number)
        if message is None:
            await kept_stream(self._connection, stream)  # nothing is found in one that is gone, either
            return None
        return message._replace(sequence=at)

    async def recorded_behind(self, after: Offset, subject_filter: str, message_id: str) -> Offset | None:
        """See `GenerationLog.recorded_behind`; what is not in the log yet does not count."""
        last = await self.order.last()
        step = await self.order.step_at(next_after(after), last)
        counts = last.upto if step is None else counts_at(*step[1:], number_of(after))
        for partition in partitions_matched(subject_filter, len(self.streams)):
            stream = self.streams[partition]
            found = await recorded_behind(self._connection, stream, counts[partition], subject_filter, message_id)
            if found is not None:
                return await self.order.place_of(partition, number_of(found))
        return None

    async def storage(self) -> tuple[StorageUse, ...]:
        """What it takes of the limits of storage: the account's, and that of the partition nearest to its own."""
        uses = [await storage_use(self._connection, one) for one in self.streams]
        account = next(one for use in uses for one in use if one.scope == "account")
        streams = [one for use in uses for one in use if one.scope == "stream"]
        return account, max(streams, key=lambda one: one.used_bytes / (one.limit_bytes or 2**62))

    async def lengths(self) -> Upto:
        """How many messages each partition has, whether they are in the log or not."""
        found = await asyncio.gather(*(stream_info(self._connection, one) for one in self.streams))
        return tuple(one.state.last_seq for one in found)

    async def _confirm(self, anchor: Anchor) -> None:
        if self._guard is not None:
            await self._guard.confirm(anchor)

    async def _last_in(self, partition: int, subject_filter: str, found: Offset, last: Entry) -> Offset:
        """The place in the log of the last match of a partition, given the last one that it has; the origin for none.

        What is newer than the last message of the order does not count yet.
        """
        if number_of(found) > last.upto[partition]:
            upto = last.upto[partition]
            found = await last_match(self._connection, self.streams[partition], subject_filter, upto)
        if is_origin(found):
            return ORIGIN
        return await self.order.place_of(partition, number_of(found), last) or ORIGIN

    async def _length(self, partition: int) -> int:
        return (await self.order.last()).upto[partition]

    def _read_order(self, number: Offset) -> OrderedReader:
        return self._stream_reader(self.order.stream, number, self.order.subject, self._order_guard, is_whole=True)

    def _read_partition(self, partition: int, number: Offset, subject_filter: str) -> OrderedReader:
        return self._stream_reader(self.streams[partition], number, subject_filter, self._guards[partition])

    def _read_headers(self, partition: int, number: Offset) -> OrderedReader:
        return self._stream_reader(self.streams[partition], number, ALL, self._guards[partition], has_data=False)

    def _stream_reader(
        self,
        stream: str,
        number: Offset,
        subject_filter: str,
        guard: StreamGuard,
        *,
        has_data: bool = True,
        is_whole: bool | None = None,
    ) -> OrderedReader:
        return OrderedReader(
            self._connection,
            stream,
            number,
            subject_filter,
            guard=None if self._guard is None else guard,
            heartbeat_s=self._times.heartbeat_s,
            restore_timeout_s=self._times.restore_timeout_s,
            has_data=has_data,
            is_whole=is_whole,
        )
