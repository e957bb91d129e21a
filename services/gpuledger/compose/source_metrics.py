"""What is measured of sources: gaps that are open, rejected events, and sources over their limits.

It reads the rows of the service `sources`, so that every replica reports the same, and decides nothing.
"""

from prometheus_client import Gauge

from gpuledger.compose.measuring import INTERVAL_S
from gpuledger.compose.row_metrics import measure_rows

_GAPS = Gauge("gpuledger_source_gaps_open", "Ranges of numbers that sources used and the log lacks.")
_NEW_GAPS = Gauge("gpuledger_source_gaps_new", "Those of the open gaps that were detected within a day.")
_REJECTING = Gauge("gpuledger_sources_with_rejected_events", "Sources with rejected events in the last hours.")
_LIMITED = Gauge("gpuledger_sources_over_limits", "Sources that went over their limits in the last hours.")

_QUERY = b"""
    SELECT (SELECT count(*) FROM gpuledger_live.gap WHERE closed_at IS NULL),
        (SELECT count(*) FROM gpuledger_live.gap WHERE closed_at IS NULL AND detected_at > now() - INTERVAL '1 day'),
        count(*) FILTER (WHERE rejected > 0), count(*) FILTER (WHERE limited_at IS NOT NULL)
    FROM gpuledger_live.source_hour WHERE hour > now() - INTERVAL '2 hours'
"""
"""An hour of recording that is under way, and the one before it, so that nothing ends with the clock's hour."""


_GAUGES = (_GAPS, _NEW_GAPS, _REJECTING, _LIMITED)
"""In the order of the query's columns."""


async def measure_sources(database_url: str, *, interval_s: float = INTERVAL_S) -> None:
    """Measure until cancelled; while PostgreSQL is away, no values are served."""
    await measure_rows(database_url, "sources", _QUERY, _GAUGES, interval_s=interval_s)
