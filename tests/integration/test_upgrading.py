"""Builds of two versions beside each other: the old rows serve and move until the new ones take their place."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import psycopg
import pytest
from prometheus_client import REGISTRY

from gpuledger.compose.up import health_of
from gpuledger.db import locks
from gpuledger.db.locks import try_hold
from gpuledger.deciders.sources.projection import SourcesProjection
from gpuledger.domain.fact import Fact
from gpuledger.events.device import DeviceInserted
from gpuledger.events.envelope import decode
from gpuledger.events.publishing import RULE_VERSIONS, Rule
from gpuledger.events.rule import RuleEnforced
from gpuledger.events.source import SourcePositionSkipped
from gpuledger.ledger.jetstream import JetStreamLedger
from gpuledger.projection import enforced, replay
from gpuledger.projection import rebuild as rebuilding
from gpuledger.projection.definition import Projection
from gpuledger.projection.fold import Fold
from gpuledger.projection.fold_snapshots.reader import FoldSnapshots
from gpuledger.projection.fold_snapshots.taking import Hearers, take_snapshots
from gpuledger.projection.fold_snapshots.writer import FoldSnapshotSettings
from gpuledger.projection.rebuild import rollback
from gpuledger.projection.runner import Runner
from gpuledger.projection.supervision import Supervision
from gpuledger.projection.upgrading import Upgrades
from gpuledger.readmodels.projections import DevicesProjection
from gpuledger.runtime.backoff import Backoff
from support.counted_reads import CountedReads
from support.events import event
from support.fold_snapshots import MemoryObjects
from support.ledgers import everything
from support.projections import assert_true, checkpoint, publish, reaches, stop, table
from support.runners import failures
from support.waiting import eventually


class NewerDevices(DevicesProjection):
    """The devices projection of a newer build."""

    version = DevicesProjection.version + 1


@asynccontextmanager
async def supervised(ledger: JetStreamLedger, url: str, *projections: Projection) -> AsyncIterator[Supervision]:
    """The services of a build, sampled often."""
    supervision = Supervision(projections, ledger, url, check_interval_s=0.02)
    supervision._upgrades = Upgrades(ledger, url, Backoff(first_s=0.02, max_s=0.1))
    tasks = [asyncio.create_task(work) for work in supervision.work()]
    try:
        yield supervision
    finally:
        for task in tasks:
            await stop(task)


async def becomes(supervision: Supervision, state: str, projection: str = "devices") -> None:
    """Return when the health of a projection has this state."""

    async def has_become() -> bool:
        return supervision.health()[projection].state == state

    await eventually(has_become)


async def reaches_servers(supervision: Supervision) -> None:
    """Return when both servers have answered its checks."""

    async def has_reached() -> bool:
        return supervision.reachable

    await eventually(has_reached)


async def version_becomes(url: str, version: int) -> None:
    """Return when the rows that serve are of this version."""

    async def has_become() -> bool:
        found = await checkpoint(url, "devices")
        return found is not None and found.version == version

    await eventually(has_become)


@pytest.fixture
def held_fold(monkeypatch: pytest.MonkeyPatch) -> asyncio.Event:
    """Builds go on behind what they folded first only when this is set."""
    goes_on, fold_to = asyncio.Event(), rebuilding._Rebuild._fold_to

    async def held(self: rebuilding._Rebuild, target: int) -> None:
        await fold_to(self, target)
        await goes_on.wait()

    monkeypatch.setattr(rebuilding._Rebuild, "_fold_to", held)
    return goes_on


async def test_the_old_rows_serve_and_move_until_the_new_ones_take_their_place(
    ledger: JetStreamLedger, url: str, held_fold: asyncio.Event
) -> None:
    async with supervised(ledger, url, DevicesProjection()) as old:
        await reaches(url, "devices", await publish(ledger, failures(range(1, 101))))
        async with supervised(ledger, url, NewerDevices()) as new:

            async def has_folded() -> bool:
                return new.health()["devices"].done == 100

            await eventually(has_folded)
            assert new.health()["devices"][:4] == ("building", 100, 0, None)
            assert not new.healthy
            assert health_of(new, None).document["status"] == "building"
            assert health_of(new, None).document["reason"] == (
                "Builds the rows of devices for this version, 100 of 100 positions."
            )
            await reaches(url, "devices", await publish(ledger, failures(range(101, 201))))
            found = await checkpoint(url, "devices")
            assert found is not None
            assert found.version == DevicesProjection.version
            assert old.healthy
            held_fold.set()
            await version_becomes(url, NewerDevices.version)
            await becomes(old, "superseded")
            await becomes(new, "running")
            assert (old.healthy, new.healthy) == (True, True)
            await reaches(url, "devices", await publish(ledger, failures(range(201, 301))))
            await assert_true(ledger, url, [NewerDevices()])
    assert len(table(url, "failure")) == 300


async def test_an_old_build_goes_on_from_its_own_rows_after_a_rollback(ledger: JetStreamLedger, url: str) -> None:
    async with supervised(ledger, url, DevicesProjection()) as old:
        await reaches(url, "devices", await publish(ledger, failures(range(1, 101))))
        async with supervised(ledger, url, NewerDevices()):
            await version_becomes(url, NewerDevices.version)
            await reaches(url, "devices", await publish(ledger, failures(range(101, 201))))
        await becomes(old, "superseded")
        assert REGISTRY.get_sample_value("gpuledger_projection_superseded", {"projection": "devices"}) == 1
        await rollback(DevicesProjection(), url)
        await becomes(old, "running")
        assert REGISTRY.get_sample_value("gpuledger_projection_superseded", {"projection": "devices"}) == 0
        await reaches(url, "devices", await publish(ledger, failures(range(201, 301))))
        await assert_true(ledger, url, [DevicesProjection()])


async def test_an_old_build_never_rebuilds_what_a_newer_one_wrote(ledger: JetStreamLedger, url: str) -> None:
    async with supervised(ledger, url, NewerDevices()):
        await reaches(url, "devices", await publish(ledger, failures(range(1, 101))))
    before = await checkpoint(url, "devices")
    async with supervised(ledger, url, DevicesProjection()) as old:
        await becomes(old, "superseded")
        await reaches_servers(old)
        assert old.healthy
        assert "newer build" in (old.health()["devices"].reason or "")
        await Upgrades(ledger, url).build(DevicesProjection(), lambda _: None)
    assert await checkpoint(url, "devices") == before


async def test_a_build_that_was_interrupted_goes_on_from_the_snapshots_of_its_version(
    ledger: JetStreamLedger, url: str
) -> None:
    async with supervised(ledger, url, DevicesProjection()):
        await reaches(url, "devices", await publish(ledger, failures(range(1, 101))))
    counted, refused = CountedReads(ledger), list[str]()
    snapshots, stopped = FoldSnapshots(MemoryObjects(), counted, refused.append), list[Exception]()
    hearers = Hearers(lambda _: None, stopped.append)
    await take_snapshots([NewerDevices()], ledger, snapshots, hearers, settings=FoldSnapshotSettings(), also_last=True)
    await Runner(DevicesProjection(), ledger, url).catch_up(await publish(ledger, failures(range(101, 111))))
    await Upgrades(counted, url, snapshots=snapshots).build(NewerDevices(), lambda _: None)
    assert counted.read_messages == 10
    assert (refused, stopped) == ([], [])
    await assert_true(ledger, url, [NewerDevices()])


async def test_a_build_waits_for_another_of_the_same_projection(ledger: JetStreamLedger, url: str) -> None:
    async with supervised(ledger, url, DevicesProjection()):
        await reaches(url, "devices", await publish(ledger, failures(range(1, 101))))
    async with await psycopg.AsyncConnection.connect(url, autocommit=True) as other:
        assert await try_hold(other, "rebuild:devices") is not None
        async with supervised(ledger, url, NewerDevices()) as new:
            await becomes(new, "building")
            assert new.health()["devices"].total is None
            await other.close()
            await becomes(new, "running")
    await assert_true(ledger, url, [NewerDevices()])


async def test_a_build_that_stops_leaves_the_old_rows_to_move_and_goes_on_after_a_remedy(
    ledger: JetStreamLedger, url: str
) -> None:
    def fail(_state: object, _fact: Fact, _data: object) -> None:
        raise ZeroDivisionError("oh")

    class Failing(NewerDevices):
        handlers = {**NewerDevices.handlers, DeviceInserted: fail}

    async with supervised(ledger, url, DevicesProjection()) as old:
        await publish(ledger, failures(range(1, 101)))
        bad = await publish(ledger, [event(DeviceInserted(slot="s"), "d1")])
        await reaches(url, "devices", bad)
        async with supervised(ledger, url, Failing()) as new:
            await becomes(new, "stopped")
            assert f"stopped at 1/{bad} " in (new.health()["devices"].reason or "")
            await reaches(url, "devices", await publish(ledger, failures(range(101, 201))))
            assert old.healthy
            skip = SourcePositionSkipped(generation=1, sequence=bad, reason="the newer build fails at it")
            await publish(ledger, [event(skip, "log", source="/operators/eva")])
            await becomes(new, "running")
    assert len(table(url, "failure")) == 200


async def test_a_swap_that_a_query_holds_up_is_tried_again_with_what_was_folded(
    ledger: JetStreamLedger, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    folds: list[object] = []

    async def counted(projection: Projection, ledger: JetStreamLedger) -> Fold:
        folds.append(projection)
        return await replay.new_fold(projection, ledger)

    monkeypatch.setattr("gpuledger.projection.rebuild.new_fold", counted)
    monkeypatch.setattr(locks, "LOCK_WAIT_MAX_S", 0.05)
    async with supervised(ledger, url, DevicesProjection()):
        await reaches(url, "devices", await publish(ledger, failures(range(1, 101))))
        async with await psycopg.AsyncConnection.connect(url) as reading:
            await reading.execute("SELECT count(*) FROM gpuledger_live.device")
            blocked: list[object] = []
            upgrades = Upgrades(ledger, url, Backoff(first_s=0.02, max_s=0.1))
            monkeypatch.setattr(rebuilding.log, "warning", lambda *words, **named: blocked.append(words))
            building = asyncio.create_task(upgrades.build(NewerDevices(), lambda _: None))

            async def was_blocked() -> bool:
                return len(blocked) > 1

            await eventually(was_blocked)
            await reaches(url, "devices", await publish(ledger, failures(range(101, 201))))
            await reading.rollback()
            await building
    assert len(folds) == 1
    await assert_true(ledger, url, [NewerDevices()])
    assert len(table(url, "failure")) == 200


async def test_rules_are_enforced_once_nothing_is_left_to_build(
    ledger: JetStreamLedger, url: str, held_fold: asyncio.Event
) -> None:
    async with supervised(ledger, url, DevicesProjection()):
        await reaches(url, "devices", await publish(ledger, failures(range(1, 101))))

    async def rules() -> bool:
        found = [decode(one.data) for one in await everything(ledger)]
        return any(one.type == RuleEnforced.TYPE for one in found)

    async with supervised(ledger, url, NewerDevices(), SourcesProjection()) as new:
        await becomes(new, "building")
        await reaches(url, "sources", await publish(ledger, failures(range(101, 111))))
        assert not await rules()
        held_fold.set()
        await becomes(new, "running")
        await publish(ledger, failures(range(111, 121)))
        await eventually(rules)


OLDER = {
    "a rule": {rule: version for rule, version in RULE_VERSIONS.items() if rule is not Rule.DEVICE_REPORTS},
    "a version": {**RULE_VERSIONS, Rule.DEVICE_REPORTS: RULE_VERSIONS[Rule.DEVICE_REPORTS] - 1},
}
"""The rules of builds that do not know one, or its newest version."""


@pytest.mark.parametrize("versions", OLDER.values(), ids=OLDER)
async def test_an_older_build_stops_at_rows_that_follow_a_rule_that_it_does_not_know(
    ledger: JetStreamLedger, url: str, monkeypatch: pytest.MonkeyPatch, versions: dict[Rule, int]
) -> None:
    """After a rollback, or where its replica takes the lock of a newer one in a rolling update."""
    version = RULE_VERSIONS[Rule.DEVICE_REPORTS]
    await publish(ledger, [event(RuleEnforced(version=version), Rule.DEVICE_REPORTS, source="/services/sources")])
    async with supervised(ledger, url, DevicesProjection()):
        last = await publish(ledger, failures(range(1, 11)))
        await reaches(url, "devices", last)
    with monkeypatch.context() as older:
        older.setattr(enforced, "RULE_VERSIONS", versions)
        async with supervised(ledger, url, DevicesProjection()) as old:
            await becomes(old, "stopped")
            reason = str(old.health()["devices"].reason)
            assert f"since 1/1: This build does not know version {version} of the rule 'device-reports'. Up" in reason
            assert not old.healthy
            head = await publish(ledger, failures(range(11, 21)))
    found = await checkpoint(url, "devices")
    assert found is not None
    assert found.position == last
    async with supervised(ledger, url, DevicesProjection()):
        await reaches(url, "devices", head)
    await assert_true(ledger, url, [DevicesProjection()])
