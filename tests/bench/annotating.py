"""How long a card takes from a person's annotation until the kubelet is offered its unit, and where that goes.

Everything between the two is real: an embedded API server, the services (watchers, inventory, bootstrap, pools, status
writer) as one process, and the agent of each node as another, with its kubelet. One free card after the other is
annotated, and the next one once the one before is Assigned. One card in four is the first of its pool on the node, for
which the agent begins to serve a plugin. A part ends when the ledger or the kubelet shows it.
"""

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from time import perf_counter
from typing import Final, NamedTuple

from bench.agent_process import NodeSpec, agent_process
from bench.pools_edge import SERVICES
from bench.pools_fleet import module_config
from bench.pools_past import PEOPLE
from bench.processes import api_server, percentile_ms, process
from bench.report import Figure
from gpuledger.api.kinds import CLUSTER_GPU_POOLS, GPU_DEVICES, MODULE_CONFIGS, NODES
from gpuledger.api.labels import NFD_WORKER_VERSION
from gpuledger.api.phases import AssignmentPhase, DeviceState
from gpuledger.api.pool_ref import PoolRef
from gpuledger.edge.kube import crds
from gpuledger.edge.kube.client import KubeClient, Object, open_client
from gpuledger.events.device import DeviceAssignmentChanged, DeviceMarked
from gpuledger.events.envelope import decode
from gpuledger.events.node import NodeDevicesWanted, NodeRegistered
from gpuledger.events.payload import Payload
from gpuledger.ledger.api import Ledger
from support.events import event, outgoing
from support.inventory import NFD, labels
from support.kubelet import FakeKubelet
from support.ledgers import new_ledger
from support.servers import nats_server, short_directory

SET_UP_MS: Final = 500.0
MODEL, PCI_DEVICE, PRODUCT = "H100", "2330", "NVIDIA-H100-80GB-HBM3"
CARDS_PER_POOL: Final = 4
READY_S: Final = 120.0
WAIT_S: Final = 60.0
POLL_S: Final = 0.001
RELIST_S: Final = 600.0

MARKED, ASSIGNED, ORDERED, OFFERED, WHOLE = (
    "annotation -> recorded",
    "recorded -> assigned to the pool",
    "assigned -> orders of the node",
    "orders -> unit offered to the kubelet",
    "annotation -> unit offered to the kubelet",
)
BEGAN, SHOWN, ACKNOWLEDGED, DONE = "began", "shown", "acknowledged", "done"
LEGS: Final = 3
"""How many events follow from each other before the agent can begin: annotation, assignment, orders."""


class AnnotatingSizes(NamedTuple):
    """How many nodes there are, and how many cards each has."""

    nodes: int = 3
    cards: int = 16


FULL = AnnotatingSizes()
QUICK = AnnotatingSizes(1, 2)


class Cluster(NamedTuple):
    """What is measured, by those who see it."""

    client: KubeClient
    ledger: Ledger
    kubelets: dict[str, FakeKubelet]


async def annotating(database_url: str, sizes: AnnotatingSizes = FULL) -> list[Figure]:
    """The whole and its parts at two percentiles, beside what no implementation can leave out."""
    found: defaultdict[str, list[float]] = defaultdict(list)
    async with _established(database_url, sizes) as cluster:
        for number, card in enumerate(await _free_cards(cluster.client), 1):
            parts = await _round(cluster, card, number)
            for name, seconds in parts.items():
                found[name].append(seconds)
    peer = f"the annotation shows, and {LEGS} acknowledgements"
    least = [shown + LEGS * one for shown, one in zip(found[SHOWN], found[ACKNOWLEDGED], strict=True)]
    return [
        Figure(
            f"{name}, p{percent}", percentile_ms(found[name], percent), "ms", peer, percentile_ms(least, percent),
            SET_UP_MS if (name, percent) == (WHOLE, 99) else None, is_ratio=False,
        )
        for name in (MARKED, ASSIGNED, ORDERED, OFFERED, WHOLE)
        for percent in (50, 99)
    ]  # fmt: skip


class Card(NamedTuple):
    """A free GPUDevice, the pool that it is to come into, and its place among the pool's cards of the node."""

    device: str
    node: str
    pool: PoolRef
    place: int


async def _round(cluster: Cluster, card: Card, number: int) -> dict[str, float]:
    """Annotate a device; returns the seconds of each part."""
    kubelet = cluster.kubelets[card.node]
    seen: dict[str, float] = {}
    async with (
        cluster.ledger.read(await cluster.ledger.head()) as reader,
        asyncio.timeout(WAIT_S),
        asyncio.TaskGroup() as watching,
    ):
        watching.create_task(_annotate(cluster.client, card, seen))
        watching.create_task(_offered(kubelet, card, seen))
        while DONE not in seen:
            for one in await reader.next_batch():
                fact = decode(one.data)
                if (part := _part(card, fact.subject, fact.data)) is not None:
                    seen.setdefault(part, perf_counter())
    acknowledged = await _acknowledged(cluster.ledger, number)
    return {
        MARKED: seen[MARKED] - seen[BEGAN],
        ASSIGNED: seen[ASSIGNED] - seen[MARKED],
        ORDERED: seen[ORDERED] - seen[ASSIGNED],
        OFFERED: seen[OFFERED] - seen[ORDERED],
        WHOLE: seen[OFFERED] - seen[BEGAN],
        SHOWN: seen[SHOWN] - seen[BEGAN],
        ACKNOWLEDGED: acknowledged,
    }


def _part(card: Card, subject: str, data: Payload) -> str | None:
    """Which part ends with an event."""
    match data:
        case DeviceMarked() if subject == card.device:
            return MARKED
        case DeviceAssignmentChanged(phase=AssignmentPhase.PENDING) if subject == card.device:
            return ASSIGNED
        case DeviceAssignmentChanged(phase=AssignmentPhase.ASSIGNED) if subject == card.device:
            return DONE
        case NodeDevicesWanted() if any(one.device == card.device for one in data.devices):
            return ORDERED
    return None


async def _annotate(client: KubeClient, card: Card, seen: dict[str, float]) -> None:
    """Annotate the device, and see that it is."""
    device = await client.get(GPU_DEVICES, card.device)
    part = {"metadata": {"name": card.device, "annotations": card.pool.assignment}}
    stream = client.watch(GPU_DEVICES, device["metadata"]["resourceVersion"])
    seen[BEGAN] = perf_counter()
    async with aclosing(stream):
        sending = asyncio.create_task(client.apply(GPU_DEVICES, part, field_manager=PEOPLE))
        async for batch in stream:
            annotated = (one for one in batch if one["object"]["metadata"].get("annotations"))
            if any(one["object"]["metadata"]["name"] == card.device for one in annotated):
                seen[SHOWN] = perf_counter()
                break
        await sending


async def _offered(kubelet: FakeKubelet, card: Card, seen: dict[str, float]) -> None:
    """See when the kubelet may hand out one unit of the pool more."""
    while True:
        listed = kubelet.resources.get(card.pool.resource_name)
        if listed is not None and len(listed.healthy) > card.place:
            seen[OFFERED] = perf_counter()
            return
        await asyncio.sleep(POLL_S)


async def _acknowledged(ledger: Ledger, number: int) -> float:
    """Seconds until the ledger has an event that concerns nobody."""
    message = outgoing(event(NodeRegistered(), "bench", number=number, source="/import/bench"))
    began = perf_counter()
    await ledger.publish(message)
    return perf_counter() - began


@asynccontextmanager
async def _established(database_url: str, sizes: AnnotatingSizes) -> AsyncIterator[Cluster]:
    """Servers, services, and nodes whose cards are all ready and free."""
    async with AsyncExitStack() as stack:
        folder = stack.enter_context(short_directory())
        nats = stack.enter_context(nats_server())
        ledger = await stack.enter_async_context(new_ledger(nats.url, name="bench people"))
        kubeconfig = await stack.enter_async_context(api_server(folder))
        client = await stack.enter_async_context(open_client(kubeconfig))
        await _fill(client, sizes)
        arguments = (SERVICES, nats.url, database_url, str(kubeconfig), str(RELIST_S))
        services = await stack.enter_async_context(process(*arguments))
        draining = asyncio.create_task(_drain(services))
        stack.callback(draining.cancel)
        kubelets = {}
        for node in map(_node_name, range(sizes.nodes)):
            place = folder / node
            place.mkdir()
            spec = NodeSpec(node, f"{sizes.cards}x{MODEL}")
            _, kubelets[node] = await stack.enter_async_context(agent_process(place, nats.url, spec))
        await _until_ready(client, sizes.nodes * sizes.cards)
        yield Cluster(client, ledger, kubelets)


async def _drain(child: asyncio.subprocess.Process) -> None:
    """The services go on telling how they are, which nobody asks here."""
    assert child.stdout is not None
    while await child.stdout.readline():
        pass


def _node_name(number: int) -> str:
    return f"node-{number}"


async def _fill(client: KubeClient, sizes: AnnotatingSizes) -> None:
    """What people and other programs put into the cluster."""
    await crds.install(client, crds.shipped() + crds.foreign())
    await client.create(MODULE_CONFIGS, module_config())
    for name in map(_node_name, range(sizes.nodes)):
        facts = labels(*[PCI_DEVICE] * sizes.cards, gpu_product=PRODUCT)
        metadata = {"name": name, "labels": facts, "annotations": {NFD_WORKER_VERSION: NFD}}
        await client.create(NODES, {"apiVersion": NODES.api_version, "kind": NODES.kind, "metadata": metadata})
    for number in range(-(-sizes.cards // CARDS_PER_POOL)):
        await client.create(CLUSTER_GPU_POOLS, _pool_object(_pool(number)))


def _pool(number: int) -> PoolRef:
    return PoolRef(f"pool-{number}")


def _pool_object(pool: PoolRef) -> Object:
    spec = {"resource": {"unit": "Card"}, "deviceSelector": {"include": {"pciVendors": ["10de"]}}}
    kind = CLUSTER_GPU_POOLS
    return {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": {"name": pool.name}, "spec": spec}


async def _until_ready(client: KubeClient, expected: int) -> None:
    """Return once all cards are ready, and reported by their agents: labels alone make them ready, too."""
    async with asyncio.timeout(READY_S):
        while sum(map(_is_ready, await _devices(client))) < expected:  # noqa: ASYNC110 - other processes work on it
            await asyncio.sleep(0.2)


async def _devices(client: KubeClient) -> list[Object]:
    return list((await client.list(GPU_DEVICES)).items)


def _is_ready(device: Object) -> bool:
    status = device.get("status") or {}
    return status.get("state") == DeviceState.READY and "uuid" in (status.get("hardware") or {})


async def _free_cards(client: KubeClient) -> list[Card]:
    """All cards, those of one node after the other; so many in a row are to come into a pool."""
    of_node: defaultdict[str, list[Object]] = defaultdict(list)
    for one in sorted(await _devices(client), key=lambda one: str(one["metadata"]["name"])):
        of_node[one["status"]["nodeName"]].append(one)
    return [
        Card(one["metadata"]["name"], node, _pool(number // CARDS_PER_POOL), number % CARDS_PER_POOL)
        for node, devices in sorted(of_node.items())
        for number, one in enumerate(devices)
    ]
