"""What is measured of sources: gaps that are open, rejected events, and sources over their limits.

It reads the rows of the service `sources`, so that every replica reports the same, and decides nothing.
"""

import asyncio

import psycopg
import structlog
from prometheus_client import Gauge

from gpuledger.db.errors import DatabaseError
from gpuledger.db.lasting import LastingConnection

log = structlog.get_logger("gpuledger.sources")

INTERVAL_S = 15.0
"""How often the rows are read; a scrape is seldom more frequent."""

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


async def measure_sources(database_url: str, *, interval_s: float = INTERVAL_S) -> None:
    """Measure until cancelled. While PostgreSQL is away, the last values stay."""
    connection = LastingConnection(database_url, application_name="gpuledger sources metrics")
    try:
        while True:
            try:
                cursor = await (await connection.get()).execute(_QUERY)
                row = await cursor.fetchone()
                assert row is not None, "counts are one row"
                for gauge, value in zip((_GAPS, _NEW_GAPS, _REJECTING, _LIMITED), row, strict=True):
                    gauge.set(value)
            except (DatabaseError, psycopg.Error) as error:
                log.warning("sources.not-measured", reason=str(error).strip())
            await asyncio.sleep(interval_s)
    finally:
        await connection.close()
