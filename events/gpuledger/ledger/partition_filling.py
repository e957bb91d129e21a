"""Publishes into a generation of several partitions that a restore fills: the order of the log is that of the archive.

The partitions record what is theirs side by side, and then the order says how they follow each other. It takes nothing
but what is appended here, so nothing gets in between, and what an interrupted call left in the partitions is what comes
next.
"""

from collections.abc import Sequence
from typing import NamedTuple

from gpuledger.events.position import Offset, next_after
from gpuledger.ledger.api import Outgoing, Receipt
from gpuledger.ledger.atomic import AtomicPublisher
from gpuledger.ledger.connect import Connection
from gpuledger.ledger.continuity import LogGuard
from gpuledger.ledger.intake import filled_order_subject
from gpuledger.ledger.partition_publish import PartitionedPublisher
from gpuledger.ledger.partitioned_log import PartitionedLog
from gpuledger.ledger.partitions import Upto, partition_of, steps_of, together, written
from gpuledger.runtime.clock import random_id
from gpuledger.runtime.tasks import run_until_one_fails


class _Filled(NamedTuple):
    """How many messages of each partition are in the log, and how many it holds."""

    upto: Upto
    held: Upto


class FillingPublisher(PartitionedPublisher):
    """Publishes into a generation that nobody else publishes into."""

    def __init__(
        self, connection: Connection, log: PartitionedLog, *, guard: LogGuard | None, timeout_s: float
    ) -> None:
        super().__init__(connection, log, guard=guard, timeout_s=timeout_s)
        self._ordering = AtomicPublisher(connection, log.order.stream, guard=guard, timeout_s=timeout_s)
        self._order_subject = filled_order_subject(log.generation.number)
        self._prefix = random_id()
        self._filled: _Filled | None = None

    async def start(self) -> None:
        """See `GenerationPublisher.start`."""
        await super().start()
        await self._ordering.start()

    async def publish(self, messages: Sequence[Outgoing]) -> list[Receipt]:
        """See `GenerationPublisher.publish`: what follows in the log what is there, each behind the one before it.

        After a call that failed the next one has to begin behind the log's end: what the partitions hold beyond that
        are its first messages.
        """
        for message in messages:
            self.check_size(message)
        before, held = self._filled or _Filled((await self._log.order.last()).upto, await self._log.lengths())
        self._filled = None  # a call that fails leaves nobody knowing how far it got
        parts = [partition_of(one.subject, self._count) for one in messages]
        steps = steps_of(before, parts)
        if not steps:
            return []
        await run_until_one_fails(
            self._record(partition, [one for one, here in zip(messages, parts, strict=True) if here == partition], skip)
            for partition, skip in enumerate(have - had for have, had in zip(held, before, strict=True))
        )
        await self._ordering.publish(
            [Outgoing(self._order_subject, f"{self._prefix}/{sum(upto)}", written(upto)) for upto in steps]
        )
        self._filled = _Filled(steps[-1], together(held, steps[-1]))
        place: Offset = sum(before)
        return [Receipt(place := next_after(place), duplicate=False) for _ in messages]

    async def _record(self, partition: int, messages: Sequence[Outgoing], skip: int) -> None:
        """Record a partition's messages, but for the first ones, which it has."""
        if missing := messages[skip:]:
            await self._publishers[partition].publish(self._sent(partition, missing))
