"""Rebuilding beside live rows: the new rows are those of the log, nobody sees the swap, cancelling leaves nothing."""

import asyncio
from datetime import timedelta
from typing import Any

import psycopg
import pytest

from gpuledger.db.views import recreate_views_async
from gpuledger.deciders.sources.decide import GAP_GRACE_S
from gpuledger.deciders.sources.projection import SourcesProjection
from gpuledger.events.device import DeviceFailed, DeviceInserted, DeviceRemoved
from gpuledger.events.envelope import Decoded, encode
from gpuledger.events.position import number_of
from gpuledger.events.slot import SlotDeclared
from gpuledger.events.workload import WorkloadEnded, WorkloadScheduled, WorkloadSubmitted
from gpuledger.ledger.jetstream import JetStreamLedger
from gpuledger.projection import replay
from gpuledger.projection.definition import Projection
from gpuledger.projection.errors import BadEventError, NothingToRollBackError, RebuildBusyError
from gpuledger.projection.fold import Fold
from gpuledger.projection.rebuild import rebuild, rollback
from gpuledger.projection.runner import Runner
from gpuledger.readmodels.projections import DevicesProjection
from gpuledger.runtime.clock import system_clock
from gpuledger.tools.queries.backend import all_projections
from support.events import AGENT, SERVICE, event, outgoing
from support.fold_memory import events_kept
from support.ledgers import everything
from support.projections import QUICK, assert_true, checkpoint, execute, publish, reaches, running, table
from support.rebuilds import cut_rebuilds, leftovers
from support.waiting import eventually

projections = pytest.mark.parametrize("projection", all_projections(), ids=lambda one: one.name)

OF_A_KIND = ("devices", "pools", "sources")
"""A read model, a decider with many tables, and one that decides about every event: what rows they have changes nothing
in how a rebuild goes on beside others; `make test-long` has the rest."""

one_of_a_kind = pytest.mark.parametrize(
    "projection",
    [
        pytest.param(one, id=one.name, marks=[] if one.name in OF_A_KIND else pytest.mark.long)
        for one in all_projections()
    ],
)


def history(first: int, last: int) -> list[Decoded]:
    """Some of everything, numbered from `first` to `last`, with a number missing in every hundred."""
    return [_numbered_event(number) for number in range(first, last + 1) if number % 100 != 50]


def _numbered_event(number: int) -> Decoded:
    device, slot, workload = f"d{number % 11}", f"s{number % 13}", f"w{number % 17}"
    data, subject = [
        (DeviceInserted(slot=slot), device),
        (DeviceRemoved(slot=slot), device),
        (DeviceFailed(kind="DBE"), device),
        (SlotDeclared(node=f"n{number % 3}"), slot),
        (WorkloadSubmitted(gpu_milli=number), workload),
        (WorkloadScheduled(gpu_milli=number), workload),
        (WorkloadEnded(), workload),
    ][number % 7]
    return event(data, subject, number=number, at=number, source=AGENT)


async def spoil(ledger: JetStreamLedger, number: int) -> int:
    """Record an event that is turned down."""
    broken = event(DeviceFailed(kind="?"), "d1", number=number, source=AGENT)
    receipt = await ledger.publish(outgoing(broken)._replace(data=encode(broken).replace(b'"?"', b'""')))
    return number_of(receipt.sequence)


@projections
async def test_a_rebuild_equals_the_live_rows(ledger: JetStreamLedger, url: str, projection: Projection) -> None:
    await publish(ledger, history(1, 300))
    head = await spoil(ledger, 301)
    await Runner(projection, ledger, url, settings=QUICK).catch_up(head)
    before = {spec.name: table(url, spec.name) for spec in projection.specs}
    progress: list[tuple[int, int]] = []
    result = await rebuild(projection, ledger, url, on_progress=lambda done, total: progress.append((done, total)))
    assert {spec.name: table(url, spec.name) for spec in projection.specs} == before
    assert result.checkpoint == await checkpoint(url, projection.name)
    assert progress[-1] == (head, head)
    assert not leftovers(url)
    await assert_true(ledger, url, [projection])


@projections
async def test_what_was_never_built_is_built(ledger: JetStreamLedger, url: str, projection: Projection) -> None:
    await publish(ledger, history(1, 300))
    bad = await spoil(ledger, 301)
    result = await rebuild(projection, ledger, url)
    assert result.checkpoint.position == bad
    await assert_true(ledger, url, [projection])
    async with running(Runner(projection, ledger, url, settings=QUICK)):
        head = await publish(ledger, history(302, 310))
        await reaches(url, projection.name, head + answers(projection))
    await assert_true(ledger, url, [projection])
    if answers(projection):
        messages = [one for one in await everything(ledger) if one.subject.startswith("ledger.svc.sources.")]
        assert len(messages) == 1


def answers(projection: Projection) -> int:
    """How many events a projection publishes about an event that is none."""
    return int(isinstance(projection, SourcesProjection))


@one_of_a_kind
async def test_a_live_runner_goes_on_through_a_rebuild(
    ledger: JetStreamLedger, url: str, projection: Projection
) -> None:
    async with running(Runner(projection, ledger, url, settings=QUICK)) as (task,):
        await reaches(url, projection.name, await publish(ledger, history(1, 200)))
        publishing = asyncio.create_task(_publish_slowly(ledger))
        for _ in range(3):
            await rebuild(projection, ledger, url)
        await publishing
        await reaches(url, projection.name, await publish(ledger, history(1201, 1300)))
        assert not task.done()
    assert not leftovers(url)
    await assert_true(ledger, url, [projection])


async def _publish_slowly(ledger: JetStreamLedger) -> None:
    for number in range(201, 1201, 10):
        await publish(ledger, history(number, number + 9))


async def test_a_rebuild_keeps_no_decision_that_came_back(
    ledger: JetStreamLedger, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    projection, folds, kept = SourcesProjection(), [], []

    async def new_fold(projection: Projection, ledger: JetStreamLedger) -> Fold:
        folds.append(await replay.new_fold(projection, ledger))
        return folds[-1]

    bad = 50
    for number in range(1, bad + 1):
        await spoil(ledger, number)
    async with running(Runner(projection, ledger, url, settings=QUICK)):
        await reaches(url, projection.name, 2 * bad)
    monkeypatch.setattr("gpuledger.projection.rebuild.new_fold", new_fold)
    monkeypatch.setattr("gpuledger.projection.rebuild.CHANGED_ROWS_MAX", 10**9)
    await rebuild(projection, ledger, url, on_progress=lambda *_: kept.append(events_kept(folds[0])))
    assert kept[-1] == 0
    await assert_true(ledger, url, [projection])


async def test_the_sources_service_decides_once_through_rebuilds(ledger: JetStreamLedger, url: str) -> None:
    projection, ahead = SourcesProjection(), timedelta(seconds=GAP_GRACE_S + 60)
    runner = Runner(projection, ledger, url, settings=QUICK, clock=lambda: system_clock() + ahead)
    async with running(runner):
        await reaches(url, "sources", 0)  # a rebuild that a service begins beside is refused, which another test shows
        for number in range(1, 1001, 100):
            await publish(ledger, history(number, number + 98))
            await spoil(ledger, number + 99)
            await rebuild(projection, ledger, url)
        await reaches(url, "sources", 10 * 98 + 10 + 10 + 10)
        for number in range(50, 1001, 100):
            await publish(ledger, [_numbered_event(number)])
            await rebuild(projection, ledger, url)
        head = 10 * 98 + 10 + 10 + 10 + 10 + 10
        await reaches(url, "sources", head)
        assert await ledger.head() == head
    counted = (
        "SELECT source, sum(events), sum(duplicates), sum(missing) FROM gpuledger_live.source GROUP BY 1 ORDER BY 1"
    )
    assert execute(url, counted) == [(AGENT, 1000, 0, 0), ("/services/sources", 30, 0, 0)]
    assert not execute(url, "SELECT * FROM gpuledger.outbox WHERE projection = 'sources'")
    await assert_true(ledger, url, [projection])


async def test_a_writer_that_would_begin_waits_for_a_rebuild_that_ends(
    ledger: JetStreamLedger, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    head = await publish(ledger, history(1, 120))
    begun: list[asyncio.Task[bool]] = []

    async def meanwhile(connection: psycopg.AsyncConnection[Any]) -> None:
        begun.append(asyncio.create_task(Runner(SourcesProjection(), ledger, url).catch_up(head)))
        await eventually(lambda: _is_waited_for(url))
        await recreate_views_async(connection)

    monkeypatch.setattr("gpuledger.projection.rebuild.recreate_views_async", meanwhile)
    await rebuild(SourcesProjection(), ledger, url)
    assert await begun[0]
    await assert_true(ledger, url, [SourcesProjection()])


async def _is_waited_for(url: str) -> bool:
    waits = "SELECT 1 FROM pg_locks JOIN pg_database AS d ON d.oid = database "
    return bool(execute(url, waits + "WHERE locktype = 'advisory' AND NOT granted AND datname = current_database()"))


async def test_a_rebuild_beside_another_is_refused(ledger: JetStreamLedger, url: str) -> None:
    projection, on_its_way = DevicesProjection(), asyncio.Event()
    await Runner(projection, ledger, url).catch_up(await publish(ledger, history(1, 100)))
    async with await psycopg.AsyncConnection.connect(url) as holding:
        await holding.execute("SELECT * FROM gpuledger.projection WHERE edition = 'live' FOR UPDATE")
        task = asyncio.create_task(rebuild(projection, ledger, url, on_progress=lambda *_: on_its_way.set()))
        await on_its_way.wait()
        with pytest.raises(RebuildBusyError, match="wait for it or cancel it"):
            await rebuild(projection, ledger, url)
        with pytest.raises(RebuildBusyError):
            await rollback(projection, url)
        await holding.rollback()
        await task
    await assert_true(ledger, url, [projection])


async def cancelled_on_its_way(projection: Projection, ledger: JetStreamLedger, url: str) -> None:
    """Begin a rebuild, and cancel it when it has begun to fold."""
    tasks: list[asyncio.Task[object]] = []

    def cancel(_done: int, _total: int) -> None:
        tasks[0].cancel()

    tasks.append(asyncio.create_task(rebuild(projection, ledger, url, on_progress=cancel)))
    with pytest.raises(asyncio.CancelledError):
        await tasks[0]


@one_of_a_kind
async def test_a_cancelled_rebuild_leaves_nothing(ledger: JetStreamLedger, url: str, projection: Projection) -> None:
    head = await publish(ledger, history(1, 300))
    await Runner(projection, ledger, url, settings=QUICK).catch_up(head)
    before = await checkpoint(url, projection.name)
    await cancelled_on_its_way(projection, ledger, url)
    assert not leftovers(url)
    assert await checkpoint(url, projection.name) == before
    await assert_true(ledger, url, [projection])
    await rebuild(projection, ledger, url)
    await assert_true(ledger, url, [projection])


async def test_a_rebuild_whose_session_dies_leaves_nothing(ledger: JetStreamLedger, url: str) -> None:
    projection = DevicesProjection()
    await Runner(projection, ledger, url).catch_up(await publish(ledger, history(1, 300)))

    with pytest.raises(Exception, match="PostgreSQL"):
        await rebuild(projection, ledger, url, on_progress=lambda *_: cut_rebuilds(url))
    assert not leftovers(url)
    await assert_true(ledger, url, [projection])


async def test_a_rebuild_whose_session_died_leaves_the_tables_of_the_next_one(
    ledger: JetStreamLedger, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    projection, goes_on, begun = DevicesProjection(), [asyncio.Event(), asyncio.Event()], 0
    await Runner(projection, ledger, url).catch_up(await publish(ledger, history(1, 300)))

    async def new_fold(projection: Projection, ledger: JetStreamLedger) -> Fold:
        nonlocal begun
        begun += 1
        await goes_on[begun - 1].wait()
        return await replay.new_fold(projection, ledger)

    async def has_begun(count: int, sessions: int) -> bool:
        name = "application_name LIKE 'gpuledger rebuild%%' AND datname = current_database()"
        return begun == count and len(execute(url, f"SELECT 1 FROM pg_stat_activity WHERE {name}")) == sessions

    monkeypatch.setattr("gpuledger.projection.rebuild.new_fold", new_fold)
    monkeypatch.setattr("gpuledger.projection.rebuild.CLEAN_UP_WAIT_MAX_S", 0.1)
    first = asyncio.create_task(rebuild(projection, ledger, url))
    await eventually(lambda: has_begun(1, 1))
    cut_rebuilds(url)
    await eventually(lambda: has_begun(1, 0))
    second = asyncio.create_task(rebuild(projection, ledger, url))
    await eventually(lambda: has_begun(2, 1))
    goes_on[0].set()
    with pytest.raises(Exception, match="PostgreSQL"):
        await first
    goes_on[1].set()
    await second
    await assert_true(ledger, url, [projection])


async def test_a_rebuild_that_meets_a_bad_event_leaves_the_rows_that_serve(ledger: JetStreamLedger, url: str) -> None:
    projection = DevicesProjection()
    head = await publish(ledger, history(1, 100))
    await Runner(projection, ledger, url).catch_up(head)
    broken = event(DeviceFailed(kind="?"), "d1", source=SERVICE)
    await ledger.publish(outgoing(broken)._replace(data=encode(broken).replace(b'"?"', b'""')))
    execute(url, "UPDATE gpuledger.projection SET position = position + 1")
    with pytest.raises(BadEventError):
        await rebuild(projection, ledger, url)
    execute(url, "UPDATE gpuledger.projection SET position = position - 1")
    assert not leftovers(url)
    await assert_true(ledger, url, [projection])


async def test_the_views_follow_the_swap(ledger: JetStreamLedger, url: str) -> None:
    projection = DevicesProjection()
    await Runner(projection, ledger, url).catch_up(await publish(ledger, history(1, 100)))
    before = execute(url, "SELECT devices, slots, lives FROM report.fleet")
    await rebuild(projection, ledger, url)
    assert execute(url, "SELECT devices, slots, lives FROM report.fleet") == before
    execute(url, "DELETE FROM gpuledger_live.device")
    assert execute(url, "SELECT devices FROM report.fleet") == [(0,)]


@one_of_a_kind
async def test_a_rollback_brings_the_rows_of_before_back(
    ledger: JetStreamLedger, url: str, projection: Projection
) -> None:
    decided = answers(projection)
    async with running(Runner(projection, ledger, url, settings=QUICK)):
        await publish(ledger, history(1, 100))
        await reaches(url, projection.name, await spoil(ledger, 101) + decided)
        before = await checkpoint(url, projection.name)
        await rebuild(projection, ledger, url)
        await publish(ledger, history(102, 200))
        await reaches(url, projection.name, await spoil(ledger, 201) + decided)
    back = await rollback(projection, url)
    assert await checkpoint(url, projection.name) == back
    assert before is not None
    assert back.incarnation != before.incarnation
    assert back == before._replace(incarnation=back.incarnation)
    await assert_true(ledger, url, [projection])
    async with running(Runner(projection, ledger, url, settings=QUICK)):
        await publish(ledger, history(202, 260))
        await reaches(url, projection.name, await spoil(ledger, 261) + decided)
    await assert_true(ledger, url, [projection])
    await rollback(projection, url)
    async with running(Runner(projection, ledger, url, settings=QUICK)):
        head = await spoil(ledger, 262) + decided
        await reaches(url, projection.name, head)
    assert await ledger.head() == head
    await assert_true(ledger, url, [projection])
    if answers(projection):
        assert table(url, "source", "source, missing, duplicates") == [
            ("/nodes/n1/agent", 3, 0),
            ("/services/sources", 0, 0),
        ]


async def test_a_rollback_takes_what_was_on_its_way_back_with_it(ledger: JetStreamLedger, url: str) -> None:
    projection = SourcesProjection()
    bad = await spoil(ledger, 1)
    await Runner(projection, ledger, url, settings=QUICK).catch_up(bad)
    assert execute(url, "SELECT status FROM gpuledger.outbox") == [("sent",)]
    await rebuild(projection, ledger, url)
    async with running(Runner(projection, ledger, url, settings=QUICK)):
        await reaches(url, "sources", bad + 1)
        await reaches(url, "sources", await spoil(ledger, 2) + 1)
    await rollback(projection, url)
    await assert_true(ledger, url, [projection])
    async with running(Runner(projection, ledger, url, settings=QUICK)):
        await reaches(url, "sources", await spoil(ledger, 3) + 1)
    assert await ledger.head() == 6
    assert len(table(url, "rejection")) == 3
    await assert_true(ledger, url, [projection])


async def test_without_earlier_rows_there_is_nothing_to_roll_back(ledger: JetStreamLedger, url: str) -> None:
    await Runner(DevicesProjection(), ledger, url).catch_up(await publish(ledger, history(1, 10)))
    with pytest.raises(NothingToRollBackError, match="keeps no rows from before a rebuild"):
        await rollback(DevicesProjection(), url)
