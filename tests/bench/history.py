"""How much room a row of history takes, how long the past and totals of years take to read, and old rows to delete.

Each stands beside a scan, or one statement.
"""

from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from random import Random
from time import perf_counter
from typing import LiteralString

from bench import fleet
from bench.report import Figure
from gpuledger.db.engine import AsyncConnection, connect
from gpuledger.domain.table import Changes, Table
from gpuledger.domain.workloads.allocations import (
    DAY_TOTALS,
    HISTORY,
    AllocationRange,
    Allocations,
    ContainerDay,
)
from gpuledger.domain.workloads.day_totals import changes_of, holder_of
from gpuledger.ledger.identity import LedgerIdentity
from gpuledger.projection.history_sweep import HistorySweep
from gpuledger.projection.rows import RowStore
from gpuledger.projection.store import ProjectionStore
from gpuledger.readmodels.projections import AllocationsProjection

BEGIN = datetime(2021, 1, 1, tzinfo=UTC)
NODES, CARDS, NAMESPACES = 125, 8, 20
RANGES_A_DAY = 12
"""How many containers have a card on one day, one after another."""

RESOURCE = "gpu.deckhouse.io/a100"
WRITTEN_AT_ONCE = 50_000
ASKED = 40
"""How many moments are asked for, for one percentile."""

HELD = "gpuledger_live.container_allocation_history"
NAMED = ("unit", "node", "namespace", "container", "resource", "device")
DICTIONARIES = (
    'CREATE TABLE name (id integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY, name text COLLATE "C" UNIQUE NOT NULL)',
    f"INSERT INTO name (name) SELECT DISTINCT unnest(ARRAY[{', '.join(NAMED)}]) FROM {HELD}",
    f"CREATE TABLE keyed AS SELECT {', '.join(f'of_{name}.id AS {name}' for name in NAMED)}, "
    f"allocation, pod, slice, claim, driver, pool, valid_from, valid_to FROM {HELD} AS held "
    + " ".join(f"JOIN name AS of_{name} ON of_{name}.name = held.{name}" for name in NAMED)
    + " ORDER BY valid_from",
    "ALTER TABLE keyed ADD PRIMARY KEY (allocation, unit, valid_from)",
    "CREATE INDEX ON keyed USING brin (valid_from, valid_to) WITH (autosummarize = on)",
    "CREATE INDEX ON keyed (device)",
    "CREATE INDEX ON keyed (allocation) WHERE valid_to IS NULL",
    "VACUUM ANALYZE",
)
"""The same rows with numbers in place of the names that many rows have, and the same indexes, to compare with."""

BYTES: LiteralString = (
    "SELECT coalesce(sum(pg_total_relation_size(coalesce(inhrelid, to_regclass(name)))), 0)::bigint "
    "FROM unnest(%s::text[]) AS name LEFT JOIN pg_inherits ON inhparent = to_regclass(name)"
)
AT: LiteralString = "SELECT count(*) FROM report.container_allocations_at(%s) WHERE device = %s"
BY_MONTH: LiteralString = (
    "SELECT date_trunc('month', day) AS month, namespace, sum(hours) FROM report.container_hours_by_day GROUP BY 1, 2"
)
OF_RANGES: LiteralString = """
SELECT
    date_trunc('month', day) AS month, namespace,
    sum(extract(epoch FROM least(valid_to, day + interval '24 hours') - greatest(valid_from, day))) / 3600
FROM gpuledger_live.container_allocation_history
CROSS JOIN LATERAL generate_series(date_trunc('day', valid_from, 'UTC'), valid_to, interval '24 hours') AS of_day (day)
GROUP BY 1, 2
"""


@dataclass(frozen=True)
class HistorySizes:
    """How many ranges there are."""

    ranges: int = 1_000_000


FULL = HistorySizes()
QUICK = HistorySizes(ranges=5_000)


async def history(database_url: str, sizes: HistorySizes) -> list[Figure]:
    """Bytes a row beside rows with numbers for names; milliseconds of the past of one card and of totals."""
    span = _span(sizes.ranges)
    async with connect(database_url, application_name="bench") as connection:
        days = await _fill(connection, sizes.ranges)
        for statement in DICTIONARIES:
            await connection.execute(statement.encode())
        text = await _bytes(connection, HELD) / sizes.ranges
        keyed = await _bytes(connection, "keyed", "name") / sizes.ranges
        total = await _bytes(connection, "gpuledger_live.container_allocation_day") / days
        looked_up = await _p95_ms(lambda at, device: _ask(connection, AT, at, device), span)
        for setting in ("enable_indexscan", "enable_bitmapscan", "enable_indexonlyscan"):
            await connection.execute(f"SET {setting} = off".encode())
        scanned = await _p95_ms(lambda at, device: _ask(connection, AT, at, device), span)
        await connection.execute("RESET ALL")
        kept = await _p95_ms(lambda _at, _device: _ask(connection, BY_MONTH), span, 3)
        added = await _p95_ms(lambda _at, _device: _ask(connection, OF_RANGES), span, 3)
        steps = await _swept(connection, BEGIN + span / 4)
        at_once = await _deleted(connection, BEGIN + span / 2)
    label = f"history, {sizes.ranges:,} ranges"
    return [
        Figure(f"{label}, a row and its indexes", text, "bytes", "numbers for names", keyed, None),
        Figure(f"{label}, {days:,} day totals, a row", total, "bytes", "a range", text, None),
        Figure(f"{label}, one card at a moment, p95", looked_up, "ms", "a scan", scanned, None),
        Figure(f"{label}, all totals by month, p95", kept, "ms", "from the ranges", added, None),
        Figure(f"{label}, a quarter deleted by pages", sum(steps), "ms", "at once", at_once, None),
        Figure(f"{label}, longest transaction of that", max(steps), "ms", "at once", at_once, None),
    ]


def _ranges(count: int) -> Iterator[AllocationRange]:
    """Ranges of cards one after another, in the order of time."""
    random = Random(fleet.SEED)
    step = _span(count) / count
    whole = timedelta(days=1) / RANGES_A_DAY
    for number in range(count):
        card = number % (NODES * CARDS)
        node, namespace, pod = (
            f"gpu-node-{card // CARDS:03}",
            f"team-{random.randrange(NAMESPACES):02}",
            f"job-{number}",
        )
        device = f"GPU-{card:08x}-1d2c-4f6e-9a7b-{card:012x}"
        start = BEGIN + number * step
        yield AllocationRange(
            f"{node}/{namespace}/{pod}/main", f"{RESOURCE}/{device}", node, namespace, pod, "main", RESOURCE, device,
            None, None, None, None, start, start + random.random() * whole,
        )  # fmt: skip


def _span(count: int) -> timedelta:
    return timedelta(days=1) * count / (NODES * CARDS * RANGES_A_DAY)


async def _fill(connection: AsyncConnection, count: int) -> int:
    """Write the ranges and their day totals, as the fold does; returns how many totals there are."""
    rows, totals = RowStore(HISTORY, "gpuledger_live"), RowStore(DAY_TOTALS, "gpuledger_live")
    table, batch = Table(DAY_TOTALS), list[AllocationRange]()
    for row in _ranges(count):
        batch.append(row)
        assert row.valid_to is not None, "all have ended"
        names = (row.node, row.namespace, row.resource, row.driver, row.pool)
        for day, held, held_us in changes_of(row.valid_from, row.valid_to, 1):
            table.add(ContainerDay(day, holder_of(*names), *names, held, held_us))
        if len(batch) == WRITTEN_AT_ONCE:
            await _write(connection, rows, batch, totals, table)
            batch = []
    await _write(connection, rows, batch, totals, table)
    cursor = await connection.execute("SELECT count(*) FROM gpuledger_live.container_allocation_day")
    found = await cursor.fetchone()
    assert found is not None, "a count is one row"
    return int(found[0])


async def _write(
    connection: AsyncConnection,
    rows: RowStore[AllocationRange],
    batch: list[AllocationRange],
    totals: RowStore[ContainerDay],
    table: Table[ContainerDay],
) -> None:
    async with connection.transaction():
        await rows.write(connection, Changes(batch, [], []))
        await totals.write(connection, table.take_changes())


async def _swept(connection: AsyncConnection, begins: datetime) -> list[float]:
    """Delete what ended before a time, as the writer does; the milliseconds of each transaction."""
    store, state, taken = ProjectionStore(connection, AllocationsProjection()), Allocations(), list[float]()
    ours = await store.create(LedgerIdentity("bench", 1), "bench")
    state.history.shorten(begins)
    sweep = HistorySweep(store)
    while True:
        began = perf_counter()
        if not await sweep.step(state, ours):
            return taken
        taken.append((perf_counter() - began) * 1000)


async def _deleted(connection: AsyncConnection, begins: datetime) -> float:
    """Delete what ended before a time with one statement; milliseconds."""
    began = perf_counter()
    await RowStore(HISTORY, "gpuledger_live").delete_before(connection, begins)
    return (perf_counter() - began) * 1000


async def _bytes(connection: AsyncConnection, *tables: str) -> int:
    found = await (await connection.execute(BYTES, (list(tables),))).fetchone()
    assert found is not None, "a sum is one row"
    return int(found[0])


async def _ask(connection: AsyncConnection, statement: LiteralString, *about: object) -> None:
    await (await connection.execute(statement, about, prepare=False)).fetchall()  # a kept plan minds no setting


async def _p95_ms(ask: Callable[[datetime, str], Awaitable[None]], span: timedelta, times: int = ASKED) -> float:
    random, taken = Random(fleet.SEED), []
    for _ in range(times):
        card = random.randrange(NODES * CARDS)
        at = BEGIN + random.random() * span
        began = perf_counter()
        await ask(at, f"GPU-{card:08x}-1d2c-4f6e-9a7b-{card:012x}")
        taken.append(perf_counter() - began)
    return sorted(taken)[int(len(taken) * 0.95)] * 1000
