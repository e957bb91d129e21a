"""Tables by months on real servers: the writer makes them, they move with their table, and whole ones are dropped."""

from typing import Any

import psycopg
import pytest
from psycopg.sql import SQL, Identifier

from gpuledger.db.engine import connect
from gpuledger.domain.table import Changes
from gpuledger.domain.workloads.allocations import HISTORY as RANGES
from gpuledger.domain.workloads.allocations import AllocationRange
from gpuledger.events.envelope import Decoded
from gpuledger.events.history import HistoryShortened
from gpuledger.ledger.jetstream import JetStreamLedger
from gpuledger.projection import editions, history_sweep, whole_months
from gpuledger.projection.editions import drop_edition, move_edition
from gpuledger.projection.fold_snapshots.reader import FoldSnapshots
from gpuledger.projection.fold_snapshots.taking import Hearers, take_snapshots
from gpuledger.projection.fold_snapshots.writer import FoldSnapshotSettings
from gpuledger.projection.months import months_of
from gpuledger.projection.rebuild import rebuild, rollback, upgrade
from gpuledger.projection.replay import fold_until
from gpuledger.projection.rows import RowStore
from gpuledger.projection.store import ProjectionStore
from gpuledger.readmodels.projections import AllocationsProjection, AvailabilityProjection
from gpuledger.runtime.backoff import Backoff, Retries
from support.containers import ended, held
from support.dra_facts import MEMORY, allocated, device, fact_at, published, released
from support.events import event, hour, numbered
from support.fold_snapshots import MemoryObjects
from support.month_tables import BOTH, TABLE, at, catch_up, names, partitions, pods, sweep
from support.paths import ROOT
from support.projections import assert_true, execute, publish, table

NO_RETRY = Retries(Backoff(first_s=0.01, max_s=0.01))


class EarlierAllocations(AllocationsProjection):
    """The projection of the build before, which knows no months."""

    version = AllocationsProjection.version - 1
    specs = tuple(  # type: ignore[assignment]
        spec._replace(by_month=None, page_after=None) for spec in AllocationsProjection.specs
    )


def shortened(before: float, number: int = 1) -> Decoded:
    return event(HistoryShortened(before=hour(before)), TABLE, number=number, source="/operators/eva")


FACTS = [
    held(1, "always", at(2023, 1)),
    held(2, "old", at(2019, 5)),
    ended(3, "old", at(2019, 6)),
    *(
        made
        for number in range(20)
        for made in (
            held(4 + 2 * number, f"p{number}", at(2023, 1 + number % 4)),
            ended(5 + 2 * number, f"p{number}", at(2023, 1 + number % 4, 12)),
        )
    ),
]
"""Containers of four months, one of long before, and one that has its card still."""

NEXT = 44
"""The number of the agent's next event."""

MONTHS = [f"{TABLE}_2023_0{month}" for month in range(1, 5)] + [f"{TABLE}_before_2020"]


@pytest.fixture
async def filled(ledger: JetStreamLedger, url: str) -> JetStreamLedger:
    """A ledger whose rows are in months."""
    await publish(ledger, FACTS)
    await catch_up(ledger, url)
    return ledger


async def test_the_writer_makes_the_months_of_its_rows_with_key_indexes_and_settings(
    filled: JetStreamLedger, url: str
) -> None:
    assert names(url) == MONTHS
    assert pods(url, f"{TABLE}_before_2020") == ["old"]
    assert pods(url, f"{TABLE}_2023_02") == ["p1", "p13", "p17", "p5", "p9"]
    indexes = "SELECT count(*), bool_and(indisvalid) FROM pg_index WHERE indrelid = to_regclass(%s)"
    assert execute(url, indexes, f"gpuledger_live.{MONTHS[0]}") == execute(url, indexes, f"gpuledger_live.{TABLE}")
    ((options,),) = execute(url, "SELECT reloptions FROM pg_class WHERE relname = %s", MONTHS[0])
    assert "autovacuum_vacuum_insert_scale_factor=0.02" in options
    await publish(filled, [held(NEXT, "later", at(2023, 12, 31))])
    await catch_up(filled, url)
    assert names(url) == sorted([*MONTHS, f"{TABLE}_2023_12"])
    await assert_true(filled, url, BOTH)


async def test_a_new_month_waits_for_no_reader(filled: JetStreamLedger, url: str) -> None:
    with psycopg.connect(url) as reader:
        reader.execute(f"SELECT count(*) FROM gpuledger_live.{TABLE}".encode())
        await publish(filled, [held(NEXT, "later", at(2023, 6))])
        await catch_up(filled, url)
        assert f"{TABLE}_2023_06" in names(url)
        assert ("later",) in reader.execute(f"SELECT pod FROM gpuledger_live.{TABLE}".encode()).fetchall()


async def test_a_late_fact_changes_rows_of_other_months(filled: JetStreamLedger, url: str) -> None:
    await publish(filled, [ended(NEXT, "always", at(2023, 3)), held(NEXT + 1, "p1", at(2023, 1))])
    await catch_up(filled, url)
    assert ("p1",) in table(url, f"{TABLE}_2023_01", "pod")
    assert ("p1",) not in table(url, f"{TABLE}_2023_02", "pod"), "the earlier range has taken it in"
    await assert_true(filled, url, BOTH)


async def test_months_move_with_their_table_through_rebuilds_and_rollbacks(filled: JetStreamLedger, url: str) -> None:
    projection = AllocationsProjection()
    await rebuild(projection, filled, url)
    assert partitions(url) == [("gpuledger_live", name) for name in MONTHS]
    assert partitions(url, "gpuledger_prev") == [("gpuledger_prev", name) for name in MONTHS]
    await publish(filled, [held(NEXT, "later", at(2023, 12))])
    await catch_up(filled, url)
    await rollback(projection, url)
    assert partitions(url) == [("gpuledger_live", name) for name in MONTHS]
    assert len(partitions(url, "gpuledger_prev")) == len(MONTHS) + 1
    await catch_up(filled, url)
    await assert_true(filled, url, BOTH)
    await rebuild(projection, filled, url)
    await rebuild(projection, filled, url)
    assert execute(url, "SELECT relname FROM pg_class WHERE relnamespace = 'gpuledger_next'::regnamespace") == []
    await assert_true(filled, url, BOTH)


async def test_a_build_without_months_begins_and_its_rows_are_built_by_months_beside(
    ledger: JetStreamLedger, url: str
) -> None:
    await publish(ledger, FACTS)
    await catch_up(ledger, url, [EarlierAllocations()])
    assert names(url) == [f"{TABLE}_any_month"]
    await assert_true(ledger, url, [EarlierAllocations()])
    assert await upgrade(AllocationsProjection(), ledger, url, blocked=NO_RETRY)
    assert names(url) == MONTHS
    await catch_up(ledger, url)
    await assert_true(ledger, url, BOTH)


async def test_the_build_before_goes_back_and_forth_with_its_own_commands(
    filled: JetStreamLedger, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It moves tables by their names alone, and makes plain ones like those that it finds."""
    earlier = EarlierAllocations()

    async def move_alone(connection: psycopg.AsyncConnection[Any], name: str, before: str, after: str) -> None:
        move = SQL("ALTER TABLE {} SET SCHEMA {}").format(Identifier(before, name), Identifier(after))
        await connection.execute(move)

    with monkeypatch.context() as as_before:
        as_before.setattr(editions, "move_table", move_alone)
        await rebuild(earlier, filled, url)  # without rows of its own, a roll back begins with this
    assert partitions(url) == []
    assert {schema for schema, _ in partitions(url, "gpuledger_prev")} == {"gpuledger_live"}
    await publish(filled, [held(NEXT, "later", at(2023, 12)), ended(NEXT + 1, "always", at(2023, 12))])
    await catch_up(filled, url, [earlier])
    await assert_true(filled, url, [earlier])
    assert await upgrade(AllocationsProjection(), filled, url, blocked=NO_RETRY)
    assert partitions(url) == [("gpuledger_live", name) for name in sorted([*MONTHS, f"{TABLE}_2023_12"])]
    await assert_true(filled, url, [AllocationsProjection()])
    with monkeypatch.context() as as_before:
        as_before.setattr(editions, "move_table", move_alone)
        await rollback(earlier, url)
    await publish(filled, [ended(NEXT + 2, "later", at(2023, 12, 12))])
    await catch_up(filled, url, [earlier])
    await assert_true(filled, url, [earlier])
    await rollback(AllocationsProjection(), url)  # a newer build once more, whose months are beside the wrong table
    await catch_up(filled, url)
    await assert_true(filled, url, BOTH)
    await rebuild(AllocationsProjection(), filled, url)
    await assert_true(filled, url, BOTH)


async def test_a_view_on_one_month_follows_it_where_the_other_rows_have_that_month(
    filled: JetStreamLedger, url: str
) -> None:
    projection = AllocationsProjection()
    execute(url, f"CREATE VIEW public.first AS SELECT pod FROM gpuledger_live.{MONTHS[0]}")
    await rebuild(projection, filled, url)
    assert len(execute(url, "SELECT pod FROM public.first")) == 6
    await publish(filled, [held(NEXT, "later", at(2023, 12))])
    await catch_up(filled, url)
    execute(url, f"CREATE VIEW public.last AS SELECT pod FROM gpuledger_live.{TABLE}_2023_12")
    await rollback(projection, url)  # to rows that have no such month yet
    assert len(execute(url, "SELECT pod FROM public.first")) == 6
    ((lost, reason),) = execute(url, "SELECT name, reason FROM gpuledger.lost_view")
    assert lost == "public.last"
    assert "_2023_12" in reason


async def test_a_swap_takes_as_many_locks_a_month_as_the_page_says(filled: JetStreamLedger, url: str) -> None:
    held_locks = "SELECT count(*) FROM pg_locks WHERE pid = pg_backend_pid() AND locktype = 'relation'"
    counts = list[int]()
    for more in ([], [held(NEXT, "later", at(2023, 12))]):
        await publish(filled, [*more, ended(NEXT + 1 + len(more), "none", at(2023, 12))])
        await catch_up(filled, url)
        async with connect(url, application_name="test") as connection, connection.transaction(force_rollback=True):
            await move_edition(connection, AllocationsProjection(), "live", "next")
            await drop_edition(connection, AllocationsProjection(), "next")
            found = await (await connection.execute(held_locks)).fetchone()
            assert found is not None
            counts.append(found[0])
    assert 1 <= counts[1] - counts[0] <= 8


async def test_the_page_shows_the_months_of_a_table(filled: JetStreamLedger, url: str) -> None:
    section = (ROOT / "docs" / "operations.md").read_text().split("## Histories by month")[1].split("\n## ")[0]
    (query,) = (block.split("```")[0] for block in section.split("```sql\n")[1:])
    assert [month for month, _ in execute(url, query)] == [f"gpuledger_live.{name}" for name in MONTHS]


async def test_a_month_of_a_write_that_was_rolled_back_is_made_again(url: str) -> None:
    rows, row = RowStore(RANGES, "gpuledger_live"), range_of("late")
    assert rows.months is not None
    async with connect(url, application_name="test") as connection:
        async with connection.transaction(force_rollback=True):
            await rows.write(connection, Changes([row], [], []))
        rows.months.forget()
        async with connection.transaction():
            await rows.write(connection, Changes([row], [], []))
    assert pods(url, MONTHS[0]) == ["late"]


async def test_a_rebuild_from_a_snapshot_fills_months(filled: JetStreamLedger, url: str) -> None:
    projection, snapshots = AllocationsProjection(), FoldSnapshots(MemoryObjects(), filled, pytest.fail)
    settings = FoldSnapshotSettings(events_min=10, rows_per_event=100)
    hearers = Hearers(lambda _: None, lambda error: pytest.fail(str(error)))
    await take_snapshots([projection], filled, snapshots, hearers, settings=settings, also_last=True)
    indexes = (
        "SELECT indexrelid::regclass::text, indisvalid FROM pg_index JOIN pg_class ON pg_class.oid = indrelid "
        "WHERE relnamespace = 'gpuledger_live'::regnamespace AND starts_with(relname, %s) ORDER BY 1"
    )
    before = execute(url, indexes, TABLE)
    await rebuild(projection, filled, url, snapshots=snapshots)
    assert names(url) == MONTHS
    assert execute(url, indexes, TABLE) == before
    await assert_true(filled, url, BOTH)
    await publish(filled, [ended(NEXT, "always", at(2023, 8)), held(NEXT + 1, "later", at(2023, 9))])
    await catch_up(filled, url)
    await assert_true(filled, url, BOTH)


@pytest.mark.parametrize("pages", [1, history_sweep.PAGES_PER_STEP])
async def test_months_that_lie_before_a_bound_are_dropped_and_what_is_open_stays(
    filled: JetStreamLedger, url: str, monkeypatch: pytest.MonkeyPatch, pages: int
) -> None:
    monkeypatch.setattr(history_sweep, "PAGES_PER_STEP", pages)
    totals = table(url, "container_allocation_day")
    numbers = dict(execute(url, "SELECT relname, relfilenode FROM pg_class WHERE relname = ANY(%s)", MONTHS))
    await publish(filled, [shortened(at(2023, 3, 11))])
    await catch_up(filled, url)
    await sweep(filled, url)
    assert names(url) == [MONTHS[0], *MONTHS[2:4]], "the first month has one that is open, and the third ended later"
    assert pods(url, MONTHS[0]) == ["always"]
    after = dict(execute(url, "SELECT relname, relfilenode FROM pg_class WHERE relname = ANY(%s)", MONTHS))
    assert after[MONTHS[0]] != numbers[MONTHS[0]], "it was written anew"
    assert after[MONTHS[2]] == numbers[MONTHS[2]]
    assert table(url, "container_allocation_day") == totals
    await assert_true(filled, url, BOTH)
    await publish(filled, [ended(NEXT, "always", at(2023, 5)), held(NEXT + 1, "later", at(2023, 5))])
    await catch_up(filled, url)
    await assert_true(filled, url, BOTH)


async def test_a_month_that_somebody_reads_loses_its_rows_one_by_one(
    filled: JetStreamLedger, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(whole_months, "LOCK_WAIT_MAX_S", 0.01)
    await publish(filled, [shortened(at(2023, 4, 1))])
    with psycopg.connect(url) as reader:
        reader.execute(f"SELECT count(*) FROM gpuledger_live.{TABLE}".encode())
        await catch_up(filled, url)
        await sweep(filled, url)
        assert names(url) == MONTHS
        assert pods(url) == sorted(["always", *(f"p{number}" for number in range(3, 20, 4))])
        await assert_true(filled, url, BOTH)


async def test_a_month_with_a_view_on_it_or_too_many_rows_to_keep_loses_them_one_by_one(
    filled: JetStreamLedger, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(whole_months, "KEPT_ROWS_MAX", 0)
    execute(url, f"CREATE VIEW public.february AS SELECT pod FROM gpuledger_live.{MONTHS[1]}")
    await publish(filled, [shortened(at(2023, 4, 1))])
    await catch_up(filled, url)
    await sweep(filled, url)
    assert names(url) == [*MONTHS[:2], MONTHS[3]]
    assert pods(url, MONTHS[0]) == ["always"]
    assert execute(url, "SELECT count(*) FROM public.february") == [(0,)]
    await assert_true(filled, url, BOTH)


async def test_what_is_written_to_a_month_while_it_is_looked_at_is_kept(
    filled: JetStreamLedger, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between two looks at a month the writer writes to it, as of a fact that comes late."""
    monkeypatch.setattr(history_sweep, "PAGES_PER_STEP", 1)
    projection = AllocationsProjection()
    await publish(filled, [shortened(at(2023, 4, 1))])
    fold = await fold_until(projection, filled)
    async with connect(url, application_name="test") as connection:
        store = ProjectionStore(connection, projection)
        ours = await store.checkpoint()
        assert ours is not None
        rows, months = RowStore(RANGES, "gpuledger_live"), store.months(TABLE)
        assert months is not None
        assert rows.months is not None
        await months.make(connection, ())
        many = [range_of(f"more-{number}")._replace(valid_to=hour(at(2023, 2))) for number in range(200)]
        async with connection.transaction():
            await rows.write(connection, Changes(many, [], []))
        sweep = history_sweep.HistorySweep(store)
        await sweep.step(fold.state, ours)
        late = [range_of(f"late-{number:03}") for number in range(200)]  # many, so that most are on further pages
        async with connection.transaction():
            await rows.write(connection, Changes(late, [], []))
        months.written |= rows.months.written
        while await sweep.step(fold.state, ours):
            pass
        assert MONTHS[1] not in names(url)
        await months.make(connection, months_of([hour(at(2023, 2))]))
        assert MONTHS[1] in names(url), "a claim of then may still come, which holds its device to this day"
    assert pods(url, MONTHS[0]) == ["always", *(row.pod for row in late)]


def range_of(pod: str) -> AllocationRange:
    """A range of the first month that has not ended."""
    names = (f"n1/ns/{pod}/c", f"r/GPU-{pod}", "n1", "ns", pod, "c", "r", f"GPU-{pod}", None, None, None, None)
    return AllocationRange(*names, hour(at(2023, 1)), None)


CLAIMS = [
    fact_at(0, "s1", published("n1", [device("a"), device("m", memory="40Gi")], node="n1")),
    fact_at(1, "ann/always", allocated(("n1", "m", "x"), consumed={MEMORY: "10Gi"})),
    fact_at(24 * 5, "ann/one", allocated(("n1", "a", None))),
    fact_at(24 * 6, "ann/one", released()),
    fact_at(24 * 40, "ann/two", allocated(("n1", "a", None))),
    fact_at(24 * 41, "ann/two", released()),
]
"""A claim of January and one of February, and one that holds a share all the while."""


async def test_what_claims_hold_and_what_pools_have_left_is_by_month(ledger: JetStreamLedger, url: str) -> None:
    projection = AvailabilityProjection()
    await publish(ledger, numbered(CLAIMS))
    await catch_up(ledger, url, [projection])
    for name in ("device_allocation", "pool_availability"):
        months = execute(
            url, f"SELECT tableoid::regclass::text, count(*) FROM gpuledger_live.{name} GROUP BY 1 ORDER BY 1"
        )
        assert [month for month, _ in months] == [f"gpuledger_live.{name}_2026_0{number}" for number in (1, 2)]
    await assert_true(ledger, url, [projection])
    for shortened_name in ("device_allocation", "pool_availability"):
        bound = HistoryShortened(before=hour(24 * 31))
        await publish(ledger, [event(bound, shortened_name, number=1, source=f"/operators/{shortened_name}")])
    await rebuild(projection, ledger, url)

    await sweep(ledger, url, projection, "device_allocation", "pool_availability")
    assert table(url, "device_allocation", "claim") == [("ann/always",), ("ann/two",)]
    assert execute(url, "SELECT min(valid_to) FROM gpuledger_live.pool_availability") == [(hour(24 * 40),)]
    await assert_true(ledger, url, [projection])
