"""How a simulated fleet that was started before is found again: from what its agents said, and its pods."""

from datetime import UTC, datetime
from random import Random
from typing import Any

import pytest

from gpuledger.events.envelope import Event, decode
from gpuledger.events.workload import WorkloadScheduled
from gpuledger.ledger.api import Outgoing
from gpuledger.ledger.memory import MemoryLedger
from gpuledger.tools.simulation import names, objects
from gpuledger.tools.simulation.agents import OUTBOX_MAX, WORKLOADS, Agents, epoch_of, source_of
from gpuledger.tools.simulation.allocation import RunningPod, Share, SimulatedPod
from gpuledger.tools.simulation.fleet import Fleet, FleetSpec
from gpuledger.tools.simulation.fleet_journal import FleetJournal
from gpuledger.tools.simulation.hardware import GPU_RESOURCE
from gpuledger.tools.simulation.objects import requested_resource
from gpuledger.tools.simulation.preparation import NodeProgress
from gpuledger.tools.simulation.recorded import RecordedFleet, fleet_of_rows, number_of, rows_of_fleet
from gpuledger.tools.simulation.resume import (
    LeftoverNodes,
    ResumeState,
    is_own_pod,
    leftover_nodes,
    resume_state,
)
from gpuledger.tools.simulation.workload import FAILED, SUCCEEDED, Rates
from support.events import outgoing
from support.ledgers import everything
from support.simulating import new_fleet

NOW = datetime(2026, 1, 1, tzinfo=UTC)
FLEET = Fleet(FleetSpec(2, 2), 1)
FIRST, SECOND = FLEET.nodes
RATES = Rates()


async def no_sleep(_seconds: float) -> None:
    raise AssertionError("nothing is away")


def agents_of(ledger: MemoryLedger, numbers: dict[str, int] | None = None) -> Agents:
    return Agents(ledger, epoch_of(FLEET.seed), numbers or {}, clock=lambda: NOW, sleep=no_sleep)


def running_pod(name: str, slot: int = 0) -> RunningPod:
    pod = SimulatedPod(name, "team", GPU_RESOURCE, 1, 1000, 60, SUCCEEDED)
    return RunningPod(pod, FIRST, (Share(str(FLEET.card(FLEET.slot_ids()[slot], 0).uuid), 1000),))


def live(name: str, phase: str = "Pending", node: str | None = None, *, ours: bool = True, **more: Any) -> Any:
    container = {"name": "main", "resources": {"limits": {GPU_RESOURCE: "1"}}}
    labels = {names.MANAGED_BY: names.SCHEDULER} if ours else {}
    spec = {"containers": [container]} | ({"nodeName": node} if node else {})
    return {"metadata": {"name": name, "labels": labels} | more, "spec": spec, "status": {"phase": phase}}


async def recorded_of(ledger: MemoryLedger) -> RecordedFleet:
    """What the ledger has of the fleet, also as a snapshot has it."""
    found = await FleetJournal(ledger, epoch_of(FLEET.seed)).catch_up()
    assert fleet_of_rows(rows_of_fleet(found, epoch_of(FLEET.seed))) == found
    return found


async def found_in(ledger: MemoryLedger, *pods: Any) -> ResumeState:
    return resume_state(FLEET, await recorded_of(ledger), pods, {}, Random(1), RATES)


async def test_an_empty_ledger_is_a_new_fleet() -> None:
    state = await found_in(MemoryLedger())
    assert state == ResumeState(new_fleet(FLEET), {}, [])


async def test_cards_are_where_they_were_seen_last() -> None:
    ledger, slot_ids = MemoryLedger(), FLEET.slot_ids()
    agents = agents_of(ledger)
    later = FLEET.card(slot_ids[0], 3)
    await agents.observed(FIRST, [FLEET.card(slot_ids[0], 0), FLEET.card(slot_ids[1], 0)])
    await agents.observed(FIRST, [later, FLEET.card(slot_ids[1], 0)])
    await agents.failed(FIRST, later, "XID 48", "Double-bit ECC error")
    await agents.failed(SECOND, FLEET.card(slot_ids[2], 0), "XID 31", "an application's")
    await agents.observed(FIRST, [later])
    await agents.flush()
    start = (await found_in(ledger)).start
    assert start.cards == {slot_ids[0]: later, **{slot_id: FLEET.card(slot_id, 0) for slot_id in slot_ids[2:]}}
    assert start.lives == {slot_ids[0]: 3, slot_ids[1]: 0, slot_ids[2]: 0, slot_ids[3]: 0}
    assert start.failed == {slot_ids[0]}


async def test_a_card_that_was_mended_is_in_service() -> None:
    ledger, slot_ids = MemoryLedger(), FLEET.slot_ids()
    agents, card = agents_of(ledger), FLEET.card(slot_ids[0], 0)
    await agents.observed(FIRST, [card, FLEET.card(slot_ids[1], 0)])
    await agents.failed(FIRST, card, "XID 95", "Uncontained memory error")
    await agents.unhealthy(FIRST, card, "XID 95", "Uncontained memory error")
    await agents.flush()
    assert (await found_in(ledger)).start.failed == {slot_ids[0]}
    await agents.healthy(FIRST, card)
    await agents.flush()
    assert (await found_in(ledger)).start.failed == frozenset()


async def test_nodes_are_prepared_as_far_as_they_were() -> None:
    ledger = MemoryLedger()
    agents = agents_of(ledger)
    card = FLEET.card(FLEET.slot_ids()[0], 0)
    for node in (FIRST, FIRST, SECOND):
        await agents.heart_beat(node)
    await agents.flush()
    recorded = await recorded_of(ledger)
    state = resume_state(FLEET, recorded, [], {FIRST: {"nvidia-dcgm"}, "another": {"nvidia-dcgm"}}, Random(1), RATES)
    assert state.start.prepared == {
        FIRST: NodeProgress(frozenset({"nvidia-dcgm"}), 2),
        SECOND: NodeProgress(frozenset(), 1),
    }
    await agents.healthy(FIRST, card)
    await agents.flush()
    assert (await recorded_of(ledger)).heartbeats == {FIRST: 0, SECOND: 1}


async def test_pods_are_distinguished() -> None:
    ledger = MemoryLedger()
    agents = agents_of(ledger)
    for name in ("train-000007", "ended-000001", "gone-000009", "over-000002", "moved-000003"):
        await agents.scheduled(running_pod(name), NOW)
    await agents.ended("ended-000001", SUCCEEDED)
    await agents.flush()
    state = await found_in(
        ledger,
        live("train-000007", "Running", FIRST),
        live("over-000002", FAILED, FIRST),
        live("moved-000003", "Running", SECOND),
        live("unsaid", "Running", FIRST),
        live("elsewhere", "Running", "another"),
        live("waits-000012"),
        live("theirs", SUCCEEDED, FIRST, ours=False),
    )
    assert [one.pod.name for one in state.start.running] == ["train-000007"]
    assert state.start.running[0].shares == running_pod("train-000007").shares
    assert [pod.name for pod in state.start.pending] == ["waits-000012"]
    assert [pod.name for pod in state.start.finished] == ["over-000002"]
    assert state.over == {"gone-000009": "Unknown", "over-000002": FAILED, "moved-000003": "Unknown"}
    assert state.stray == ["moved-000003", "unsaid"]
    assert state.start.next_number == 13


async def test_a_pod_that_is_being_deleted_is_over() -> None:
    ledger = MemoryLedger()
    agents = agents_of(ledger)
    await agents.scheduled(running_pod("a"), NOW)
    await agents.flush()
    state = await found_in(ledger, live("a", "Running", FIRST, deletionTimestamp="2026-01-01T00:00:00Z"))
    assert (state.over, state.stray, state.start.running) == ({"a": "Unknown"}, ["a"], ())


async def test_numbering_goes_on_and_ids_are_the_same_again() -> None:
    ledger = MemoryLedger()
    for _ in range(2):
        agents = agents_of(ledger)
        await agents.observed(FIRST, [])
        await agents.observed(SECOND, [])
        await agents.flush()
    assert await ledger.head() == 2, "a repetition with the same number is the same event"
    recorded = await recorded_of(ledger)
    assert (recorded.events, recorded.numbers) == (2, {source_of(FIRST): 1, source_of(SECOND): 1})
    for name in ("a", "b"):
        agents = agents_of(ledger, (await recorded_of(ledger)).numbers)
        await agents.ended(name, SUCCEEDED)
        await agents.observed(FIRST, [])
        await agents.flush()
    events = [decode(message.data) for message in await everything(ledger)]
    assert [(event.source, event.number) for event in events[2:]] == [
        (WORKLOADS, 1),
        (source_of(FIRST), 2),
        (WORKLOADS, 2),
        (source_of(FIRST), 3),
    ]


async def test_a_workload_that_an_agent_of_an_earlier_build_recorded_goes_on() -> None:
    ledger = MemoryLedger()
    data = WorkloadScheduled(gpu_milli=1000, node=FIRST)
    source, epoch = source_of(FIRST), epoch_of(FLEET.seed)
    event = Event("id", source, data.TYPE, names.workload_of("old-000004"), NOW, data, epoch, 7)
    await ledger.publish(outgoing(event))
    recorded = await recorded_of(ledger)
    assert (set(recorded.open), recorded.open["old-000004"].node) == ({"old-000004"}, FIRST)
    agents = agents_of(ledger, recorded.numbers)
    await agents.ended("old-000004", SUCCEEDED)
    await agents.flush()
    assert (await recorded_of(ledger)).open == {}


async def test_facts_of_other_sources_are_not_ours() -> None:
    ledger = MemoryLedger()
    other = Agents(ledger, "another", {}, clock=lambda: NOW, sleep=no_sleep)
    await other.observed(FIRST, [])
    await other.flush()
    await ledger.publish(Outgoing(f"ledger.node.{FIRST}.node.{FIRST}.devices-observed", "x", b"simulation-1 {"))
    await ledger.publish(Outgoing("ledger.node", "y", b"simulation-1"))
    assert (await found_in(ledger)).start == new_fleet(FLEET)


async def test_the_outbox_is_bounded() -> None:
    ledger = MemoryLedger()
    agents = agents_of(ledger)
    for _ in range(OUTBOX_MAX + 1):
        await agents.observed(FIRST, [])
    assert await ledger.head() == OUTBOX_MAX


def test_a_pod_requests_one_resource() -> None:
    assert requested_resource(live("a")) == (GPU_RESOURCE, 1)
    assert requested_resource({"spec": {}}) is None
    both = live("a")
    both["spec"]["containers"].append({"resources": {"limits": {"nvidia.com/mig-1g.10gb": "1"}}})
    assert requested_resource(both) is None
    assert not is_own_pod(live("a", ours=False))


@pytest.mark.parametrize(
    ("desired", "seed", "foreign"),
    [
        (FleetSpec(2, 2), 1, []),
        (FleetSpec(3, 4), 1, []),
        (FleetSpec(1, 2), 1, [SECOND]),
        (FleetSpec(2, 2), 2, [FIRST, SECOND]),
        (FleetSpec(2, 2, "t4"), 1, [FIRST, SECOND]),
    ],
)
def test_nodes_that_are_not_in_the_fleet_are_foreign(desired: FleetSpec, seed: int, foreign: list[str]) -> None:
    others = [{"metadata": {"name": "a"}, "spec": {"providerID": "aws:///i-1"}}, {"metadata": {"name": "b"}}]
    nodes = [*others, *map(objects.node, reversed(FLEET.nodes.values()))]
    assert leftover_nodes(Fleet(desired, seed), nodes) == LeftoverNodes((FIRST, SECOND), tuple(foreign))


def test_numbers_end_names() -> None:
    assert [number_of(name) for name in ("train-000012", "train-12", "x", "a-1234567890123")] == [12, 0, 0, 0]
