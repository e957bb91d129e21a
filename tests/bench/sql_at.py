"""How long a query of the past takes until its first row, and how much room its tables take in PostgreSQL."""

from datetime import timedelta
from time import perf_counter

from bench import fleet
from bench.report import Figure
from bench.servers import unsynced_nats
from bench.throughput import fill
from gpuledger.ledger.jetstream import JetStreamLedger
from gpuledger.projection.replay import fold_until
from gpuledger.readmodels.projections import DevicesProjection
from gpuledger.tools.queries.backend import Backend
from gpuledger.tools.queries.moments import PointInTime
from gpuledger.tools.queries.sql import result_then
from support.ledgers import new_ledger

QUERY = """
SELECT (SELECT count(*) FROM installation) AS lives, (
    SELECT sum(pg_total_relation_size(oid)) FROM pg_class WHERE relnamespace = pg_my_temp_schema()
)::bigint AS bytes
"""
"""Of every table that it reaches and of none besides, it says how much room it takes."""


async def sql_at(database_url: str, events: int) -> list[Figure]:
    """Events a second beside a fold in memory of the same projection, and megabytes (10^6 bytes) beside the log's."""
    with unsynced_nats() as server:
        async with new_ledger(server.url, name="bench") as ledger:
            await fill(ledger, fleet.history(events), "sql-at")
            backend = Backend(ledger, database_url, server.url, None)
            in_memory = await _in_memory(ledger, events)
            log_mb = await _log_bytes(ledger) / 1e6
            end = fleet.BEGIN + timedelta(seconds=2 * events * fleet.SECONDS_BETWEEN)
            figures = []
            for name, moment in (
                ("sql --as-recorded", PointInTime(recorded=(None, events))),
                ("sql --at", PointInTime(end)),
            ):
                began = perf_counter()
                (row,) = (await result_then(backend, QUERY, moment)).rows
                rate = events / (perf_counter() - began)
                megabytes = int(str(row["bytes"])) / 1e6
                label = f"{name}, {events:,} events"
                figures.append(Figure(label, rate, "events/s", "fold in memory", in_memory, None))
                figures.append(Figure(f"{label}, tables", megabytes, "MB", "messages of the log", log_mb, None))
    return figures


async def _in_memory(ledger: JetStreamLedger, events: int) -> float:
    began = perf_counter()
    await fold_until(DevicesProjection(), ledger)
    return events / (perf_counter() - began)


async def _log_bytes(ledger: JetStreamLedger) -> int:
    total = 0
    async for messages in ledger.history():
        total += sum(len(message.subject) + len(message.data) for message in messages)
    return total
