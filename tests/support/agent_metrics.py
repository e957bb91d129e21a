"""The names of an agent's metrics."""

from gpuledger.agent.board import Board
from gpuledger.agent.gateway.service import ReportCounts
from gpuledger.agent.metrics import AgentMetrics
from gpuledger.agent.outbox.store import OutboxStatus
from gpuledger.agent.plugin.service import PluginCounts


class EmptyOutbox:
    """An outbox in which nothing waits."""

    recorded = 0
    status = OutboxStatus(durable=True)
    oldest_age_s = 0.0


def metrics_of_agents(board: Board) -> set[str]:
    """All names that an agent serves whose parts found what stands on the board."""
    metrics = AgentMetrics(board, EmptyOutbox(), PluginCounts(), ReportCounts())
    return {sample.name for family in metrics.collect() for sample in family.samples}
