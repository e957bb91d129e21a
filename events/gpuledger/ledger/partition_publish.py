"""Publishes into the partitions of a generation, and waits until what they recorded is in the log.

Readers see an event once it is in the log. Whoever is behind that wait has published something whose effects stand
behind it, wherever they are recorded. Preconditions and receipts name places in the log; the server knows the numbers
of one partition, so a precondition is about one origin.
"""

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from itertools import groupby
from typing import Final

from gpuledger.events.position import ORIGIN, Offset, is_origin, number_of
from gpuledger.ledger.api import Expected, Outgoing, Receipt
from gpuledger.ledger.atomic import AtomicPublisher
from gpuledger.ledger.connect import Connection
from gpuledger.ledger.continuity import LogGuard
from gpuledger.ledger.errors import GenerationError, PartitionedError, PublishError, SequenceConflictError
from gpuledger.ledger.generation_publish import GenerationPublisher
from gpuledger.ledger.intake import stream_intake
from gpuledger.ledger.one_store import Remembered
from gpuledger.ledger.partitioned_log import PartitionedLog
from gpuledger.ledger.partitions import changed_at, partition_of, partitions_matched
from gpuledger.ledger.publish import message_bytes_max
from gpuledger.ledger.repeats import recorded_behind

HELP_S: Final = 0.05
"""After so long it is put into the log from here, where nobody else does that."""

PLACES_KEPT_MAX: Final = 1024
"""How many places that calls ended with are remembered; the next ones expect those."""


class PartitionedPublisher(GenerationPublisher):
    """Publishes into one generation; a message may take `timeout_s` to be recorded, and as long to be in the log."""

    def __init__(
        self, connection: Connection, log: PartitionedLog, *, guard: LogGuard | None, timeout_s: float
    ) -> None:
        self._connection = connection
        self._log = log
        self._streams = log.streams
        self._count = len(log.streams)
        self._publishers = [AtomicPublisher(connection, one, guard=guard, timeout_s=timeout_s) for one in log.streams]
        generation = log.generation
        self._intakes = [stream_intake(generation.number, generation.intake, one) for one in range(self._count)]
        self._timeout_s = timeout_s
        self._places: Remembered[Offset, tuple[int, int]] = Remembered(connection, PLACES_KEPT_MAX)

    @property
    def message_bytes_max(self) -> int:
        """See `GenerationPublisher.message_bytes_max`."""
        return message_bytes_max(self._connection)

    async def start(self) -> None:
        """See `GenerationPublisher.start`."""
        for one in self._publishers:
            await one.start()

    def check_size(self, message: Outgoing) -> None:
        """See `GenerationPublisher.check_size`."""
        self._publishers[0].one_by_one.check_size(message)

    async def publish(self, messages: Sequence[Outgoing]) -> list[Receipt]:
        """See `GenerationPublisher.publish`; what other partitions take waits for what is before it."""
        for message in messages:
            self.check_size(message)
        await self._log.tail.start()
        receipts: list[Receipt] = []
        for partition, run in groupby(messages, lambda one: partition_of(one.subject, self._count)):
            try:
                numbered = await self._publishers[partition].publish(self._sent(partition, list(run)))
            except GenerationError as error:
                error.receipts = (*receipts, *await self._placed(partition, error.receipts))
                raise
            receipts += await self._placed(partition, numbered)
        return receipts

    async def publish_expected(self, message: Outgoing, expected: Expected) -> Receipt:
        """See `GenerationPublisher.publish_expected`; `expected` is about one origin."""
        partition = self._partition_of([message], expected)
        await self._log.tail.start()
        here = await self._expected_in(partition, expected, [message])
        publisher = self._publishers[partition].one_by_one
        try:
            receipts = await publisher.publish(self._sent(partition, [message]), here)
        except SequenceConflictError:
            # The server checks the expectation before it checks for repeats.
            stream = self._streams[partition]
            found = await recorded_behind(self._connection, stream, here.sequence, here.subject_filter, message.id)
            if found is None:
                raise
            receipts = [Receipt(found, duplicate=True)]
        return (await self._placed(partition, receipts))[0]

    async def commit(self, messages: Sequence[Outgoing], expected: Expected) -> list[Receipt]:
        """See `GenerationPublisher.commit`; `expected` is about one origin."""
        partition = self._partition_of(messages, expected)
        await self._log.tail.start()
        here = await self._expected_in(partition, expected, messages)
        committed = await self._publishers[partition].commit(self._sent(partition, messages), here)
        return await self._placed(partition, committed)

    def _sent(self, partition: int, messages: Sequence[Outgoing]) -> list[Outgoing]:
        """The messages under the subjects that a partition takes."""
        return [self._intakes[partition].sent(one) for one in messages]

    def _partition_of(self, messages: Sequence[Outgoing], expected: Expected) -> int:
        partitions = {partition_of(one.subject, self._count) for one in messages}
        matched = partitions_matched(expected.subject_filter, self._count)
        if len(matched) > 1 or partitions - set(matched):
            raise PartitionedError("What is expected of the events of several origins", self._count)
        return matched[0]

    async def _expected_in(self, partition: int, expected: Expected, messages: Sequence[Outgoing]) -> Expected:
        """The precondition as the partition's stream can check it.

        Raises:
            SequenceConflictError: what it names is not there.
        """
        if is_origin(expected.sequence):
            return expected._replace(sequence=ORIGIN)
        found = self._places.get(expected.sequence)
        if found is None and (step := await self._log.order.step_at(expected.sequence)):
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
        places = await self._log.tail.places_of(partition, numbers)
        self._places.put(places[-1], (partition, numbers[-1]))
        return [Receipt(place, one.duplicate) for place, one in zip(places, receipts, strict=True)]

    async def _wait(self, partition: int, number: int) -> None:
        tail = self._log.tail
        with suppress(TimeoutError):
            async with asyncio.timeout(HELP_S):
                await tail.reaches(partition, number)
                return
        self._log.sequencer.call()
        try:
            async with asyncio.timeout(self._timeout_s):
                await tail.reaches(partition, number)
        except TimeoutError as error:
            why = self._log.sequencer.problem
            raise PublishError(
                f"The event was recorded in {self._streams[partition]}, and was not put into the log within "
                f"{self._timeout_s:g} s{f': {why}' if why else '. Start `gpuledger up`, which does that'}. "
                "Publishing it again is safe."
            ) from error
