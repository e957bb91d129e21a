"""Keeps gauges at what one query of PostgreSQL counts, so that every replica reports the same. Decides nothing."""

from collections.abc import Sequence

from prometheus_client import Gauge

from gpuledger.compose.measuring import UNMEASURED, keep_measuring
from gpuledger.db.lasting import LastingConnection


async def measure_rows(
    database_url: str, name: str, query: bytes, gauges: Sequence[Gauge], *, interval_s: float
) -> None:
    """Measure until cancelled; while PostgreSQL is away, no values are served.

    Args:
        database_url: where the rows are.
        name: what is measured, such as `sources`; the connection and the log entries have it.
        query: gives one row of counts.
        gauges: in the order of its columns.
        interval_s: how often.
    """
    connection = LastingConnection(database_url, application_name=f"gpuledger {name} metrics")

    async def measure() -> None:
        cursor = await (await connection.get()).execute(query)
        row = await cursor.fetchone()
        assert row is not None, "counts are one row"
        for gauge, value in zip(gauges, row, strict=True):
            gauge.set(value)

    def give_up() -> None:
        for gauge in gauges:
            gauge.set(UNMEASURED)

    try:
        await keep_measuring(f"{name}.not-measured", measure, give_up, interval_s=interval_s)
    finally:
        await connection.close()
