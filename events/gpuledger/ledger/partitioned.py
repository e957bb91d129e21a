"""The ledger in JetStream with several partitions: puts streams, order, publisher and merged readers together.

The places of its events are their numbers in the order, so whoever uses it sees one log in one numbering, as with one
partition. It has one generation so far.
"""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager

from gpuledger.events.position import ORIGIN, Offset, is_origin, latest, number_of
from gpuledger.events.subjects import ALL
from gpuledger.ledger.api import Expected, Ledger, Message, Outgoing, Reader, Receipt
from gpuledger.ledger.atomic import AtomicPublisher
from gpuledger.ledger.closing import Closing
from gpuledger.ledger.connect import Connection
from gpuledger.ledger.errors import LogRestoredError
from gpuledger.ledger.identity import Anchor, LedgerIdentity, anchor_of
from gpuledger.ledger.merged import MergedReader, Parts, merging
from gpuledger.ledger.order import Order, OrderTail
from gpuledger.ledger.partition_guard import PartitionedGuard, StreamGuard
from gpuledger.ledger.partition_publish import PartitionedPublisher
from gpuledger.ledger.partitions import Upto, changed_at, partition_streams, partitions_matched
from gpuledger.ledger.publish import message_bytes_max
from gpuledger.ledger.read import OrderedReader
from gpuledger.ledger.sequencer import Sequencer
from gpuledger.ledger.single import last_match, last_sequence, recorded_at
from gpuledger.ledger.storage import StorageUse, storage_use
from gpuledger.ledger.stream import Generation, stream_info
from gpuledger.ledger.stream_ledger import JetStreamLedger
from gpuledger.runtime.tasks import abandon


class PartitionedLedger(JetStreamLedger):
    """The ledger with several partitions; `running` has to surround its use."""

    def __init__(
        self,
        connection: Connection,
        generation: Generation,
        *,
        publish_timeout_s: float,
        heartbeat_s: float,
        restore_timeout_s: float,
    ) -> None:
        identity = generation.identity or LedgerIdentity("", generation.number)
        self._streams = partition_streams(generation.stream, generation.partitions)
        self._order = Order(connection, generation)
        self._order_guard = StreamGuard(connection, identity, generation.stream)
        self._guards = [
            StreamGuard(connection, identity, stream, lambda one=one: self._length(one))  # type: ignore[misc]
            for one, stream in enumerate(self._streams)
        ]
        guard = PartitionedGuard(connection, identity, (self._order_guard, *self._guards), self.anchor_at)
        super().__init__(
            connection,
            generation,
            AtomicPublisher(connection, generation.stream),
            guard=guard,
            heartbeat_s=heartbeat_s,
            restore_timeout_s=restore_timeout_s,
            publish_timeout_s=publish_timeout_s,
        )
        self._tail = OrderTail(self._order, self._read_order)
        self.sequencer = Sequencer(connection, self._order, self._read_headers)
        self._into = PartitionedPublisher(
            connection, generation, self._order, self._tail, self.sequencer, guard, timeout_s=publish_timeout_s
        )

    @asynccontextmanager
    async def running(self, *, puts_in_order: bool) -> AsyncIterator[None]:
        """Confirm the log, and run what publishing needs, for the length of a block; raises as `confirm` does."""
        await self.confirm()
        async with AsyncExitStack() as stack:
            assert self._guard is not None, "it has one"
            stack.enter_context(self._connection.on_departure(self._guard.doubt))
            await self._into.start()
            stack.push_async_callback(self._tail.aclose)
            stack.push_async_callback(self.sequencer.aclose)
            if puts_in_order:
                stack.push_async_callback(abandon, asyncio.create_task(self.sequencer.watch(self._lengths)))
            yield

    @property
    def message_bytes_max(self) -> int:
        """See `gpuledger.ledger.api.Ledger.message_bytes_max`."""
        return message_bytes_max(self._connection)

    async def anchor_at(self, sequence: Offset) -> Anchor | None:
        """See `gpuledger.ledger.api.Ledger.anchor_at`."""
        if is_origin(sequence):
            return None
        found = await self.message_at(sequence)
        if found is None:
            raise LogRestoredError(
                f"{self._generation.stream} ends at {self._generations.position(await self.head())} and has no event "
                f"at {self._generations.position(sequence)}, up to which it was read"
            )
        return anchor_of(found.sequence, found.subject, found.data)

    async def publish(self, message: Outgoing, expected: Expected | None = None) -> Receipt:
        """See `gpuledger.ledger.api.Ledger.publish`; `expected` is about one origin."""
        return await self._into.publish(message, expected)

    async def publish_many(self, messages: Sequence[Outgoing], expected: Expected | None = None) -> list[Receipt]:
        """See `gpuledger.ledger.api.Ledger.publish_many`; `expected` is about one origin."""
        return await self._into.publish_many(messages, expected)

    def read(
        self, after: Offset = ORIGIN, subject_filter: str = ALL, anchor: Anchor | None = None
    ) -> AbstractAsyncContextManager[Reader]:
        """See `gpuledger.ledger.api.Ledger.read`."""
        parts = Parts(
            self._read_order,
            lambda partition, number: self._read_partition(partition, number, subject_filter),
            lambda partition: last_sequence(self._connection, self._streams[partition], subject_filter),
            self.confirm,
        )
        matched = partitions_matched(subject_filter, self.partitions)
        return merging(MergedReader(self._order, parts, matched, after, anchor, is_whole=subject_filter == ALL))

    def history(
        self, after: Offset = ORIGIN, until: Offset | None = None, subject_filter: str = ALL
    ) -> AsyncIterator[list[Message]]:
        """See `gpuledger.ledger.api.Ledger.history`."""
        return Ledger.history(self, after, until, subject_filter)

    async def head(self) -> Offset:
        """See `gpuledger.ledger.api.Ledger.head`."""
        return sum((await self._order.last()).upto)

    async def storage(self) -> tuple[StorageUse, ...]:
        """What it takes of the limits of storage: the account's, and that of the partition nearest to its own."""
        uses = [await storage_use(self._connection, one) for one in self._streams]
        account = next(one for use in uses for one in use if one.scope == "account")
        streams = [one for use in uses for one in use if one.scope == "stream"]
        return account, max(streams, key=lambda one: one.used_bytes / (one.limit_bytes or 2**62))

    async def closing(self) -> Closing:
        """It is never closed so far."""
        return Closing(self.generation, None, has_next=False)

    async def last_sequence(self, subject_filter: str) -> Offset:
        """See `gpuledger.ledger.api.Ledger.last_sequence`."""
        if subject_filter == ALL:
            return await self.head()
        matched = partitions_matched(subject_filter, self.partitions)
        return latest([await self._last_in(one, subject_filter) for one in matched])

    async def last_in(self, generation: int, subject_filter: str) -> Offset:  # noqa: ARG002 - it has one
        """See `JetStreamLedger.last_in`."""
        return await self.last_sequence(subject_filter)

    async def message_at(self, sequence: Offset) -> Message | None:
        """See `gpuledger.ledger.api.Ledger.message_at`."""
        step = await self._order.step_at(sequence)
        found = step and changed_at(step.before, step.after, number_of(sequence))
        if not found:
            return None
        partition, number = found
        message = await recorded_at(self._connection, self._streams[partition], number)
        return message and message._replace(sequence=sequence)

    async def go_on(self) -> bool:
        """There is no generation behind this one: one of several partitions is never closed so far."""
        return False

    async def _last_in(self, partition: int, subject_filter: str) -> Offset:
        """The place of the last match of a partition among what is in the log; the origin for none."""
        stream = self._streams[partition]
        found = await last_sequence(self._connection, stream, subject_filter)
        if is_origin(found):
            return ORIGIN
        place = await self._order.place_of(partition, number_of(found))
        if place is not None:
            return place
        # What is newer than the log does not count yet.
        found = await last_match(self._connection, stream, subject_filter, await self._length(partition))
        return await self._order.place_of(partition, number_of(found)) or ORIGIN if not is_origin(found) else ORIGIN

    async def _length(self, partition: int) -> int:
        return (await self._order.last()).upto[partition]

    async def _lengths(self) -> Upto:
        found = await asyncio.gather(*(stream_info(self._connection, one) for one in self._streams))
        return tuple(one.state.last_seq for one in found)

    def _read_order(self, number: Offset) -> OrderedReader:
        order = self._order
        return self._stream_reader(order.stream, number, order.subject, self._order_guard, is_whole=True)

    def _read_partition(self, partition: int, number: Offset, subject_filter: str) -> OrderedReader:
        return self._stream_reader(self._streams[partition], number, subject_filter, self._guards[partition])

    def _read_headers(self, partition: int, number: Offset) -> OrderedReader:
        return self._stream_reader(self._streams[partition], number, ALL, self._guards[partition], has_data=False)

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
            guard=guard,
            heartbeat_s=self._heartbeat_s,
            restore_timeout_s=self._restore_timeout_s,
            has_data=has_data,
            is_whole=is_whole,
        )
