"""Publishes into the partitions of a log, and waits until what they recorded is in it.

Readers see an event once it is in the log. Whoever is behind that wait has published something whose effects stand
behind it, wherever they are recorded. Preconditions and receipts name places in the log; the server knows the numbers
of one partition, so a precondition is about one origin.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Sequence
from contextlib import suppress
from itertools import groupby
from typing import Final

from gpuledger.events.position import ORIGIN, Offset, is_origin, number_of
from gpuledger.ledger.api import Expected, MessageAt, Outgoing, Receipt, behind
from gpuledger.ledger.atomic import AtomicPublisher, parts_of
from gpuledger.ledger.connect import Connection
from gpuledger.ledger.continuity import LogGuard
from gpuledger.ledger.errors import PartitionedError, PublishError, SequenceConflictError
from gpuledger.ledger.order import Order, OrderTail
from gpuledger.ledger.partitions import changed_at, partition_of, partition_streams, partitions_matched, prefix_of
from gpuledger.ledger.repeats import count_receipts, counted_failures, recorded_behind
from gpuledger.ledger.sequencer import Sequencer
from gpuledger.ledger.single import recorded_at
from gpuledger.ledger.stream import Generation

HELP_S: Final = 0.05
"""After so long it is put into the log from here, where nobody else does that."""

PLACES_KEPT_MAX: Final = 1024
"""How many places that calls ended with are remembered; the next ones expect those."""


class PartitionedPublisher:
    """Publishes for one ledger; a message may take `timeout_s` to be recorded, and as long again to be in the log."""

    def __init__(
        self,
        connection: Connection,
        generation: Generation,
        order: Order,
        tail: OrderTail,
        sequencer: Sequencer,
        guard: LogGuard,
        *,
        timeout_s: float,
    ) -> None:
        self._connection = connection
        self._count = generation.partitions
        self._streams = partition_streams(generation.stream, self._count)
        self._publishers = [AtomicPublisher(connection, one, guard=guard, timeout_s=timeout_s) for one in self._streams]
        self._order = order
        self._tail = tail
        self._sequencer = sequencer
        self._timeout_s = timeout_s
        self._places: OrderedDict[Offset, tuple[int, int]] = OrderedDict()

    async def start(self) -> None:
        """Listen for acknowledgements, until the connection closes."""
        for one in self._publishers:
            await one.start()

    async def publish(self, message: Outgoing, expected: Expected | None) -> Receipt:
        """See `gpuledger.ledger.api.Ledger.publish`."""
        return (await self.publish_many([message], expected))[0]

    async def publish_many(self, messages: Sequence[Outgoing], expected: Expected | None) -> list[Receipt]:
        """See `gpuledger.ledger.api.Ledger.publish_many`; what other partitions take waits for what is before it."""
        for message in messages:
            self._publishers[0].one_by_one.check_size(message)
        with counted_failures(len(messages)):
            await self._tail.start()
            if expected is None:
                receipts = await self._publish_all(messages)
            else:
                receipts = await self._publish_in_turn(messages, expected)
        count_receipts(receipts)
        return receipts

    async def _publish_all(self, messages: Sequence[Outgoing]) -> list[Receipt]:
        receipts: list[Receipt] = []
        for partition, run in groupby(messages, lambda one: partition_of(one.subject, self._count)):
            sent = _sent(partition, list(run))
            receipts += await self._placed(partition, await self._publishers[partition].publish(sent))
        return receipts

    async def _publish_in_turn(self, messages: Sequence[Outgoing], expected: Expected) -> list[Receipt]:
        """Each behind the one before: the server checks one expectation a batch, and one for each single message."""
        partitions = {partition_of(one.subject, self._count) for one in messages}
        matched = partitions_matched(expected.subject_filter, self._count)
        if len(matched) > 1 or partitions - set(matched):
            raise PartitionedError("What is expected of the events of several origins", self._count)
        partition = matched[0]
        here = await self._expected_in(partition, expected, messages)
        receipts: list[Receipt] = []
        for part in parts_of(_sent(partition, messages)):
            committed = await self._publishers[partition].commit(part, here) if len(part) > 1 else []
            if committed:
                here = here._replace(sequence=committed[-1].sequence)
            for message in () if committed else part:
                receipt = await self._publish_one(partition, message, here)
                here = await behind(self._message_in(partition), here, _stored(partition, message), receipt)
                committed.append(receipt)
            receipts += committed
        return await self._placed(partition, receipts)

    async def _publish_one(self, partition: int, message: Outgoing, here: Expected) -> Receipt:
        try:
            return (await self._publishers[partition].one_by_one.publish([message], here))[0]
        except SequenceConflictError:
            # The server checks the expectation before it checks for repeats.
            stream = self._streams[partition]
            found = await recorded_behind(self._connection, stream, here.sequence, here.subject_filter, message.id)
            if found is None:
                raise
            return Receipt(found, duplicate=True)

    def _message_in(self, partition: int) -> MessageAt:
        return lambda number: recorded_at(self._connection, self._streams[partition], number)

    async def _expected_in(self, partition: int, expected: Expected, messages: Sequence[Outgoing]) -> Expected:
        """The precondition as the partition's stream can check it.

        Raises:
            SequenceConflictError: what it names is not there.
        """
        if is_origin(expected.sequence):
            return expected._replace(sequence=ORIGIN)
        found = self._places.get(expected.sequence)
        if found is None and (step := await self._order.step_at(expected.sequence)):
            found = changed_at(step.before, step.after, number_of(expected.sequence))
        if found is None or found[0] != partition:
            raise SequenceConflictError(
                f"The event {messages[0].id} came too late: the one that it was to follow is not at "
                f"{number_of(expected.sequence):,}. Read and decide again."
            )
        return expected._replace(sequence=found[1])

    async def _placed(self, partition: int, receipts: Sequence[Receipt]) -> list[Receipt]:
        """The receipts with places in the log, once all of them have one."""
        if not receipts:
            return []
        numbers = [number_of(one.sequence) for one in receipts]
        await self._wait(partition, max(numbers))
        places = await self._tail.places_of(partition, numbers)
        self._places[places[-1]] = (partition, numbers[-1])
        if len(self._places) > PLACES_KEPT_MAX:
            self._places.popitem(last=False)
        return [Receipt(place, one.duplicate) for place, one in zip(places, receipts, strict=True)]

    async def _wait(self, partition: int, number: int) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(HELP_S):
                await self._tail.reaches(partition, number)
                return
        self._sequencer.call()
        try:
            async with asyncio.timeout(self._timeout_s):
                await self._tail.reaches(partition, number)
        except TimeoutError as error:
            why = self._sequencer.problem
            raise PublishError(
                f"The event was recorded in {self._streams[partition]}, and was not put into the log within "
                f"{self._timeout_s:g} s{f': {why}' if why else '. Start `gpuledger up`, which does that'}. "
                "Publishing it again is safe."
            ) from error


def _sent(partition: int, messages: Sequence[Outgoing]) -> list[Outgoing]:
    """The messages under the subjects that a partition takes."""
    prefix = prefix_of(partition)
    return [one._replace(subject=prefix + one.subject) for one in messages]


def _stored(partition: int, message: Outgoing) -> Outgoing:
    """The message under the subject that it is stored with."""
    return message._replace(subject=message.subject.removeprefix(prefix_of(partition)))
