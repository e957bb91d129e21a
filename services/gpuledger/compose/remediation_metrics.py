"""What is measured of the remediation of nodes: what is under way, what waits, and where a person has to look.

It reads the rows of the service `remediation`, so that every replica reports the same, and decides nothing.
"""

from prometheus_client import Gauge

from gpuledger.compose.measuring import INTERVAL_S
from gpuledger.compose.row_metrics import measure_rows

_GAUGES = (
    Gauge("gpuledger_remediation_open", "Remedies of nodes without an outcome."),
    Gauge("gpuledger_remediation_waiting", "Faults whose node is not ready for a remedy of them yet."),
    Gauge("gpuledger_remediation_attention", "Nodes where a person has to look, because no remedy is left."),
)
"""In the order of the query's columns."""

_QUERY = b"""
    SELECT (SELECT count(*) FROM gpuledger_live.remediation WHERE ended_at IS NULL),
        (SELECT count(*) FROM gpuledger_live.remediation_fault WHERE state IN ('waiting', 'pending')),
        (SELECT count(DISTINCT node) FROM gpuledger_live.remediation_attention)
"""


async def measure_remediation(database_url: str, *, interval_s: float = INTERVAL_S) -> None:
    """Measure until cancelled; while PostgreSQL is away, no values are served."""
    await measure_rows(database_url, "remediation", _QUERY, _GAUGES, interval_s=interval_s)
