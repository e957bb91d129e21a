"""Servers and services with an established fleet, and those who annotate, set up and watch.

The agent's part is played here: a device is set up as soon as it is shown to wait for that.
"""

import asyncio
import gc
import json
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing, asynccontextmanager, suppress
from pathlib import Path
from time import perf_counter
from typing import NamedTuple

from rich.console import Console

from bench.pools_fleet import SLICES, Fleet, FleetPool, module_config, namespaces, node_name, node_object, pool_object
from bench.pools_past import PEOPLE, Past, agent_of, device_at, make_past, show
from bench.pools_services import WATCHERS, Report
from bench.processes import api_server, at_once, process
from gpuledger.api.kinds import CLUSTER_GPU_POOLS, GPU_DEVICES, GPU_POOLS, MODULE_CONFIGS, NAMESPACES, NODES, Resource
from gpuledger.api.phases import DeviceState
from gpuledger.api.pool_ref import PoolRef
from gpuledger.edge.kube import crds
from gpuledger.edge.kube.client import KubeClient, KubeRequest, Object, open_client
from gpuledger.events.device import DevicePoolApplied
from gpuledger.events.envelope import Event, encode, nats_subject_of
from gpuledger.events.position import Offset, lag
from gpuledger.ledger.api import Ledger, Outgoing
from gpuledger.local.servers.nats import NatsServer
from gpuledger.runtime.clock import system_clock
from support.ledgers import new_ledger
from support.servers import short_directory

SERVICES = str(Path(__file__).with_name("pools_services.py"))
CHANGES_PER_S = 5.0
SETTLE_S = 1_800.0
SEEN_S = 120.0
CATCH_UP_S = 0.02
AGENTS_EPOCH = "now"

_progress = Console(stderr=True)


class PoolsSizes(NamedTuple):
    """How many nodes of eight devices, how many pools, two for each rack, and how many annotations."""

    nodes: int = 12_500
    pools: int = 1_000
    changes: int = 300
    relist_s: float = 30.0


class Change(NamedTuple):
    """A device that is to come into a pool, and the pool's capacity before."""

    device: str
    node: str
    pool: FleetPool
    total: int


class Seen:
    """When a device was annotated, and when it was first seen that it is, that its status and its pool's say so."""

    def __init__(self, change: Change, begun_s: float) -> None:
        self.change = change
        self.begun_s = begun_s
        self.annotated_s = self.waits_s = self.assigned_s = self.offered_s = 0.0

    @property
    def is_over(self) -> bool:
        """Whether all of it was seen."""
        return all((self.annotated_s, self.waits_s, self.assigned_s, self.offered_s))

    @property
    def counted_s(self) -> float:
        """When the device was assigned and its pool offered more."""
        return max(self.assigned_s, self.offered_s)


class Edge:
    """What is measured, and what was found on the way."""

    def __init__(self, client: KubeClient, ledger: Ledger, child: asyncio.subprocess.Process) -> None:
        self.report = Report("", 0, 1, 0, 0, 0, 0.0, 0, 0)
        self.objects = self.events = self.lists = self.changed_at_start = 0
        self.made_s = self.begun_s = 0.0
        self._client = client
        self._ledger = ledger
        self._child = child
        self._of_device: dict[str, Seen] = {}
        self._of_pool: dict[str, Seen] = {}
        self._agents: set[asyncio.Task[None]] = set()

    async def settle(self, head: Offset) -> None:
        """Return when the services have read and listed everything, and nothing waits to be looked at."""
        began = perf_counter()
        async with asyncio.timeout(SETTLE_S):
            while not self._is_settled():
                await self.listen()
        self.begun_s = perf_counter() - began
        self.changed_at_start = self.report.writes + lag(head, await self._ledger.head())

    def _is_settled(self) -> bool:
        report = self.report
        return report.state == "writing" and report.watchers == WATCHERS and not report.unlisted and not report.waiting

    async def listen(self) -> None:
        """Take what the services say next."""
        assert self._child.stdout is not None
        line = await self._child.stdout.readline()
        if not line:
            raise RuntimeError("the services ended")
        self.report = Report(**json.loads(line))

    async def change(self, changes: list[Change]) -> list[Seen]:
        """Annotate the devices, each when it is due whatever became of those before, until everything follows."""
        before, lists = await self._ledger.head(), self.report.lists
        async with self._watched(), asyncio.TaskGroup() as people:
            began = perf_counter()
            for number, change in enumerate(changes):
                due_s = began + number / CHANGES_PER_S
                await asyncio.sleep(max(0.0, due_s - perf_counter()))
                self._of_device[change.device] = self._of_pool[change.pool.id] = Seen(change, due_s)
                people.create_task(self._annotate(change))
            async with asyncio.timeout(SEEN_S):
                while not all(seen.is_over for seen in self._of_device.values()):  # noqa: ASYNC110
                    await asyncio.sleep(CATCH_UP_S)
        self.events, self.lists = lag(before, await self._ledger.head()), self.report.lists - lists
        return list(self._of_device.values())

    async def _annotate(self, change: Change) -> None:
        part = {
            "metadata": {
                "name": change.device,
                "annotations": PoolRef(change.pool.name, change.pool.namespace).assignment,
            }
        }
        await self._client.apply(GPU_DEVICES, part, field_manager=PEOPLE)

    @asynccontextmanager
    async def _watched(self) -> AsyncIterator[None]:
        saw = {GPU_DEVICES: self._saw_device, GPU_POOLS: self._saw_pool, CLUSTER_GPU_POOLS: self._saw_pool}
        versions = [await self._version(resource) for resource in saw]
        work = [self._watch(*one, version) for one, version in zip(saw.items(), versions, strict=True)]
        tasks = [asyncio.create_task(one) for one in (*work, self._keep_listening())]
        try:
            yield
        finally:
            for task in tasks:
                task.cancel()
                with suppress(asyncio.CancelledError):
                    await task

    async def _keep_listening(self) -> None:
        while True:
            await self.listen()

    async def _version(self, resource: Resource) -> str:
        """Which a watch misses nothing from; of all the objects one is enough for that."""
        answer = await self._client.send(KubeRequest("list one", "GET", resource.path(), {"limit": "1"}))
        return str(answer["metadata"]["resourceVersion"])

    async def _watch(self, resource: Resource, saw: Callable[[Object, float], None], version: str) -> None:
        async with aclosing(self._client.watch(resource, version)) as stream:
            async for batch in stream:
                now_s = perf_counter()
                for event in batch:
                    if event["type"] != "BOOKMARK":
                        saw(event["object"], now_s)

    def _saw_device(self, obj: Object, now_s: float) -> None:
        seen = self._of_device.get(obj["metadata"]["name"])
        if seen is None:
            return
        seen.annotated_s = seen.annotated_s or now_s
        status = obj["status"]
        if status.get("poolRef", {}).get("name") != seen.change.pool.name:
            return
        if status["state"] == DeviceState.PENDING_ASSIGNMENT and not seen.waits_s:
            seen.waits_s = now_s
            self._set_up(seen.change)
        elif status["state"] == DeviceState.ASSIGNED:
            seen.assigned_s = seen.assigned_s or now_s

    def _saw_pool(self, obj: Object, now_s: float) -> None:
        metadata = obj["metadata"]
        seen = self._of_pool.get("/".join(filter(None, (metadata.get("namespace"), metadata["name"]))))
        if seen is not None and obj["status"]["capacity"].get("total") == seen.change.total + SLICES:
            seen.offered_s = seen.offered_s or now_s

    def _set_up(self, change: Change) -> None:
        task = asyncio.create_task(self._record_applied(change))
        self._agents.add(task)
        task.add_done_callback(self._agents.discard)

    async def _record_applied(self, change: Change) -> None:
        """The node's agent, which says nothing else meanwhile."""
        data, source = DevicePoolApplied(pool=change.pool.id), agent_of(change.node)
        fact = Event(
            f"{change.device}-applied", source, data.TYPE, change.device, system_clock(), data, AGENTS_EPOCH, 1
        )
        await self._ledger.publish(Outgoing(nats_subject_of(fact), fact.id, encode(fact)))


@asynccontextmanager
async def established(database_url: str, sizes: PoolsSizes) -> AsyncIterator[tuple[Edge, list[Change]]]:
    """A fleet that has been there for a while, services that have just started with it, and what is to be changed."""
    fleet = Fleet(sizes.nodes, sizes.pools)
    with short_directory() as directory, NatsServer(directory / "nats") as nats:
        async with (
            api_server(directory) as kubeconfig,
            open_client(kubeconfig) as client,
            new_ledger(nats.url, name="bench people") as ledger,
        ):
            began = perf_counter()
            await _fill(client, fleet)
            past = await make_past(fleet, client, ledger, database_url)
            _print_progress(f"{past.position:,} events are recorded", began)
            objects = await show(fleet, past, client)
            made_s = perf_counter() - began
            _print_progress(f"{objects:,} objects are shown", began)
            changes = _chosen(fleet, past, sizes.changes)
            head = past.position
            del past
            gc.collect()  # what is left is gone through now, and not while something is measured
            arguments = (SERVICES, nats.url, database_url, str(kubeconfig), str(sizes.relist_s))
            async with process(*arguments) as child:
                edge = Edge(client, ledger, child)
                edge.objects, edge.made_s = objects, made_s
                await edge.settle(head)
                _print_progress("the services have started", began)
                yield edge, changes


def _print_progress(what: str, began_s: float) -> None:
    _progress.print(f"pools: {what}, after {perf_counter() - began_s:.0f} s")


async def _fill(client: KubeClient, fleet: Fleet) -> None:
    """What people and other programs put into the cluster."""
    await crds.install(client, crds.shipped() + crds.foreign())
    await client.create(MODULE_CONFIGS, module_config())
    await at_once(client.create(NAMESPACES, {"metadata": {"name": name}}) for name in namespaces())
    await at_once(client.create(NODES, node_object(fleet, node)) for node in range(fleet.nodes))
    await at_once(client.create(pool.resource, pool_object(pool)) for pool in fleet.all_pools())


def _chosen(fleet: Fleet, past: Past, changes: int) -> list[Change]:
    """Devices that nobody has asked for, each for another pool, which lie as far apart as they can."""
    waiting = [pool for pool in fleet.all_pools() if not pool.approves]
    step = len(waiting) // changes
    assert step, "a pool gets one device at most"
    return [_change(fleet, past, waiting[number * step], number) for number in range(changes)]


def _change(fleet: Fleet, past: Past, pool: FleetPool, number: int) -> Change:
    nodes = range(pool.rack, fleet.nodes, fleet.racks)
    node = nodes[number % len(nodes)]
    total = past.desired.pools.total.rows[pool.id].total
    assert total is not None, "what people made is supported"
    return Change(device_at(past, node, fleet.free_slot(pool)), node_name(node), pool, total)
