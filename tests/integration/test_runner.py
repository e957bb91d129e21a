"""The runner on real servers: rows and checkpoint together, one writer, and what stops it."""

import asyncio
from functools import partial

import pytest

from gpuledger.deciders.sources.projection import SourcesProjection
from gpuledger.events.device import DeviceInserted
from gpuledger.events.position import Offset, number_of
from gpuledger.events.source import SourcePositionSkipped
from gpuledger.events.workload import DeviceShare, WorkloadEnded, WorkloadScheduled, WorkloadSubmitted
from gpuledger.ledger.jetstream import JetStreamLedger
from gpuledger.projection.checkpoint import Checkpoint
from gpuledger.projection.definition import Projection
from gpuledger.projection.errors import BadEventError, GenerationMismatchError, VersionError, WriterFencedError
from gpuledger.projection.runner import Runner, RunnerSettings
from gpuledger.readmodels.projections import DevicesProjection, WorkloadsProjection
from gpuledger.runtime.tasks import end
from gpuledger.tools.queries.backend import all_projections
from support.events import SERVICE, event, hour, outgoing
from support.projections import (
    QUICK,
    assert_true,
    checkpoint,
    execute,
    publish,
    reaches,
    running,
    stands_by,
    stop,
    table,
)
from support.runners import failures, unfit
from support.waiting import eventually


async def test_catching_up_writes_rows_and_checkpoint(ledger: JetStreamLedger, url: str) -> None:
    head = await publish(ledger, failures(range(1, 101)))
    for projection in all_projections():
        assert await Runner(projection, ledger, url, settings=QUICK).catch_up(head)
        found = await checkpoint(url, projection.name)
        assert found is not None
        assert (found.position, found.events) == (head, 100)
    assert len(table(url, "failure")) == 100
    await assert_true(ledger, url, all_projections())


async def test_catching_up_stops_at_the_given_position_in_whatever_batches(ledger: JetStreamLedger, url: str) -> None:
    head = await publish(ledger, failures(range(1, 51)))
    small = RunnerSettings(messages_per_batch=7)
    assert await Runner(DevicesProjection(), ledger, url, settings=small).catch_up(head)
    assert await Runner(DevicesProjection(), ledger, url).catch_up(head)
    await assert_true(ledger, url, [DevicesProjection()])
    assert sum(row[0] for row in table(url, "device", "failures")) == 50


async def test_events_that_arrive_become_rows(ledger: JetStreamLedger, url: str) -> None:
    async with running(Runner(DevicesProjection(), ledger, url, settings=QUICK)):
        for start in range(1, 40, 10):
            head = await publish(ledger, failures(range(start, start + 10)))
            await reaches(url, "devices", head)
    assert len(table(url, "failure")) == 40


async def test_an_event_that_comes_twice_counts_once(ledger: JetStreamLedger, url: str) -> None:
    again = [one._replace(id=f"again-{one.id}") for one in failures(range(1, 11))]
    head = await publish(ledger, [*failures(range(1, 11)), *again])
    for projection in all_projections():
        await Runner(projection, ledger, url, settings=QUICK).catch_up(head)
    assert len(table(url, "failure")) == 10
    assert table(url, "source", "events, duplicates, missing") == [(10, 10, 0)]
    await assert_true(ledger, url, all_projections())


async def test_an_id_used_for_two_events_stops_nobody(ledger: JetStreamLedger, url: str) -> None:
    one, other = (one._replace(id="the-same") for one in failures(range(1, 3)))
    projection = DevicesProjection()
    for facts, message_id in ((one, "m1"), (other, "m2")):
        await ledger.publish(outgoing(facts)._replace(id=message_id))
        await Runner(projection, ledger, url, settings=QUICK).catch_up(await ledger.head())
    assert table(url, "failure", "event_id, device") == [("the-same", "d1"), ("the-same", "d2")]
    await assert_true(ledger, url, [projection])


async def test_amounts_beyond_what_a_column_holds_stop_nobody(ledger: JetStreamLedger, url: str) -> None:
    share = DeviceShare(device="d1", gpu_milli=2**63 - 1)
    scheduled = event(WorkloadScheduled(gpu_milli=1, devices=(share, share)), "w1", number=1)
    head = await publish(ledger, [scheduled])
    await Runner(WorkloadsProjection(), ledger, url, settings=QUICK).catch_up(head)
    assert table(url, "allocation", "gpu_milli") == [(2**63 - 1,)]


async def test_rows_that_retired_come_back_when_an_event_touches_them(ledger: JetStreamLedger, url: str) -> None:
    facts = [
        event(WorkloadSubmitted(gpu_milli=1000, owner="ann"), "w1", number=1, at=1),
        event(WorkloadScheduled(gpu_milli=1000, node="n1"), "w1", number=2, at=2),
        event(WorkloadEnded(outcome="Succeeded"), "w1", number=3, at=3),
        event(WorkloadEnded(outcome="Failed"), "w1", number=4, at=5),
        event(WorkloadScheduled(gpu_milli=500, node="n2"), "w1", number=5, at=4),
    ]
    async with running(Runner(WorkloadsProjection(), ledger, url, settings=QUICK)):
        for one in facts:
            await reaches(url, "workloads", await publish(ledger, [one]))
    assert table(url, "workload", "owner, node, outcome, phase") == [("ann", "n2", "Failed", "Ended")]
    assert sorted(table(url, "allocation", "node, gpu_milli, valid_from, valid_to")) == [
        ("n1", 1000, hour(2), hour(3)),
        ("n2", 500, hour(4), hour(5)),
    ]
    await assert_true(ledger, url, [WorkloadsProjection()])


async def test_a_second_runner_stands_by_and_takes_over(ledger: JetStreamLedger, url: str) -> None:
    flushed: list[str] = []
    first = Runner(DevicesProjection(), ledger, url, settings=QUICK, on_flush=lambda _: flushed.append("first"))
    second = Runner(DevicesProjection(), ledger, url, settings=QUICK, on_flush=lambda _: flushed.append("second"))
    async with running(first) as (task,):
        await reaches(url, "devices", await publish(ledger, failures(range(1, 11))))
        async with running(second):
            await eventually(lambda: stands_by(url, "gpuledger devices"))
            assert not await Runner(DevicesProjection(), ledger, url).catch_up(1)
            await reaches(url, "devices", await publish(ledger, failures(range(11, 21))))
            assert set(flushed) == {"first"}
            await stop(task)
            await reaches(url, "devices", await publish(ledger, failures(range(21, 31))))
            await eventually(lambda: _holds(flushed[-1] == "second"))
    await assert_true(ledger, url, [DevicesProjection()])


async def test_a_standby_takes_over_when_the_writers_session_dies(ledger: JetStreamLedger, url: str) -> None:
    runners = [Runner(DevicesProjection(), ledger, url, settings=QUICK) for _ in range(2)]
    async with running(*runners):
        await reaches(url, "devices", await publish(ledger, failures(range(1, 11))))
        await eventually(lambda: stands_by(url, "gpuledger devices"))
        for start in range(11, 61, 10):
            execute(
                url,
                "SELECT pg_terminate_backend(pid) FROM pg_locks JOIN pg_database AS d ON d.oid = database "
                "WHERE locktype = 'advisory' AND granted AND datname = current_database()",
            )
            await reaches(url, "devices", await publish(ledger, failures(range(start, start + 10))))
    await assert_true(ledger, url, [DevicesProjection()])
    assert len(table(url, "failure")) == 60


async def _holds(condition: bool) -> bool:
    return condition


async def test_a_writer_is_fenced_when_another_wrote(ledger: JetStreamLedger, url: str) -> None:
    head = await publish(ledger, failures(range(1, 11)))
    flushed: list[Offset] = []

    def interfere(written: Checkpoint) -> None:
        if not flushed:
            execute(url, "UPDATE gpuledger.projection SET incarnation = 'another'")
        flushed.append(written.position)

    small = RunnerSettings(messages_per_batch=5)
    with pytest.raises(WriterFencedError, match="devices were written by somebody else"):
        await Runner(DevicesProjection(), ledger, url, settings=small, on_flush=interfere).catch_up(head)
    found = await checkpoint(url, "devices")
    assert found is not None
    assert flushed == [found.position]
    assert found.position == len(table(url, "failure")) <= 5


async def test_a_running_writer_recovers_from_being_fenced(ledger: JetStreamLedger, url: str) -> None:
    async with running(Runner(DevicesProjection(), ledger, url, settings=QUICK)):
        await reaches(url, "devices", await publish(ledger, failures(range(1, 11))))
        execute(url, "UPDATE gpuledger.projection SET incarnation = 'another'")
        await reaches(url, "devices", await publish(ledger, failures(range(11, 21))))
    await assert_true(ledger, url, [DevicesProjection()])


@pytest.mark.parametrize(
    ("step", "remedy"),
    [(1, "this build writes version {other}. `gpuledger up` of this"), (-1, "writes version {other}. Use the newer")],
)
async def test_rows_of_another_version_are_refused(ledger: JetStreamLedger, url: str, step: int, remedy: str) -> None:
    class Other(DevicesProjection):
        version = DevicesProjection.version + step

    await Runner(DevicesProjection(), ledger, url).catch_up(await publish(ledger, failures(range(1, 3))))
    for attempt in (Runner(Other(), ledger, url).run, partial(Runner(Other(), ledger, url).catch_up, 9)):
        with pytest.raises(VersionError, match=remedy.format(other=Other.version)):
            await attempt()
    assert len(table(url, "failure")) == 2


async def test_a_standby_learns_that_the_rows_became_those_of_another_version(
    ledger: JetStreamLedger, url: str
) -> None:
    async with running(Runner(DevicesProjection(), ledger, url, settings=QUICK)):
        await reaches(url, "devices", await publish(ledger, failures(range(1, 3))))
        standby = asyncio.create_task(Runner(DevicesProjection(), ledger, url, settings=QUICK).run())
        await eventually(lambda: stands_by(url, "gpuledger devices"))
        execute(url, "UPDATE gpuledger.projection SET version = version + 1")
        with pytest.raises(VersionError):
            await standby


async def test_a_writer_whose_rows_were_swapped_lets_its_lock_go_though_nothing_arrives(
    ledger: JetStreamLedger, url: str
) -> None:
    async with running(Runner(DevicesProjection(), ledger, url, settings=QUICK)) as (task,):
        await reaches(url, "devices", await publish(ledger, failures(range(1, 3))))
        execute(url, "UPDATE gpuledger.projection SET version = version + 1, incarnation = 'another'")
        with pytest.raises(VersionError):
            await task


async def test_rows_of_another_generation_are_refused(ledger: JetStreamLedger, url: str) -> None:
    await Runner(DevicesProjection(), ledger, url).catch_up(await publish(ledger, failures(range(1, 3))))
    execute(url, "UPDATE gpuledger.projection SET generation = 7")
    with pytest.raises(
        GenerationMismatchError, match=r"follow generation 7 of the ledger, which is now at generation 1"
    ):
        await Runner(DevicesProjection(), ledger, url).run()


async def test_rows_of_another_partition_are_refused(ledger: JetStreamLedger, url: str) -> None:
    await Runner(DevicesProjection(), ledger, url).catch_up(await publish(ledger, failures(range(1, 4))))
    execute(url, "UPDATE gpuledger.projection SET partition = 2")
    written = await checkpoint(url, "devices")
    assert written is not None
    assert str(written.at) == "2/1/3"
    with pytest.raises(GenerationMismatchError, match=r"follow partition 2 of generation 1 of the ledger"):
        await Runner(DevicesProjection(), ledger, url).run()


async def test_an_operators_skip_lets_a_stopped_projection_go_on(ledger: JetStreamLedger, url: str) -> None:
    await publish(ledger, failures(range(1, 4), SERVICE))
    bad = (await ledger.publish(unfit(4, SERVICE))).sequence
    await publish(ledger, failures(range(5, 8), SERVICE))
    projection: Projection
    for projection in (DevicesProjection(), SourcesProjection()):
        with pytest.raises(BadEventError, match=f"{projection.name} stopped at 1/{bad} "):
            await Runner(projection, ledger, url, settings=QUICK).catch_up(await ledger.head())
    nodes = next(projection for projection in all_projections() if projection.name == "nodes")
    await Runner(nodes, ledger, url).catch_up(await ledger.head())
    skip = SourcePositionSkipped(generation=1, sequence=number_of(bad), reason="it was ours")
    head = await publish(ledger, [event(skip, "log", source="/operators/eva")])
    for projection in all_projections():
        await Runner(projection, ledger, url, settings=QUICK).catch_up(head)
    assert len(table(url, "failure")) == 6
    assert not table(url, "missing")
    await assert_true(ledger, url, all_projections())


async def test_cancelling_a_runner_ends_it_wherever_it_is(ledger: JetStreamLedger, url: str) -> None:
    for delay_s in (0, 0.005, 0.02, 0.05):
        task = asyncio.create_task(Runner(DevicesProjection(), ledger, url, settings=QUICK).run())
        await asyncio.wait([task], timeout=delay_s)
        await end([task])
        assert task.cancelled()
    head = await publish(ledger, [event(DeviceInserted(slot="s"), "d1")])
    runner = Runner(DevicesProjection(), ledger, url)
    await eventually(lambda: runner.catch_up(head))  # PostgreSQL takes its time to end a session, and its lock with it
