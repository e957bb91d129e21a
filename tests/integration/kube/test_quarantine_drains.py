"""From a monitor's report, or a pool's decision, to pods that leave, and to a drain that is cancelled.

History evicts nobody.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest

from gpuledger.deciders.health.projection import HealthProjection
from gpuledger.deciders.maintenance.projection import MaintenanceProjection
from gpuledger.edge.nodewriter.decide import CANCELLED
from gpuledger.events.allocation import AllocationObserved
from gpuledger.events.device import DeviceAssignmentChanged, Evacuation
from gpuledger.events.envelope import Decoded, Event, decode
from gpuledger.events.maintenance import NodeDrainChanged, NodeDrainFinished, NodeDrainProgressed, NodeDrainSuperseded
from gpuledger.events.node import NodeLabelled
from gpuledger.events.payload import Payload
from gpuledger.events.quarantine import QUARANTINE
from gpuledger.ledger.jetstream import JetStreamLedger
from gpuledger.projection.runner import Runner, RunnerSettings
from gpuledger.runtime.clock import system_clock
from support.draining import BUDGETS, blocked_pod, until
from support.enforcing import enforce
from support.killing import SteppingClient
from support.ledgers import everything
from support.maintenance import observed
from support.nodewriting import Maintainer, node_writer, settled
from support.projections import execute, publish, reaches, running
from support.quarantine import reported, rules
from support.waiting import eventually

CARD, OTHER = "GPU-aaaa", "GPU-bbbb"
SETTINGS = replace(RunnerSettings(), tick_s=0.05)
DRAINS: dict[str, Any] = {
    "name": "Drains",
    "match": {"all": [{"expression": "event.isFatal"}]},
    "drain": {"mode": "Immediate"},
}

pytestmark = pytest.mark.embedded_only("pods are bound and made ready without a scheduler and a kubelet")


class Chain:
    """Rules, the deciders and the node writer on one ledger, and a node with an agent."""

    def __init__(self, maintainer: Maintainer, url: str) -> None:
        self.maintainer = maintainer
        self.ledger: JetStreamLedger = maintainer.ledger
        self._url = url
        self._numbers: dict[str, int] = {}

    async def record(self, source: str, subject: str, data: Payload) -> None:
        number = self._numbers[source] = self._numbers.get(source, 0) + 1
        made: Decoded = Event(f"{source}/{number}", source, data.TYPE, subject, system_clock(), data, "e1", number)
        await publish(self.ledger, [made])

    async def begin(self, **ruleset: Any) -> None:
        """Put a rule into force, and have the ledger know the node."""
        uid = (await self.maintainer.node("n1"))["metadata"]["uid"]
        await self.maintainer.node("n2")
        await enforce(self.ledger, self._url)
        await self.record("/operators/eva", QUARANTINE, rules(DRAINS | ruleset))
        await self.record("/watchers/nodes", "n1", NodeLabelled(uid=uid))
        await self.record("/watchers/nodes", "n1", observed(uid))

    async def report(self, *, healthy: bool = False) -> None:
        """A monitor reports the card."""
        entities = [{"type": "GPU_UUID", "value": CARD}]
        await self.record("/nodes/n1/agent", "n1", reported(healthy=healthy, entities=entities))

    async def holds(self, pod: str, unit: str) -> None:
        """The node's agent reports who has a unit."""
        place = {"node": "n1", "namespace": "default", "pod": pod, "container": "main"}
        held = {"resources": [{"resource": "nvidia.com/gpu", "devices": [unit]}]}
        data = AllocationObserved.model_validate({**place, **held})
        await self.record("/nodes/n1/agent", f"n1/default/{pod}/main", data)

    async def intent(self) -> Decoded:
        """The first intent to drain the node."""
        found: list[Decoded] = []

        async def is_there() -> bool:
            events = [decode(one.data) for one in await everything(self.ledger)]
            found[:] = [one for one in events if isinstance(one.data, NodeDrainChanged)]
            return bool(found)

        await eventually(is_there)
        return found[0]

    @asynccontextmanager
    async def runs(self, client: SteppingClient, *, settles: bool = True) -> AsyncIterator[None]:
        """The services run, and where the block `settles` have done everything at its end."""
        async with (
            running(Runner(HealthProjection(), self.ledger, self._url, settings=SETTINGS)),
            running(Runner(MaintenanceProjection(), self.ledger, self._url, settings=SETTINGS)),
            node_writer(self.ledger, self._url, client) as writer,
        ):
            yield
            if not settles:
                return
            head = await self.ledger.head()
            for service in ("health", "maintenance"):
                await reaches(self._url, service, head)
            await settled(writer, self.ledger)


def _lose_rows(url: str) -> None:
    """As when a database was lost: neither rows nor checkpoints nor outboxes of the services are left."""
    for spec in (*HealthProjection.specs, *MaintenanceProjection.specs):
        execute(url, f"DELETE FROM gpuledger_live.{spec.name}")
    for name in ("projection", "numbers_seen", "numbers_seen_position", "decider", "outbox"):
        execute(url, f"DELETE FROM gpuledger.{name}")
    execute(url, "TRUNCATE gpuledger.snapshot CASCADE")


async def test_a_drain_by_a_rule_is_cancelled_when_health_returns_and_history_evicts_nobody(
    maintainer: Maintainer, migrated_url: str, writing: SteppingClient
) -> None:
    chain = Chain(maintainer, migrated_url)
    await chain.begin()
    await blocked_pod(maintainer, "a", "n1")
    async with chain.runs(writing, settles=False):
        await chain.report()
        intent = await chain.intent()
        await until(maintainer, intent, NodeDrainProgressed, "Blocked: ")
        assert (await maintainer.spec("n1"))["unschedulable"] is True
    async with chain.runs(writing):
        await chain.report(healthy=True)
        over = await until(maintainer, intent, NodeDrainSuperseded)
        assert over.data == NodeDrainSuperseded(intent=intent.id, reason="Newer", message=CANCELLED)
    assert ((await maintainer.spec("n1"))["unschedulable"], await maintainer.pods()) == (False, ["a"])
    await maintainer.client.delete(BUDGETS, "pdb-a", "default")
    written, recorded = list(writing.written), len(await everything(chain.ledger))
    _lose_rows(migrated_url)
    async with chain.runs(writing):
        pass
    assert (writing.written, await maintainer.pods()) == (written, ["a"])
    assert len(await everything(chain.ledger)) == recorded, "nothing is decided a second time"


async def test_a_rule_drains_the_card_that_failed_and_no_other(
    maintainer: Maintainer, migrated_url: str, writing: SteppingClient
) -> None:
    chain = Chain(maintainer, migrated_url)
    await chain.begin(drain_scope="device")
    for pod, unit in (("a", CARD), ("b", OTHER)):
        await maintainer.pod(pod, "n1", resources={"limits": {"nvidia.com/gpu": "1"}})
        await chain.holds(pod, unit)
    async with chain.runs(writing):
        await chain.report()
        await until(maintainer, await chain.intent(), NodeDrainFinished)
    assert (await maintainer.pods(), writing.evictions()) == (["b"], ["a"])
    assert (await maintainer.spec("n1"))["unschedulable"] is False


async def test_pods_leave_a_device_that_leaves_its_pool(
    maintainer: Maintainer, migrated_url: str, writing: SteppingClient
) -> None:
    chain = Chain(maintainer, migrated_url)
    await chain.begin()
    for pod, unit in (("a", CARD), ("b", OTHER)):
        await maintainer.pod(pod, "n1", resources={"limits": {"nvidia.com/gpu": "1"}})
        await chain.holds(pod, unit)
    evacuation = Evacuation(node="n1", device=CARD, mode="Immediate")
    leaves = DeviceAssignmentChanged(pool="p", phase="Unassigning", reason="NotAskedFor", evacuation=evacuation)
    async with chain.runs(writing):
        await chain.record("/services/pools", "n1-0", leaves)
        await until(maintainer, await chain.intent(), NodeDrainFinished)
    async with chain.runs(writing):
        await chain.record("/services/pools", "n1-0", DeviceAssignmentChanged(reason="NotAskedFor"))
    assert (await maintainer.pods(), writing.evictions()) == (["b"], ["a"])
    assert (await maintainer.spec("n1"))["unschedulable"] is False
    requests = execute(migrated_url, "SELECT owner, ended_at IS NULL FROM gpuledger_live.maintenance_request")
    assert requests == [("pools/n1-0", False)]
