"""What is measured of the quarantine of nodes: the circuit breaker, nodes and faults, and rules that fail.

It reads the rows of the service `health`, so that every replica reports the same, and decides nothing.
"""

from prometheus_client import Gauge

from gpuledger.compose.measuring import INTERVAL_S
from gpuledger.compose.row_metrics import measure_rows

_GAUGES = (
    Gauge("gpuledger_quarantine_breaker_open", "1 while the circuit breaker keeps rules from setting nodes aside."),
    Gauge("gpuledger_quarantine_nodes", "Nodes that rules have set aside."),
    Gauge("gpuledger_quarantine_nodes_held", "Nodes that the circuit breaker keeps from being set aside."),
    Gauge("gpuledger_quarantine_faults", "Standing faults that rules match."),
    Gauge("gpuledger_quarantine_failing_rulesets", "Rulesets that could not be evaluated over a report."),
)
"""In the order of the query's columns."""

_QUERY = b"""
    SELECT (SELECT count(*) FROM gpuledger_live.quarantine_breaker WHERE opened_at IS NOT NULL),
        (SELECT count(DISTINCT node) FROM gpuledger_live.quarantine_request WHERE ended_at IS NULL),
        count(DISTINCT node) FILTER (WHERE state = 'held'), count(*),
        (SELECT count(*) FROM gpuledger_live.quarantine_ruleset_count WHERE failed > 0)
    FROM gpuledger_live.node_fault
"""


async def measure_quarantine(database_url: str, *, interval_s: float = INTERVAL_S) -> None:
    """Measure until cancelled; while PostgreSQL is away, no values are served."""
    await measure_rows(database_url, "quarantine", _QUERY, _GAUGES, interval_s=interval_s)
