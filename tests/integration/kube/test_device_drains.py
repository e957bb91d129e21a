"""Drains of single devices on an API server: who leaves, who stays, and that the node is not cordoned for it."""

from dataclasses import replace

import pytest

from gpuledger.edge.nodewriter.drain_plan import UNCLEAR
from gpuledger.events.allocation import AllocationEnded, AllocationObserved
from gpuledger.events.maintenance import Drain, NodeDrainFinished, NodeDrainProgressed, NodeDrainSuperseded
from gpuledger.ledger.jetstream import JetStreamLedger
from gpuledger.projection.snapshots import SnapshotSettings
from gpuledger.runtime.clock import system_clock
from support.draining import IMMEDIATE, until
from support.events import event
from support.killing import SteppingClient
from support.nodewriting import QUICK, Maintainer, node_writer
from support.projections import execute, publish
from support.waiting import eventually

CARD, OTHER = "GPU-aaaa", "GPU-bbbb"
OF_CARD = Drain(mode="Immediate", devices=(CARD,))

pytestmark = pytest.mark.embedded_only("pods are bound and made ready without a scheduler and a kubelet")


class Agent:
    """The agent of `n1`, which reports who has what."""

    def __init__(self, ledger: JetStreamLedger) -> None:
        self._ledger = ledger
        self._number = 0

    async def reports(self, pod: str, *units: str) -> None:
        """The container of a pod has these units; without any it has ended."""
        self._number += 1
        place = {"node": "n1", "namespace": "default", "pod": pod, "container": "main"}
        held = {"resources": [{"resource": "nvidia.com/gpu", "devices": units}]}
        data = AllocationObserved.model_validate({**place, **held}) if units else AllocationEnded()
        made = event(data, f"n1/default/{pod}/main", source="/nodes/n1/agent", number=self._number)
        await publish(self._ledger, [made._replace(time=system_clock())])


async def gpu_pod(maintainer: Maintainer, name: str) -> None:
    """A pod on `n1` that requests a GPU."""
    requests = {"limits": {"nvidia.com/gpu": "1"}, "requests": {"nvidia.com/gpu": "1"}}
    await maintainer.pod(name, "n1", resources=requests)


async def test_pods_leave_that_hold_the_device(
    maintainer: Maintainer, migrated_url: str, writing: SteppingClient
) -> None:
    await maintainer.node("n1")
    agent = Agent(maintainer.ledger)
    for name, units in (("a", (CARD,)), ("b", (OTHER,)), ("c", (f"{CARD}::1",))):
        await gpu_pod(maintainer, name)
        await agent.reports(name, *units)
    await maintainer.pod("d", "n1")
    intent = await maintainer.drain("n1", OF_CARD)
    async with node_writer(maintainer.ledger, migrated_url, writing):
        await until(maintainer, intent, NodeDrainFinished)
    assert (await maintainer.pods(), sorted(writing.evictions())) == (["b", "d"], ["a", "c"])
    assert (await maintainer.spec("n1"))["unschedulable"] is False


async def test_who_may_hold_it_is_shown_and_stays_until_that_is_clear(
    maintainer: Maintainer, migrated_url: str, writing: SteppingClient
) -> None:
    await maintainer.node("n1")
    agent = Agent(maintainer.ledger)
    for name in "ab":
        await gpu_pod(maintainer, name)
    intent = await maintainer.drain("n1", OF_CARD)
    async with node_writer(maintainer.ledger, migrated_url, writing):
        report = await until(maintainer, intent, NodeDrainProgressed, UNCLEAR)
        assert isinstance(report.data, NodeDrainProgressed)
        assert ([one.pod for one in report.data.pods], writing.evictions()) == (["a", "b"], [])
        await agent.reports("a", CARD)
        await agent.reports("b", OTHER)
        await until(maintainer, intent, NodeDrainFinished)
    assert (await maintainer.pods(), writing.evictions()) == (["b"], ["a"])


async def test_a_pod_that_comes_while_the_drain_runs_leaves_too(
    maintainer: Maintainer, migrated_url: str, writing: SteppingClient
) -> None:
    await maintainer.node("n1")
    agent = Agent(maintainer.ledger)
    await gpu_pod(maintainer, "a")
    await agent.reports("a", CARD)
    kept = {"namespaces": [{"namespaces": "default", "mode": "AllowCompletion"}]}
    first = await maintainer.drain("n1", Drain.model_validate({**OF_CARD.model_dump(), **kept}))
    async with node_writer(maintainer.ledger, migrated_url, writing):
        await until(maintainer, first, NodeDrainProgressed, "Waits until it ends")
        second = await maintainer.drain("n1", OF_CARD)
        await gpu_pod(maintainer, "late")
        await agent.reports("late", CARD)

        async def are_gone() -> bool:
            return await maintainer.pods() == []

        await eventually(are_gone)
        await until(maintainer, first, NodeDrainSuperseded)
        await until(maintainer, second, NodeDrainFinished)


async def test_an_uncordoned_node_ends_the_drain_of_the_node_alone(
    maintainer: Maintainer, migrated_url: str, writing: SteppingClient
) -> None:
    await maintainer.node("n1")
    await maintainer.pod("a", "n1")
    both = await maintainer.drain("n1", IMMEDIATE, OF_CARD)
    async with node_writer(maintainer.ledger, migrated_url, writing):
        over = await until(maintainer, both, NodeDrainSuperseded)
        assert isinstance(over.data, NodeDrainSuperseded)
        assert (over.data.reason, writing.evictions()) == ("NotCordoned", [])


async def test_a_restart_from_a_snapshot_knows_who_holds_what(
    maintainer: Maintainer, migrated_url: str, writing: SteppingClient
) -> None:
    settings = replace(QUICK, snapshots=SnapshotSettings(events_min=1))
    await maintainer.node("n1")
    agent = Agent(maintainer.ledger)
    for name, unit in (("a", CARD), ("b", OTHER)):
        await gpu_pod(maintainer, name)
        await agent.reports(name, unit)

    async def is_kept() -> bool:
        await maintainer.drain("n1")
        return execute(migrated_url, "SELECT 1 FROM gpuledger.snapshot WHERE name = 'intents'") == [(1,)]

    async with node_writer(maintainer.ledger, migrated_url, writing, settings):
        await eventually(is_kept)
    intent = await maintainer.drain("n1", OF_CARD)
    async with node_writer(maintainer.ledger, migrated_url, writing, settings):
        await until(maintainer, intent, NodeDrainFinished)
    assert (await maintainer.pods(), writing.evictions()) == (["b"], ["a"])
