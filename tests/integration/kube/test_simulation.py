"""The simulated fleet against an API server: nodes, features, pods and the ledger's facts agree."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from typing import Any, Final

import pytest

from gpuledger.api.kinds import NAMESPACE, NODE_FEATURES, NODES, PODS
from gpuledger.api.labels import LABEL_APP
from gpuledger.domain.inventory.labels import gpus_among, pci_devices
from gpuledger.edge.kube.client import KubeClient, Selection, open_client
from gpuledger.edge.kube.errors import NotFoundError
from gpuledger.events.device import DeviceFailed, DeviceHealthChanged
from gpuledger.events.envelope import Decoded, decode
from gpuledger.events.health import NodeHealthReported
from gpuledger.events.node import NodeDevicesObserved, NodeMonitoringObserved, PciDevice
from gpuledger.events.settings import HEARTBEATS_MAX
from gpuledger.events.workload import WorkloadEnded, WorkloadScheduled, WorkloadSubmitted
from gpuledger.ledger.errors import LedgerUnavailableError
from gpuledger.ledger.memory import MemoryLedger
from gpuledger.tools.simulation import names
from gpuledger.tools.simulation.components import COMPONENTS
from gpuledger.tools.simulation.failures import FATAL
from gpuledger.tools.simulation.fleet import FleetSpec
from gpuledger.tools.simulation.hardware import GPU_RESOURCE
from gpuledger.tools.simulation.schedule import SpeedError
from gpuledger.tools.simulation.workload import Rates
from support import simulating
from support.kube_proxy import KubeProxy
from support.kube_server import KubeServer, NewKube
from support.ledgers import DEADLINE_S
from support.simulating import FastClock, events_of

SPEC = FleetSpec(nodes=3, gpus=4, profile="h200")
SPEED = 60.0
EVENTFUL = Rates(
    load=0.8,
    duration_median_s=300,
    finished_kept_s=3_600,
    failures_per_1000_node_days=200_000,
    removal_mean_s=300,
    insertion_mean_s=300,
)
DEMO: Final = Selection(namespace=names.DEMO_NAMESPACE)


@pytest.fixture
async def client(kube: KubeServer) -> AsyncIterator[KubeClient]:
    """A client of an empty server."""
    async with open_client(kube.kubeconfig) as client:
        yield client


async def simulate(
    client: KubeClient, ledger: Any, clock: FastClock, *, rates: Rates = EVENTFUL, speed: float = SPEED
) -> None:
    await simulating.simulate(client, ledger, clock, spec=SPEC, rates=rates, speed=speed)


def held(events: list[Decoded]) -> dict[str, WorkloadScheduled]:
    """What the ledger says that pods hold."""
    open_: dict[str, WorkloadScheduled] = {}
    for event in events:
        if isinstance(event.data, WorkloadScheduled):
            open_[event.subject] = event.data
        elif isinstance(event.data, WorkloadEnded):
            del open_[event.subject]
    return open_


def check_ledger(events: list[Decoded], clock: FastClock) -> None:
    """Numbered without gaps, nothing in the future, no GPU held twice, no end without a beginning."""
    numbers: Counter[str] = Counter()
    cards: dict[str, set[str]] = {}
    in_use: Counter[str] = Counter()
    shares: dict[str, WorkloadScheduled] = {}
    for event in events:
        numbers[event.source] += 1
        assert (event.number, event.epoch) == (numbers[event.source], "simulation-1")
        assert event.time <= clock.time
        if isinstance(event.data, NodeDevicesObserved):
            assert event.source == f"/nodes/{event.subject}/agent"
            cards[event.subject] = {str(card.uuid) for card in event.data.cards}
        elif isinstance(event.data, WorkloadScheduled):
            shares[event.subject] = event.data
            in_use.update({share.device: share.gpu_milli for share in event.data.devices})
            assert {share.device for share in event.data.devices} <= cards[str(event.data.node)]
            assert max(in_use.values()) <= 1000
        elif isinstance(event.data, WorkloadEnded):
            in_use.subtract({share.device: share.gpu_milli for share in shares.pop(event.subject).devices})
    seen = [card for node in cards.values() for card in node]
    assert len(seen) == len(set(seen))


async def check_cluster(client: KubeClient, events: list[Decoded]) -> None:
    """The cluster shows what the ledger says."""
    cards = {event.subject: event.data.cards for event in events if isinstance(event.data, NodeDevicesObserved)}
    nodes = {node["metadata"]["name"]: node for node in (await client.list(NODES)).items}
    features = {one["metadata"]["name"]: one for one in (await client.list(NODE_FEATURES)).items}
    assert set(nodes) == set(cards) == set(features)
    for name, node in nodes.items():
        kinds = [(card.pci_vendor, card.pci_device) for card in cards[name]]
        labelled = gpus_among(pci_devices(node["metadata"]["labels"]))
        assert [(gpu.pci_vendor, gpu.pci_device) for gpu in labelled.gpus] == kinds
        elements = features[name]["spec"]["features"]["instances"]["pci.device"]["elements"]
        pci = [
            PciDevice(index=index, **{f"pci_{key}": value for key, value in one["attributes"].items()})
            for index, one in enumerate(elements)
        ]
        assert [(gpu.pci_vendor, gpu.pci_device) for gpu in gpus_among(pci).gpus] == kinds
        assert node["status"]["capacity"][GPU_RESOURCE] == str(len(kinds))
        assert int(node["status"]["allocatable"][GPU_RESOURCE]) <= len(kinds)
        assert {one["type"]: one["status"] for one in node["status"]["conditions"]}["Ready"] == "True"
        assert node["spec"].get("taints") in (None, [])
        assert (await client.get(names.LEASES, name, names.LEASE_NAMESPACE))["spec"]["holderIdentity"] == name
    running = {
        names.workload_of(pod["metadata"]["name"]): pod["spec"]["nodeName"]
        for pod in (await client.list(PODS, DEMO)).items
        if pod["status"]["phase"] == "Running"
    }
    assert running == {workload: data.node for workload, data in held(events).items()}


async def test_cluster_and_ledger_agree(client: KubeClient) -> None:
    ledger, clock = MemoryLedger(), FastClock(180)
    await simulate(client, ledger, clock)
    events = await events_of(ledger)
    check_ledger(events, clock)
    await check_cluster(client, events)
    kinds = Counter(type(event.data) for event in events)
    assert kinds[WorkloadSubmitted] == kinds[WorkloadScheduled] > kinds[WorkloadEnded] > 10
    assert kinds[DeviceFailed] > 0
    assert kinds[NodeDevicesObserved] > SPEC.nodes
    phases = Counter(pod["status"]["phase"] for pod in (await client.list(PODS, DEMO)).items)
    assert phases["Succeeded"] > 0


async def check_prepared(client: KubeClient, events: list[Decoded]) -> None:
    """Every node has a ready pod of every component; every agent has told the first heartbeats, and then no more."""
    pods = (await client.list(PODS, Selection(namespace=NAMESPACE))).items
    ready = Counter((pod["spec"]["nodeName"], pod["metadata"]["labels"][LABEL_APP]) for pod in pods if is_ready(pod))
    nodes = {event.subject for event in events if isinstance(event.data, NodeDevicesObserved)}
    assert ready == Counter((node, component.app) for node in nodes for component in COMPONENTS)
    assert beats_since_counted(events) == dict.fromkeys(nodes, HEARTBEATS_MAX)


def is_ready(pod: dict[str, Any]) -> bool:
    return {one["type"]: one["status"] for one in pod["status"].get("conditions", ())}.get("Ready") == "True"


def beats_since_counted(events: list[Decoded]) -> dict[str, int]:
    """Heartbeats that each node's agent told since it began, or since a card's health changed."""
    beats: dict[str, int] = {}
    for event in events:
        node = event.source.split("/")[2]
        if isinstance(event.data, DeviceHealthChanged):
            beats[node] = 0
        elif isinstance(event.data, NodeMonitoringObserved):
            assert event.data.fresh
            beats[node] = beats.get(node, 0) + 1
    return beats


async def test_nodes_are_prepared_once(client: KubeClient) -> None:
    ledger, clock = MemoryLedger(), FastClock(60)
    quiet = Rates(load=0.1, failures_per_1000_node_days=0)
    await simulate(client, ledger, clock, rates=quiet)
    await check_prepared(client, await events_of(ledger))
    again = FastClock(60, clock.time)
    await simulate(client, ledger, again, rates=quiet)
    events = await events_of(ledger)
    check_ledger(events, again)
    await check_prepared(client, events)


async def test_a_card_that_fails_for_good_is_unhealthy_until_it_is_reset(client: KubeClient) -> None:
    ledger, clock = MemoryLedger(), FastClock(180)
    await simulate(client, ledger, clock)
    healthy: dict[str, bool] = {}
    changes: Counter[bool] = Counter()
    reported: Counter[bool] = Counter()
    fatal: list[str] = []
    for event in await events_of(ledger):
        if isinstance(event.data, DeviceFailed) and event.data.kind in FATAL:
            fatal.append(event.subject)
        elif isinstance(event.data, DeviceHealthChanged):
            assert healthy.get(event.subject, True) != event.data.healthy
            assert event.data.healthy or fatal[-1] == event.subject
            healthy[event.subject] = event.data.healthy
            changes[event.data.healthy] += 1
        elif isinstance(event.data, NodeHealthReported):
            assert event.data.healthy or event.data.devices == (fatal[-1],)
            reported[event.data.healthy] += 1
    assert changes[False] == len(fatal) > 0
    assert changes[True] > 0
    assert reported == changes, "a monitor reports what the agent finds"


async def test_a_cordoned_node_gets_no_more_pods(client: KubeClient) -> None:
    ledger, quiet = MemoryLedger(), Rates(load=0.8, duration_median_s=300, failures_per_1000_node_days=0)
    clock = FastClock(60)
    await simulate(client, ledger, clock, rates=quiet)
    node = (await client.list(NODES)).items[0]["metadata"]["name"]
    await client.merge_patch(NODES, node, {"spec": {"unschedulable": True}})
    before = len(await events_of(ledger))
    await simulate(client, ledger, FastClock(120, clock.time), rates=quiet)
    scheduled = [one.data.node for one in (await events_of(ledger))[before:] if isinstance(one.data, WorkloadScheduled)]
    assert len(scheduled) > 5
    assert node not in scheduled


@pytest.mark.long
async def test_pods_that_wait_come_to_no_cordoned_node_when_the_fleet_goes_on(client: KubeClient) -> None:
    ledger, busy = MemoryLedger(), Rates(load=3, duration_median_s=60, failures_per_1000_node_days=0)
    clock = FastClock(60)
    await simulate(client, ledger, clock, rates=busy)
    node = (await client.list(NODES)).items[0]["metadata"]["name"]
    await client.merge_patch(NODES, node, {"spec": {"unschedulable": True}})
    for _ in range(2):
        before = len(await events_of(ledger))
        clock = FastClock(240, clock.time)
        await simulate(client, ledger, clock, rates=busy)
    late = [one.data.node for one in (await events_of(ledger))[before:] if isinstance(one.data, WorkloadScheduled)]
    assert late
    assert node not in late


async def test_goes_on_where_it_was(client: KubeClient) -> None:
    ledger, clock = MemoryLedger(), FastClock(60)
    await simulate(client, ledger, clock)
    before = held(await events_of(ledger))
    assert before
    again = FastClock(60, clock.time)
    await simulate(client, ledger, again)
    events = await events_of(ledger)
    check_ledger(events, again)
    await check_cluster(client, events)
    assert len((await client.list(NODES)).items) == SPEC.nodes


async def test_pods_that_a_new_cluster_does_not_have_are_over(new_kube: NewKube) -> None:
    ledger, clock = MemoryLedger(), FastClock(60)
    for _ in range(2):
        async with open_client((await new_kube()).kubeconfig) as client:
            await simulate(client, ledger, clock)
            events = await events_of(ledger)
            check_ledger(events, clock)
            await check_cluster(client, events)
        clock = FastClock(30, clock.time)


async def test_the_same_seed_gives_the_same_ledger(new_kube: NewKube) -> None:
    recorded = []
    for _ in range(2):
        ledger = MemoryLedger()
        async with open_client((await new_kube()).kubeconfig) as client:
            await simulate(client, ledger, FastClock(30))
        recorded.append([(event.id, event.subject, event.data) for event in await events_of(ledger)])
    assert recorded[0] == recorded[1]


async def test_servers_that_are_away_are_waited_for(client: KubeClient) -> None:
    class Shaky(MemoryLedger):
        failures = 3

        async def publish_many(self, messages: Any, expected: Any = None) -> Any:
            if self.failures:
                self.failures -= 1
                raise LedgerUnavailableError("away")
            return await super().publish_many(messages, expected)

    ledger, clock = Shaky(), FastClock(40)
    await simulate(client, ledger, clock)
    events = await events_of(ledger)
    check_ledger(events, clock)
    await check_cluster(client, events)


async def test_a_pod_of_a_user_runs_and_ends_when_it_is_deleted(client: KubeClient) -> None:
    ledger, clock, name = MemoryLedger(), FastClock(1e9), "mine"
    workload = names.workload_of(name)
    quiet = Rates(load=1e-6, failures_per_1000_node_days=0)
    running = asyncio.create_task(simulate(client, ledger, clock, rates=quiet, speed=0.001))

    async def recorded(kind: type) -> None:
        async with asyncio.timeout(DEADLINE_S):
            async with ledger.read() as reader:
                while True:
                    batch = [decode(message.data) for message in await reader.next_batch()]
                    if any(isinstance(event.data, kind) and event.subject == workload for event in batch):
                        return

    await all_nodes_recorded(ledger)
    limits = {"limits": {GPU_RESOURCE: "2"}}
    pod = {
        "metadata": {"name": name, "namespace": names.DEMO_NAMESPACE},
        "spec": {"containers": [{"name": "c", "image": "i", "resources": limits}]},
    }
    await client.create(PODS, pod)
    await recorded(WorkloadScheduled)
    assert (await client.get(PODS, name, names.DEMO_NAMESPACE))["status"]["phase"] == "Running"
    await client.delete(PODS, name, names.DEMO_NAMESPACE)
    await recorded(WorkloadEnded)
    with pytest.raises(NotFoundError):
        await client.get(PODS, name, names.DEMO_NAMESPACE)
    running.cancel()
    await running
    assert held(await events_of(ledger)) == {}


async def all_nodes_recorded(ledger: MemoryLedger) -> None:
    """Return when every node's agent has spoken, which is after the namespaces are there."""
    async with asyncio.timeout(DEADLINE_S), ledger.read() as reader:
        left = SPEC.nodes
        while left:
            left -= len(await reader.next_batch())


async def test_a_speed_that_is_none_is_refused(client: KubeClient) -> None:
    with pytest.raises(SpeedError, match="--speed: 0 is out of bounds"):
        await simulate(client, MemoryLedger(), FastClock(1), speed=0)


async def test_an_api_server_that_is_away_is_waited_for(proxy: KubeProxy) -> None:
    waited: list[float] = []

    class Clock(FastClock):
        async def sleep(self, seconds: float) -> None:
            waited.append(seconds)
            await super().sleep(seconds)

    await proxy.away()
    async with open_client(proxy.kubeconfig) as client:
        await simulate(client, MemoryLedger(), Clock(60))
    assert waited == sorted(waited)
    assert len(waited) > 3
