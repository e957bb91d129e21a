"""The ledger in JetStream with several partitions: puts order, publisher and merged readers together.

The places of its events are their numbers in the order, so whoever uses it sees one log in one numbering, as with one
partition.
"""

from gpuledger.ledger.closed import ClosedGenerations
from gpuledger.ledger.connect import Connection
from gpuledger.ledger.generation_log import GenerationLog, Times
from gpuledger.ledger.generation_publish import GenerationPublisher
from gpuledger.ledger.partition_filling import FillingPublisher
from gpuledger.ledger.partition_guard import PartitionedGuard
from gpuledger.ledger.partition_publish import PartitionedPublisher
from gpuledger.ledger.partitioned_log import PartitionedLog
from gpuledger.ledger.permissions import RESTORE_ROOT
from gpuledger.ledger.sequencer import Sequencer
from gpuledger.ledger.stream import Generation
from gpuledger.ledger.stream_ledger import JetStreamLedger


class PartitionedLedger(JetStreamLedger):
    """The ledger with several partitions; `running` has to surround its use."""

    def __init__(
        self,
        connection: Connection,
        generation: Generation,
        closed: ClosedGenerations,
        times: Times,
        *,
        puts_in_order: bool = False,
    ) -> None:
        self._puts_in_order = puts_in_order
        self._partitions_guard = PartitionedGuard(connection, generation, self.anchor_at)
        super().__init__(connection, generation, closed, times, guard=self._partitions_guard)

    @property
    def log(self) -> PartitionedLog:
        """The log of the current generation."""
        log = self._log
        assert isinstance(log, PartitionedLog), "it opens no other"
        return log

    @property
    def sequencer(self) -> Sequencer:
        """What puts into the log what the current generation's partitions record."""
        return self.log.sequencer

    def _open_log(self, generation: Generation) -> GenerationLog:
        log = PartitionedLog(
            self._connection, generation, self._times, self._partitions_guard, puts_in_order=self._puts_in_order
        )
        self._partitions_guard.watch(generation, log.guards)
        return log

    def _publisher_of(self, log: GenerationLog) -> GenerationPublisher:
        assert isinstance(log, PartitionedLog), "it opens no other"
        is_filled = log.generation.intake == RESTORE_ROOT
        publisher = FillingPublisher if is_filled else PartitionedPublisher
        return publisher(self._connection, log, guard=self._guard, timeout_s=self._times.publish_timeout_s)
