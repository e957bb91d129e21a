"""The Kubernetes edge: from a Node's label to a GPUDevice's status, a cold start, and what all its services take.

The API server, the ledger and the services are processes of their own; this one plays the people who label Nodes and
look at statuses. Called as a program it is the services: `kube.py NATS_URL DATABASE_URL KUBECONFIG RELIST_S`.
"""

import asyncio
import json
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing, asynccontextmanager, suppress
from pathlib import Path
from time import perf_counter
from typing import Any, NamedTuple

import psycopg

if __name__ == "__main__":
    sys.path[0] = str(Path(__file__).parents[1])

from prometheus_client import REGISTRY

from bench.processes import api_server, at_once, percentile_ms, process
from bench.rebuilding import peak_kib
from bench.report import Figure
from bench.servers import unsynced_nats
from gpuledger.api.kinds import GPU_DEVICES, MODULE_CONFIG, MODULE_CONFIGS, NODES
from gpuledger.api.labels import LABEL_ENABLED, NFD_WORKER_VERSION
from gpuledger.deciders.inventory.projection import InventoryProjection
from gpuledger.edge.kube import crds
from gpuledger.edge.kube.client import KubeClient, open_client
from gpuledger.edge.statuswriter.service import StatusWriter
from gpuledger.edge.statuswriter.settings import StatusWriterSettings
from gpuledger.edge.watchers.service import run as watch
from gpuledger.ledger.jetstream import connect_ledger
from gpuledger.projection.followed_log import FollowedLog
from gpuledger.projection.runner import Runner
from gpuledger.runtime.garbage import short_walks
from gpuledger.runtime.telemetry import configure_logging
from support.inventory import NFD, labels
from support.servers import short_directory

DEVICES_PER_NODE = 8
MODEL = "20b5"
P95_MS = 150.0
MEMORY_MB = 600.0
CHANGES_PER_S = 5.0
STEADY_BEYOND_RELIST_S = 5.0
SETTLE_S = 1_200.0
TELL_S = 0.25


class KubeSizes(NamedTuple):
    """How many nodes, and how many changes of labels."""

    nodes: int = 2_000
    changes: int = 150
    memory_nodes: int = 5_000
    relist_s: float = 15.0
    """Between lists of everything, which in production are ten minutes apart: a change in eight meets one."""


FULL = KubeSizes()
QUICK = KubeSizes(20, 5, 40, 1.0)


async def kube(database_url: str, sizes: KubeSizes = FULL) -> list[Figure]:
    """Latency, cold start with its writes, and memory."""
    async with _edge(database_url, sizes.nodes, sizes.relist_s) as edge:
        figures = [*_cold_start(edge), *_latency(*await edge.change(sizes.changes))]
    await asyncio.to_thread(_forget, database_url)
    async with _edge(database_url, sizes.memory_nodes, sizes.relist_s) as edge:
        return [*figures, _memory(edge)]


Shown = tuple[str, str]
"""An object's name, and its node's."""


class Report(NamedTuple):
    """What the services say of themselves."""

    statuses: int
    writes: int
    waiting: int
    imports_kib: int
    peak_kib: int


class Edge:
    """Servers and services with a fleet in them."""

    def __init__(self, client: KubeClient, child: asyncio.subprocess.Process, nodes: int, relist_s: float) -> None:
        self.client = client
        self.nodes = nodes
        self.objects = nodes * (DEVICES_PER_NODE + 1) + 1
        self.relist_s = relist_s
        self.created_s = 0.0
        self.cold_s = 0.0
        self.report = Report(0, 0, 0, 0, 0)
        self._child = child

    async def settle(self) -> None:
        """Return when every object has its status, and lists and idling have passed without more."""
        began = perf_counter()
        async with asyncio.timeout(SETTLE_S):
            while self.report.statuses < self.objects or self.report.waiting:
                await self._listen()
            self.cold_s = perf_counter() - began
            until = perf_counter() + self.relist_s + STEADY_BEYOND_RELIST_S
            while perf_counter() < until:
                await self._listen()

    async def _listen(self) -> None:
        assert self._child.stdout is not None
        line = await self._child.stdout.readline()
        if not line:
            raise RuntimeError("the services ended")
        self.report = Report(**json.loads(line))

    async def change(self, changes: int) -> tuple[list[float], list[float]]:
        """Seconds from labelling a Node until all its GPUDevices show it, and until the Node itself does."""
        listening = asyncio.create_task(self._keep_listening())
        shown: dict[Shown, float] = {}
        labelled: dict[Shown, float] = {}
        versions = [(await self.client.list(resource)).resource_version for resource in (GPU_DEVICES, NODES)]
        watching = [
            asyncio.create_task(self._watch(GPU_DEVICES, versions[0], _unmanaged_device, shown)),
            asyncio.create_task(self._watch(NODES, versions[1], _unmanaged_node, labelled)),
        ]
        await asyncio.sleep(1.0)
        begun: dict[str, float] = {}
        for index in range(changes):
            name = _node_name(index)
            begun[name] = perf_counter()
            await self.client.merge_patch(NODES, name, {"metadata": {"labels": {LABEL_ENABLED: "false"}}})
            await asyncio.sleep(1.0 / CHANGES_PER_S)
        async with asyncio.timeout(SETTLE_S):
            while len(shown) < changes * DEVICES_PER_NODE or len(labelled) < changes:  # noqa: ASYNC110
                await asyncio.sleep(0.05)
        for task in (*watching, listening):
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task
        last = {name: max(at for (_, node), at in shown.items() if node == name) for name in begun}
        own = {name: at for (name, _), at in labelled.items()}
        return [last[name] - at for name, at in begun.items()], [own[name] - at for name, at in begun.items()]

    async def _keep_listening(self) -> None:
        while True:
            await self._listen()

    async def _watch(
        self, resource: Any, version: str, key_of: Callable[[Any], Shown | None], seen: dict[Shown, float]
    ) -> None:
        async with aclosing(self.client.watch(resource, version)) as stream:
            async for batch in stream:
                now = perf_counter()
                for event in batch:
                    if event["type"] != "BOOKMARK" and (key := key_of(event["object"])):
                        seen.setdefault(key, now)


def _unmanaged_node(obj: dict[str, Any]) -> Shown | None:
    metadata = obj["metadata"]
    return (metadata["name"], metadata["name"]) if metadata["labels"].get(LABEL_ENABLED) == "false" else None


def _unmanaged_device(obj: dict[str, Any]) -> Shown | None:
    status = obj.get("status") or {}
    return (obj["metadata"]["name"], status["nodeName"]) if status.get("managed") is False else None


def _node_name(index: int) -> str:
    return f"worker-{index:05d}"


def _cold_start(edge: Edge) -> list[Figure]:
    name = f"cold start, {edge.nodes:,} nodes of {DEVICES_PER_NODE}"
    bare_s = edge.created_s * edge.report.writes / edge.nodes
    return [
        Figure(
            f"{name}: status writes, idling and lists included", edge.report.statuses, "writes", "objects",
            edge.objects, edge.objects, is_ratio=False,
        ),
        Figure(f"{name}: until all is written", edge.cold_s, "s", "as many bare creations", bare_s, None),
    ]  # fmt: skip


def _latency(shown: list[float], labelled: list[float]) -> list[Figure]:
    name, peer = "label of a Node -> status of its GPUDevices", "the label itself, watched"
    return [
        Figure(f"{name}, p50", percentile_ms(shown, 50), "ms", peer, percentile_ms(labelled, 50), None),
        Figure(
            f"{name}, p95", percentile_ms(shown, 95), "ms", peer, percentile_ms(labelled, 95), P95_MS, is_ratio=False
        ),
    ]


def _memory(edge: Edge) -> Figure:
    name = f"peak memory of the edge's services, {edge.nodes * DEVICES_PER_NODE:,} devices"
    peak_mb, imports_mb = edge.report.peak_kib * 1024 / 1e6, edge.report.imports_kib * 1024 / 1e6
    return Figure(name, peak_mb, "MB", "the process after its imports", imports_mb, MEMORY_MB, is_ratio=False)


@asynccontextmanager
async def _edge(database_url: str, nodes: int, relist_s: float) -> AsyncIterator[Edge]:
    """A fleet of Nodes that is there before the services start, and then everything that follows from it."""
    with unsynced_nats() as nats, short_directory() as directory:
        async with api_server(directory) as kubeconfig, open_client(kubeconfig) as client:
            await crds.install(client, crds.shipped() + crds.foreign())
            began = perf_counter()
            await at_once(_create(client, _node_name(index)) for index in range(nodes))
            created_s = perf_counter() - began
            await client.create(MODULE_CONFIGS, _module_config())
            async with _services(nats.url, database_url, kubeconfig, relist_s) as child:
                edge = Edge(client, child, nodes, relist_s)
                edge.created_s = created_s
                await edge.settle()
                yield edge


def _services(nats_url: str, database_url: str, kubeconfig: Path, relist_s: float) -> Any:
    return process(__file__, nats_url, database_url, str(kubeconfig), str(relist_s))


async def _create(client: KubeClient, name: str) -> None:
    metadata = {
        "name": name,
        "labels": labels(*[MODEL] * DEVICES_PER_NODE, gpu_product="NVIDIA-A100-SXM4-40GB", gpu_memory="40960"),
        "annotations": {NFD_WORKER_VERSION: NFD},
    }
    await client.create(NODES, {"apiVersion": "v1", "kind": "Node", "metadata": metadata})


def _module_config() -> dict[str, Any]:
    spec = {"enabled": True, "version": 1, "settings": {"inventory": {"resyncPeriod": "30s"}}}
    return {
        "apiVersion": MODULE_CONFIGS.api_version, "kind": MODULE_CONFIGS.kind, "metadata": {"name": MODULE_CONFIG},
        "spec": spec,
    }  # fmt: skip


def _forget(database_url: str) -> None:
    """The next log begins anew, so the rows have to."""
    with psycopg.connect(database_url, autocommit=True) as connection:
        for spec in InventoryProjection.specs:
            connection.execute(f"TRUNCATE gpuledger_live.{spec.name}".encode())
        connection.execute("DELETE FROM gpuledger.projection")
        connection.execute("DELETE FROM gpuledger.seen")
        connection.execute("DELETE FROM gpuledger.outbox")


async def _serve(nats_url: str, database_url: str, kubeconfig: str, relist_s: str) -> None:
    """The services of the edge, in one process as in `gpuledger up`."""
    imports_kib = peak_kib()
    async with connect_ledger(nats_url, name="bench edge") as ledger, open_client(Path(kubeconfig)) as client:
        followed = FollowedLog((), ledger, database_url)
        writer = StatusWriter(
            ledger, database_url, client, followed, settings=StatusWriterSettings(relist_period_s=float(relist_s))
        )
        await asyncio.gather(
            watch(client, ledger, database_url, followed),
            Runner(InventoryProjection(), ledger, database_url).run(),
            writer.run(),
            _report(writer, imports_kib),
        )


async def _report(writer: StatusWriter, imports_kib: int) -> None:
    while True:
        health = writer.health()
        report = Report(_writes("apply status"), _writes(), health.waiting + health.failing, imports_kib, peak_kib())
        print(json.dumps(report._asdict()), flush=True)
        await asyncio.sleep(TELL_S)


def _writes(*actions: str) -> int:
    counted = REGISTRY.restricted_registry([_WRITES]).collect()  # the others take time, which is not to be measured
    samples = [one for family in counted for one in family.samples if one.name == _WRITES]
    return int(sum(one.value for one in samples if not actions or one.labels["action"] in actions))


_WRITES = "gpuledger_statuswriter_writes_total"

if __name__ == "__main__":
    configure_logging()
    with short_walks():
        asyncio.run(_serve(*sys.argv[1:]))
