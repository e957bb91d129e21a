"""From a monitor's report over cordon, drain and remedy to the Node that is given back as it was; and what waits."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

from gpuledger.agent.health.card import CardHealth, Rules
from gpuledger.agent.health.decide import on_error
from gpuledger.agent.health.severity import DEFAULT_CLASSES
from gpuledger.api.kinds import NODES
from gpuledger.deciders.health.projection import HealthProjection
from gpuledger.deciders.inventory.projection import InventoryProjection
from gpuledger.deciders.maintenance.projection import MaintenanceProjection
from gpuledger.deciders.remediation.projection import RemediationProjection
from gpuledger.edge.kube.client import KubeClient, Object
from gpuledger.events.device import DeviceFailed, DeviceHealthChanged
from gpuledger.events.envelope import Decoded, Event, decode
from gpuledger.events.maintenance import NodeMaintenanceReleased, NodeMaintenanceRequested
from gpuledger.events.node import NodeLabelled, NodeObserved
from gpuledger.events.payload import Payload
from gpuledger.events.quarantine import QUARANTINE
from gpuledger.events.remediation import REMEDIATION, RemediationFinished, RemediationRequested
from gpuledger.ledger.jetstream import JetStreamLedger
from gpuledger.projection.runner import Runner, RunnerSettings
from gpuledger.runtime.clock import Instant, system_clock
from support.enforcing import enforce
from support.ledgers import everything
from support.maintenance import observed
from support.nodewriting import QUICK, node_writer
from support.projections import assert_true, lose_rows, publish, reaches, running
from support.quarantine import reported, rules, source_of
from support.remediating import Requester, install_remedies, remediator, show
from support.remediation import fault, remedies
from support.waiting import eventually

SETTINGS = replace(RunnerSettings(), tick_s=0.05)
DECIDERS = (HealthProjection, MaintenanceProjection, RemediationProjection)
EVA = "operators/eva"


class Story:
    """The whole chain on one ledger, with a Node that exists."""

    def __init__(self, requester: Requester) -> None:
        self.requester = requester
        self._numbers: dict[str, int] = {}

    async def record(self, subject: str, data: Payload) -> None:
        """Record a fact that was just found out."""
        source = "/watchers/nodes" if isinstance(data, NodeObserved) else source_of(subject, data)
        source = "/nodes/n1/agent" if isinstance(data, DeviceFailed | DeviceHealthChanged) else source
        number = self._numbers[source] = self._numbers.get(source, 0) + 1
        event: Decoded = Event(f"{source}/{number}", source, data.TYPE, subject, system_clock(), data, "e1", number)
        await publish(self.requester.ledger, [event])

    async def is_cordoned(self) -> bool:
        return bool((await self.requester.client.get(NODES, "n1"))["spec"].get("unschedulable"))

    async def is_given_back(self) -> bool:
        return not await self.is_cordoned()

    async def reboot(self) -> Object:
        """The object, once it is there."""

        async def is_there() -> bool:
            return bool(await self.requester.reboots())

        await eventually(is_there)
        (obj,) = await self.requester.reboots()
        return obj

    async def recorded(self, kind: type[Payload]) -> list[Decoded]:
        """All events of a type."""
        found = [decode(one.data) for one in await everything(self.requester.ledger)]
        return [one for one in found if isinstance(one.data, kind)]

    async def has(self, kind: type[Payload], count: int = 1) -> None:
        """Return once there are so many events of a type."""

        async def are_there() -> bool:
            return len(await self.recorded(kind)) == count

        await eventually(are_there)


@asynccontextmanager
async def story(ledger: JetStreamLedger, client: KubeClient, url: str) -> AsyncIterator[Story]:
    found = Story(Requester(ledger, client))
    await found.requester.claim()
    await install_remedies(client)
    uid = (await found.requester.node("n1", taints=[{"key": "theirs", "effect": "NoSchedule"}]))["metadata"]["uid"]
    await enforce(ledger, url)
    await found.record("n1", observed(uid))
    await found.record("n1", NodeLabelled(uid=uid))
    await found.record(QUARANTINE, rules())
    await found.record(REMEDIATION, remedies())
    async with (
        running(Runner(HealthProjection(), ledger, url, settings=SETTINGS)),
        running(Runner(MaintenanceProjection(), ledger, url, settings=SETTINGS)),
        running(Runner(RemediationProjection(), ledger, url, settings=SETTINGS)),
        node_writer(ledger, url, client, QUICK),
        remediator(ledger, url, client),
    ):
        yield found


async def test_a_fault_is_remedied_and_the_node_given_back_as_it_was(
    ledger: JetStreamLedger, client: KubeClient, migrated_url: str
) -> None:
    async with story(ledger, client, migrated_url) as found:
        before = (await client.get(NODES, "n1"))["spec"]
        pod = await found.requester.pod("train", "n1", grace_s=3600)
        drain = NodeMaintenanceRequested.model_validate(
            {"owner": EVA, "reason": "look", "drain": {"mode": "AllowCompletion"}}
        )
        await found.record("n1", drain)
        await eventually(found.is_cordoned)
        await found.record("n1", fault("0"))
        await found.has(NodeMaintenanceRequested, 2)
        for one in DECIDERS:
            await reaches(migrated_url, one.name, await ledger.head())
        assert await found.requester.reboots() == [], "a pod is left"
        await found.requester.end(pod)
        obj = await found.reboot()
        assert obj["spec"] == {"node": "n1", "why": "RESTART_BM"}
        await show(client, obj, "Done")
        await found.has(RemediationFinished)
        assert await found.is_cordoned(), "until a monitor reports it healthy"
        await found.record("n1", reported("0", healthy=True))
        await found.has(NodeMaintenanceReleased)
        assert await found.is_cordoned(), "the operator has not released it"
        await found.record("n1", NodeMaintenanceReleased(owner=EVA, reason="done"))
        await eventually(found.is_given_back)
        assert (await client.get(NODES, "n1"))["spec"] == before
        assert len(await found.recorded(RemediationRequested)) == 1
    await assert_true(ledger, migrated_url, [RemediationProjection()])


async def test_a_failure_escalates_once_though_the_rows_are_lost(
    ledger: JetStreamLedger, client: KubeClient, migrated_url: str
) -> None:
    async with story(ledger, client, migrated_url) as found:
        await found.record("n1", fault("0"))
        await show(client, await found.reboot(), "Broken")
        await found.has(RemediationRequested, 2)
    lose_rows(migrated_url, RemediationProjection)
    async with running(Runner(RemediationProjection(), ledger, migrated_url, settings=SETTINGS)):
        await reaches(migrated_url, "remediation", await ledger.head())
    requests = [one.data for one in await found.recorded(RemediationRequested)]
    assert [one.remedy for one in requests if isinstance(one, RemediationRequested)] == ["reboot", "replace"]


async def test_what_our_own_agent_finds_of_a_card_is_remedied(
    ledger: JetStreamLedger, client: KubeClient, migrated_url: str
) -> None:
    async with (
        story(ledger, client, migrated_url) as found,
        running(Runner(InventoryProjection(), ledger, migrated_url, settings=SETTINGS)),
    ):
        card, now = CardHealth("0000:17:00.0", "GPU-1", is_reported=True), Instant(1.0, system_clock())
        for fact in on_error(card, DEFAULT_CLASSES.xid(79), now, Rules("n1")).facts:
            await found.record(fact.subject, fact.data)
        obj = await found.reboot()
        assert (obj["spec"], await found.is_cordoned()) == ({"node": "n1", "why": "RESTART_BM"}, True)
        await show(client, obj, "Done")
        await found.has(RemediationFinished)
        await found.record("GPU-1", DeviceHealthChanged(healthy=True))
        await eventually(found.is_given_back)
        assert len(await found.recorded(RemediationRequested)) == 1
    await assert_true(ledger, migrated_url, [RemediationProjection()])
