"""`verify` compares the snapshots at which services begin with a fold of the log, and names what differs first."""

import asyncio
from collections.abc import Mapping, Sequence
from types import MappingProxyType

import pytest

from gpuledger.db.engine import connect
from gpuledger.edge.admission.cache import CacheProjection
from gpuledger.edge.statuswriter.desired.fold import DesiredProjection
from gpuledger.edge.statuswriter.desired.state import WITHDRAWN
from gpuledger.edge.watchers.compared import compared_journals
from gpuledger.edge.watchers.decide import NewFact
from gpuledger.edge.watchers.journal import Journal
from gpuledger.edge.watchers.journal_rows import journal_layout
from gpuledger.edge.watchers.resources import nodes
from gpuledger.events.device import DeviceWithdrawn
from gpuledger.events.node import NodeGone, NodeObserved
from gpuledger.ledger.jetstream import JetStreamLedger
from gpuledger.projection.definition import Projection
from gpuledger.projection.replay import fold_until
from gpuledger.projection.snapshot import Row, Snapshot, layout_of, snapshot_of
from gpuledger.projection.snapshot_store import SnapshotStore
from gpuledger.projection.snapshot_verify import ComparedFold, ComparedProjection, verify_snapshot
from gpuledger.projection.snapshots import Snapshots, SnapshotSettings
from gpuledger.projection.verify import Verification
from gpuledger.runtime.clock import system_clock
from gpuledger.tools.simulation.agents import Agents, epoch_of
from gpuledger.tools.simulation.fleet import Fleet, FleetSpec
from gpuledger.tools.simulation.fleet_journal import ComparedFleet, FleetJournal
from support.inventory_decisions import Decided
from support.projections import execute
from support.waiting import eventually

FOLDED = (CacheProjection(), DesiredProjection())
SETTINGS = SnapshotSettings(events_min=1)
NOTHING: Mapping[str, Sequence[Row]] = MappingProxyType({})


async def decide(ledger: JetStreamLedger) -> Decided:
    decided = Decided(ledger)
    await decided.node("w1", 2)
    await decided.record(("w1-0", DeviceWithdrawn(reason="Retired")))
    return decided


async def keep(
    projection: Projection, ledger: JetStreamLedger, url: str, changes: Mapping[str, Sequence[Row]] = NOTHING
) -> None:
    """Leave a snapshot of a projection at the head, with other rows in some tables."""
    fold = await fold_until(projection, ledger)
    assert fold.anchor is not None
    found = snapshot_of(fold, fold.anchor, ledger.identity)
    snapshot = Snapshot(*found[:3], {**found.rows, **changes})
    async with connect(url, application_name="test") as connection:
        await SnapshotStore(connection, layout_of(projection, projection.new_state())).write(snapshot)


async def verified(compared: ComparedFold, ledger: JetStreamLedger, url: str) -> Verification | None:
    async with connect(url, application_name="test") as connection:
        return await verify_snapshot(compared, ledger, connection)


@pytest.mark.parametrize("projection", FOLDED, ids=lambda one: str(one.name))
async def test_a_snapshot_is_what_the_log_says(ledger: JetStreamLedger, url: str, projection: Projection) -> None:
    decided = await decide(ledger)
    assert await verified(ComparedProjection(projection, ledger), ledger, url) is None
    await keep(projection, ledger, url)
    await decided.record(("w1-1", DeviceWithdrawn(reason="Retired")))
    found = await verified(ComparedProjection(projection, ledger), ledger, url)
    assert found is not None
    assert (found.projection, str(found.position), found.differences) == (f"snapshot {projection.name}", "1/4", 0)
    assert found.rows > 1


async def test_the_first_row_that_differs_is_named(ledger: JetStreamLedger, url: str) -> None:
    await decide(ledger)
    right = (await fold_until(DesiredProjection(), ledger)).state.tables()["gpu_node"].rows["w1"]
    await keep(
        DesiredProjection(), ledger, url, {"gpu_node": [right._replace(present=False), right._replace(node="w9")]}
    )
    found = await verified(ComparedProjection(DesiredProjection(), ledger), ledger, url)
    assert found is not None
    assert found.differences == 2
    assert found.first is not None
    assert found.first[:2] == ("gpu_node", ("w1",))


async def test_work_that_is_done_is_missing_rightly_and_work_that_nobody_has_is_not(
    ledger: JetStreamLedger, url: str
) -> None:
    await decide(ledger)
    await keep(DesiredProjection(), ledger, url, {WITHDRAWN.name: []})
    found = await verified(ComparedProjection(DesiredProjection(), ledger), ledger, url)
    assert found is not None
    assert found.differences == 0
    execute(url, "DELETE FROM gpuledger.snapshot")
    await keep(DesiredProjection(), ledger, url, {WITHDRAWN.name: [("GPUDevice", "w1-1", "")]})
    found = await verified(ComparedProjection(DesiredProjection(), ledger), ledger, url)
    assert found is not None
    assert found.first is not None
    assert (found.differences, found.first.key) == (1, ("GPUDevice", "w1-1", ""))


async def test_a_snapshot_of_another_log_is_not_compared(ledger: JetStreamLedger, url: str) -> None:
    await decide(ledger)
    await keep(DesiredProjection(), ledger, url)
    execute(url, "UPDATE gpuledger.snapshot SET event_digest = 'of another event'")
    assert await verified(ComparedProjection(DesiredProjection(), ledger), ledger, url) is None


async def test_the_journals_and_the_fleet_are_compared(ledger: JetStreamLedger, url: str) -> None:
    kind = nodes.kind("gpu.deckhouse.io/managed")
    kept = Snapshots(journal_layout(kind.source), ledger, url, SETTINGS)
    journal = Journal(ledger, kind, lambda: "epoch", snapshots=kept)
    await journal.catch_up()
    now = system_clock()
    await journal.record([NewFact("w1", now, NodeObserved(uid="u")), NewFact("w2", now, NodeGone(uid="u"))])
    assert kept.offered is not None
    assert await kept.write(kept.offered)
    fleet = Fleet(FleetSpec(1, 2), 1)
    agents = Agents(ledger, epoch_of(1), {}, clock=system_clock, sleep=asyncio.sleep)
    await agents.observed(next(iter(fleet.nodes)), [fleet.card(fleet.slot_ids()[0], 0)])
    await agents.flush()
    simulated = FleetJournal(ledger, epoch_of(1), url, SETTINGS)
    await simulated.catch_up()
    writing = asyncio.create_task(simulated.run())

    async def is_written() -> bool:
        return len(execute(url, "SELECT name FROM gpuledger.snapshot")) == 2

    await eventually(is_written)
    writing.cancel()
    every: list[ComparedFold] = [*compared_journals(ledger), ComparedFleet(ledger, epoch_of(1))]
    outcomes = [await verified(one, ledger, url) for one in every]
    assert {one.projection: (one.differences, one.rows > 1) for one in outcomes if one is not None} == {
        "snapshot journal:/watchers/nodes": (0, True),
        "snapshot simulation:simulation-1": (0, True),
    }
