"""The simulated agents' part in pools, against an API server: devices are set up, refused, and let go."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from typing import Any, Final

import pytest

from gpuledger.api.kinds import CLUSTER_GPU_POOLS, GPU_DEVICES, GPU_POOLS, NAMESPACES, PODS
from gpuledger.edge.kube.client import KubeClient
from gpuledger.events.device import Card, DevicePoolApplied, DevicePoolRefused, DevicePoolReleased
from gpuledger.events.envelope import Decoded
from gpuledger.events.workload import WorkloadEnded, WorkloadScheduled, WorkloadSubmitted
from gpuledger.ledger.memory import MemoryLedger
from gpuledger.tools.simulation import names
from gpuledger.tools.simulation.fleet import Fleet, FleetSpec
from gpuledger.tools.simulation.hardware import GPU_RESOURCE
from gpuledger.tools.simulation.workload import Rates
from support.kube_equipped import equipped_client
from support.kube_fleet import create
from support.kube_server import KubeServer
from support.simulating import FastClock, events_of, simulate
from support.waiting import eventually

SPEC: Final = FleetSpec(nodes=1, gpus=2, profile="a100")
FLEET: Final = Fleet(SPEC, 1)
(NODE,) = FLEET.nodes
CARDS: Final = [FLEET.card(slot_id, 0) for slot_id in FLEET.slot_ids()]
QUIET: Final = Rates(load=1e-6, failures_per_1000_node_days=0)
TEAM: Final = {"name": "train", "namespace": "team"}
UNASSIGNING: Final = {
    "type": "Unassigning",
    "status": "True",
    "reason": "AnnotationRemoved",
    "message": "",
    "lastTransitionTime": "2026-01-01T00:00:00Z",
}


@pytest.fixture
async def client(kube: KubeServer) -> AsyncIterator[KubeClient]:
    async with equipped_client(kube) as client:
        yield client


@pytest.fixture
async def ledger(client: KubeClient) -> AsyncIterator[MemoryLedger]:
    """What the agents of a running fleet say; next to nothing happens in it by itself."""
    ledger = MemoryLedger()
    running = asyncio.create_task(simulate(client, ledger, FastClock(1e9), spec=SPEC, rates=QUIET, speed=0.001))
    await eventually(lambda: has_event(ledger, lambda event: event.subject == NODE))
    yield ledger
    running.cancel()
    with suppress(asyncio.CancelledError):
        await running


async def has_event(ledger: MemoryLedger, matches: Callable[[Decoded], object]) -> bool:
    return any(matches(event) for event in await events_of(ledger))


async def recorded(ledger: MemoryLedger, data: object, device: str = "d") -> None:
    """Return when the node's agent has said it of a device."""
    await eventually(lambda: has_event(ledger, lambda event: event.data == data and event.subject == device))


async def show(client: KubeClient, device: str, card: Card, state: str, pool: dict[str, str], **more: Any) -> None:
    """Have a card's GPUDevice, made for that, show a state."""
    await create(client, GPU_DEVICES, {"metadata": {"name": device}})
    hardware = {"uuid": card.uuid, "pci": {"address": card.pci_address}}
    status = {"nodeName": NODE, "managed": True, "state": state, "hardware": hardware, "poolRef": pool} | more
    await client.merge_patch(GPU_DEVICES, device, {"status": status}, subresource="status")


async def pending(client: KubeClient, pool: dict[str, str]) -> None:
    await show(client, "d", CARDS[0], "PendingAssignment", pool)


async def run_pod(client: KubeClient, name: str, gpus: int) -> None:
    limits = {"limits": {GPU_RESOURCE: str(gpus)}}
    spec = {"containers": [{"name": "c", "image": "i", "resources": limits}]}
    await create(client, PODS, {"metadata": {"name": name, "namespace": names.DEMO_NAMESPACE}, "spec": spec})


async def team_pool(client: KubeClient, **resource: Any) -> None:
    await create(client, NAMESPACES, {"metadata": {"name": TEAM["namespace"]}})
    await create(client, GPU_POOLS, {"metadata": TEAM, "spec": {"resource": resource}})


async def test_a_device_that_waits_for_its_pool_is_set_up(client: KubeClient, ledger: MemoryLedger) -> None:
    await create(client, CLUSTER_GPU_POOLS, {"metadata": {"name": "all"}, "spec": {"resource": {"unit": "Card"}}})
    await pending(client, {"name": "all"})
    await recorded(ledger, DevicePoolApplied(pool="all"))


async def test_a_mig_pool_gets_as_many_partitions_as_fit(client: KubeClient, ledger: MemoryLedger) -> None:
    await team_pool(client, unit="MIG", migProfile="2g.20gb")
    await pending(client, TEAM)
    await recorded(ledger, DevicePoolApplied(pool="team/train", partitions=3))


async def test_pods_get_no_whole_card_that_a_mig_pool_has(client: KubeClient, ledger: MemoryLedger) -> None:
    """Nor is a card divided that a pod holds; once it has left the pool, it is a whole one again."""
    await team_pool(client, unit="MIG", migProfile="2g.20gb")
    await run_pod(client, "holder", 1)
    await eventually(lambda: is_scheduled(ledger, "holder"))
    await show(client, "d", CARDS[0], "PendingAssignment", TEAM)
    await show(client, "e", CARDS[1], "PendingAssignment", TEAM)
    applied = DevicePoolApplied(pool="team/train", partitions=3)
    await recorded(ledger, applied, "e")
    await run_pod(client, "other", 1)
    assert not await has_event(ledger, lambda event: event.data == applied and event.subject == "d")
    await client.delete(PODS, "holder", names.DEMO_NAMESPACE)
    await recorded(ledger, applied, "d")
    assert not await is_scheduled(ledger, "other"), "it came before the holder went, and the card e was free"
    await client.merge_patch(GPU_DEVICES, "e", {"status": {"state": "Ready", "poolRef": None}}, subresource="status")
    await eventually(lambda: is_scheduled(ledger, "other"))


async def is_scheduled(ledger: MemoryLedger, pod: str) -> bool:
    name = names.workload_of(pod)
    return await has_event(ledger, lambda event: event.subject == name and isinstance(event.data, WorkloadScheduled))


async def test_a_card_that_cannot_be_divided_so_is_refused(client: KubeClient, ledger: MemoryLedger) -> None:
    await team_pool(client, unit="MIG", migProfile="1g.5gb")
    await pending(client, TEAM)
    refused = DevicePoolRefused(
        pool="team/train", reason="MigProfileNotSupported", message="The card cannot be divided by 1g.5gb."
    )
    await recorded(ledger, refused)


async def test_a_device_leaves_its_pool_once_no_pod_holds_it(client: KubeClient, ledger: MemoryLedger) -> None:
    """Nobody else gets the card before it has left, though a pod waits for it."""
    released = DevicePoolReleased(pool="team/train")
    holder, other = names.workload_of("holder"), names.workload_of("other")
    await run_pod(client, "holder", 1)
    await eventually(lambda: has_event(ledger, lambda event: isinstance(event.data, WorkloadScheduled)))
    await run_pod(client, "other", 2)
    await show(client, "d", CARDS[0], "Assigned", TEAM, conditions=[UNASSIGNING])
    await show(client, "e", CARDS[1], "Assigned", TEAM, conditions=[UNASSIGNING])
    await recorded(ledger, released, "e")
    assert not await has_event(ledger, lambda event: event.data == released and event.subject == "d")
    await client.delete(PODS, "holder", names.DEMO_NAMESPACE)
    await eventually(
        lambda: has_event(ledger, lambda event: event.subject == other and isinstance(event.data, WorkloadScheduled))
    )
    events = [(event.subject, type(event.data)) for event in await events_of(ledger)]
    happened = [one for one in events if one[0] in {holder, "d", other} and one[1] is not WorkloadSubmitted]
    assert happened == [
        (holder, WorkloadScheduled),
        (holder, WorkloadEnded),
        ("d", DevicePoolReleased),
        (other, WorkloadScheduled),
    ]
