"""A history that an operator shortened, on real servers: rows go, nothing else changes, and everybody agrees."""

import asyncio
from collections.abc import Callable, Sequence

import pytest

from gpuledger.db.engine import connect
from gpuledger.deciders.sources.projection import SourcesProjection
from gpuledger.domain.histories import CONTAINER_ALLOCATIONS
from gpuledger.events.envelope import Decoded
from gpuledger.events.history import HistoryShortened
from gpuledger.events.position import is_origin, number_of
from gpuledger.ledger.jetstream import JetStreamLedger
from gpuledger.projection import history_sweep
from gpuledger.projection.errors import WriterFencedError
from gpuledger.projection.fold_snapshots.reader import FoldSnapshots
from gpuledger.projection.fold_snapshots.taking import Hearers, take_snapshots
from gpuledger.projection.fold_snapshots.writer import FoldSnapshotSettings
from gpuledger.projection.history_sweep import HistorySweep
from gpuledger.projection.rebuild import rebuild, rollback
from gpuledger.projection.replay import fold_until
from gpuledger.projection.runner import Runner
from gpuledger.projection.store import ProjectionStore
from gpuledger.readmodels.projections import AllocationsProjection
from support.containers import ended, held
from support.events import AGENT, event, hour
from support.fold_snapshots import MemoryObjects
from support.projections import QUICK, QUICK_SERVICE, assert_true, execute, publish, running, table
from support.waiting import eventually

BOTH = [AllocationsProjection(), SourcesProjection()]
HISTORY, REPORTS = CONTAINER_ALLOCATIONS.name, "container_allocation_report"
LONG_AGO = -24 * 365
"""Hours before the start of all tests; whatever the date is, it was long ago."""

CONTAINERS = 400
"""Enough for several pages."""


def facts() -> list[Decoded]:
    """Containers that have a card for an hour, one after the other, and one that has one throughout."""
    found = [held(1, "always", LONG_AGO)]
    for number in range(CONTAINERS):
        found.append(held(2 * number + 2, f"p{number}", LONG_AGO + number))
        found.append(ended(2 * number + 3, f"p{number}", LONG_AGO + number + 1))
    return found


NEXT = 2 * CONTAINERS + 2
"""The number of the agent's next event."""


def shortened(at: float, number: int = 1) -> Decoded:
    return event(HistoryShortened(before=hour(LONG_AGO + at)), HISTORY, number=number, source="/operators/eva")


def kept(url: str) -> list[str]:
    """The pods whose ranges are stored."""
    return sorted(pod for (pod,) in table(url, HISTORY, "pod"))


def swept(url: str, name: str = HISTORY) -> bool:
    """Whether a pass through a table is over."""
    ((comment,),) = execute(url, "SELECT obj_description(to_regclass(%s), 'pg_class')", f"gpuledger_live.{name}")
    return comment is not None


async def until(condition: Callable[[], bool]) -> None:
    async def holds() -> bool:
        return await asyncio.to_thread(condition)  # a month that is dropped beside it is locked

    await eventually(holds)


async def catch_up(ledger: JetStreamLedger, url: str) -> None:
    for projection in BOTH:
        await Runner(projection, ledger, url, settings=QUICK).catch_up(await ledger.head())


@pytest.fixture
def small_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """A step looks at one page."""
    monkeypatch.setattr(history_sweep, "PAGES_PER_STEP", 1)


async def test_what_ended_before_goes_and_day_totals_stay(ledger: JetStreamLedger, url: str) -> None:
    await publish(ledger, facts())
    await catch_up(ledger, url)
    assert len(kept(url)) == CONTAINERS + 1
    totals = table(url, "container_allocation_day")
    await publish(ledger, [shortened(300)])
    await catch_up(ledger, url)
    async with running(Runner(AllocationsProjection(), ledger, url, settings=QUICK)):
        await until(lambda: swept(url) and swept(url, REPORTS))
    expected = sorted(["always", *(f"p{number}" for number in range(299, CONTAINERS))])
    assert kept(url) == expected, "p299 ended at the bound itself"
    assert len(table(url, REPORTS)) == 2 * (CONTAINERS - 299) + 1
    assert table(url, "container_allocation_day") == totals
    assert table(url, "container_allocation", "pod") == [("always",)]
    await assert_true(ledger, url, BOTH)


async def test_a_late_fact_of_before_is_refused_with_its_reason(ledger: JetStreamLedger, url: str) -> None:
    await publish(ledger, [*facts(), shortened(300)])
    await catch_up(ledger, url)
    before = table(url, "container_allocation_day"), table(url, "container_allocation")
    late = await publish(ledger, [held(NEXT, "late", LONG_AGO + 299.5), held(NEXT + 1, "in-time", LONG_AGO + 300)])
    await catch_up(ledger, url)
    ((position, reason),) = table(url, "rejection", "position, reason")
    assert position == late - 1
    assert reason.startswith("It happened at ")
    assert "an operator has shortened the history" in reason
    assert table(url, "container_allocation", "pod") == [("always",), ("in-time",)]
    assert [row for row in table(url, "container_allocation") if row in before[1]] == before[1]
    assert dict(table(url, "source", "source, missing"))[AGENT] == 0, "its number counts"
    await assert_true(ledger, url, BOTH)


@pytest.mark.usefixtures("small_steps")
async def test_rows_are_right_in_the_midst_of_a_pass_and_another_process_ends_it(
    ledger: JetStreamLedger, url: str
) -> None:
    await publish(ledger, facts())
    await catch_up(ledger, url)
    await publish(ledger, [shortened(399)])
    await catch_up(ledger, url)
    assert not swept(url)
    assert 2 < len(kept(url)) < CONTAINERS + 1, "one page is done"
    await assert_true(ledger, url, BOTH)
    async with running(Runner(AllocationsProjection(), ledger, url, settings=QUICK)):
        await until(lambda: swept(url) and swept(url, REPORTS))
    assert kept(url) == ["always", "p398", "p399"]
    await assert_true(ledger, url, BOTH)


async def test_a_later_bound_takes_more_and_an_earlier_one_nothing(ledger: JetStreamLedger, url: str) -> None:
    await publish(ledger, facts())
    await catch_up(ledger, url)
    await publish(ledger, [shortened(300)])
    await catch_up(ledger, url)
    await publish(ledger, [shortened(100, 2)])
    await catch_up(ledger, url)
    assert len(kept(url)) == CONTAINERS + 1 - 299
    async with running(Runner(AllocationsProjection(), ledger, url, settings=QUICK)):
        await publish(ledger, [shortened(350, 3)])
        await until(lambda: len(kept(url)) == CONTAINERS + 1 - 349)
    await assert_true(ledger, url, BOTH)


async def test_a_rebuild_and_a_rollback_bring_nothing_back(ledger: JetStreamLedger, url: str) -> None:
    projection = AllocationsProjection()
    await publish(ledger, facts())
    await catch_up(ledger, url)
    await rebuild(projection, ledger, url)  # the rows of before are `prev` now, and were not shortened
    await publish(ledger, [shortened(300)])
    await catch_up(ledger, url)
    expected = kept(url)
    await rollback(projection, url)
    await assert_true(ledger, url, [projection])
    assert len(kept(url)) == CONTAINERS + 1, "as of before"
    await catch_up(ledger, url)
    async with running(Runner(projection, ledger, url, settings=QUICK)):
        await until(lambda: kept(url) == expected)
    await rebuild(projection, ledger, url)
    await assert_true(ledger, url, BOTH)
    async with running(Runner(projection, ledger, url, settings=QUICK)):
        await until(lambda: kept(url) == expected and swept(url))
    await assert_true(ledger, url, BOTH)


@pytest.mark.parametrize("is_before", [True, False], ids=["before the bound", "behind it"])
async def test_a_rebuild_from_a_snapshot_brings_nothing_back(
    ledger: JetStreamLedger, url: str, *, is_before: bool
) -> None:
    """Snapshots still have what retired before the bound."""
    projection, snapshots = AllocationsProjection(), FoldSnapshots(MemoryObjects(), ledger, pytest.fail)
    await publish(ledger, facts())
    if is_before:
        await take(ledger, snapshots)
    await publish(ledger, [shortened(300)])
    await catch_up(ledger, url)
    if not is_before:
        await take(ledger, snapshots)
    result = await rebuild(projection, ledger, url, snapshots=snapshots)
    assert not is_origin(result.since)
    await assert_true(ledger, url, BOTH)
    async with running(Runner(projection, ledger, url, settings=QUICK)):
        await until(lambda: swept(url) and swept(url, REPORTS))
    assert len(kept(url)) == CONTAINERS + 1 - 299
    await assert_true(ledger, url, BOTH)


async def take(ledger: JetStreamLedger, snapshots: FoldSnapshots) -> None:
    """Take snapshots on the way to the head of the log."""
    settings = FoldSnapshotSettings(events_min=CONTAINERS // 2, rows_per_event=CONTAINERS)
    hearers = Hearers(lambda _: None, lambda error: pytest.fail(str(error)))
    await take_snapshots([AllocationsProjection()], ledger, snapshots, hearers, settings=settings, also_last=True)


async def test_who_was_fenced_deletes_nothing(ledger: JetStreamLedger, url: str) -> None:
    """The rows that took the place of its own may not know of the bound yet."""
    projection = AllocationsProjection()
    await publish(ledger, facts())
    await catch_up(ledger, url)
    async with connect(url, application_name="test") as connection:
        store = ProjectionStore(connection, projection)
        ours = await store.checkpoint()
        assert ours is not None
        await rebuild(projection, ledger, url)
        await publish(ledger, [shortened(300)])
        fold = await fold_until(projection, ledger)
        with pytest.raises(WriterFencedError):
            await HistorySweep(store).step(fold.state, ours)
    assert len(kept(url)) == CONTAINERS + 1


async def test_a_bound_that_leaves_too_little_is_cut_where_it_is_folded(ledger: JetStreamLedger, url: str) -> None:
    """The command refuses it; should somebody record it all the same, agents can still report of the last month."""
    await publish(ledger, [held(1, "always", LONG_AGO), shortened(24 * 365 * 1_000)])
    await catch_up(ledger, url)
    rows: Sequence[tuple[int, int]] = execute(
        url,
        "SELECT version, extract(epoch FROM now() - interval '31 days')::bigint FROM gpuledger.enforced_rule "
        "WHERE rule = 'history/container_allocation_history' AND projection = 'allocations'",
    )
    ((version, latest),) = rows
    assert version <= latest


async def test_a_service_follows_rules_and_bounds_alike(ledger: JetStreamLedger, url: str) -> None:
    head = number_of(await ledger.head())
    await publish(ledger, facts())
    async with running(Runner(SourcesProjection(), ledger, url, settings=QUICK_SERVICE)):
        await until(lambda: bool(execute(url, "SELECT 1 FROM gpuledger.enforced_rule WHERE rule = 'bounds'")))
    await publish(
        ledger, [shortened(300), ended(NEXT, "always", LONG_AGO + 299), ended(NEXT + 1, "always", LONG_AGO + 399)]
    )
    await catch_up(ledger, url)
    assert table(url, "container_allocation") == []
    assert len(table(url, "rejection")) == 1
    assert number_of(await ledger.head()) > head
    await assert_true(ledger, url, BOTH)
