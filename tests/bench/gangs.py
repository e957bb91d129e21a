"""A gang of pods that come one after the other: how many writes its ConfigMap costs, and when it is complete.

The coordinator works with the pauses that it ships with. Watchers' facts about the pods are recorded here at a steady
rate, each with the address of one more pod, and another client watches ConfigMaps. The ceiling is what brings the
same list there without a coordinator: the last fact is recorded, and then the ConfigMap patched.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any, NamedTuple

from bench.processes import api_server
from bench.report import Figure
from bench.servers import unsynced_nats
from gpuledger.api.kinds import CONFIG_MAPS
from gpuledger.api.preflight import GangKey, gang_config_map
from gpuledger.edge.kube.client import KubeClient, open_client
from gpuledger.edge.kube.errors import KubeError
from gpuledger.edge.preflight.coordinator.settings import CoordinatorSettings
from support.gangs import GangPods, coordinator, observed
from support.ledgers import new_ledger
from support.servers import short_directory
from support.statuswriting import CountingClient, counting

NAMESPACE = "default"
WRITES_MAX = 20
DEADLINE_S = 120.0


class GangSizes(NamedTuple):
    """How many pods a gang has, within how many seconds they come, and how many gangs form, one after the other."""

    pods: int = 512
    coming_s: float = 30.0
    rounds: int = 3


FULL = GangSizes()
QUICK = GangSizes(8, 0.2, 1)


class Lists:
    """When the ConfigMap of a gang was first seen to have all pods."""

    def __init__(self, pods: int) -> None:
        self._pods = pods
        self._complete: dict[str, asyncio.Future[float]] = {}

    def expect(self, gang: str) -> "asyncio.Future[float]":
        """When that of this gang is seen, by `perf_counter`."""
        future: asyncio.Future[float] = asyncio.get_running_loop().create_future()
        self._complete[gang_config_map(gang)] = future
        return future

    async def watch(self, client: KubeClient) -> None:
        """Watch ConfigMaps until cancelled."""
        start = (await client.list(CONFIG_MAPS)).resource_version
        while True:
            with suppress(KubeError):
                async for batch in client.watch(CONFIG_MAPS, start):
                    for one in batch:
                        self._note(one["object"])

    def _note(self, config_map: dict[str, Any]) -> None:
        future = self._complete.get(config_map["metadata"].get("name", ""))
        peers = (config_map.get("data") or {}).get(GangKey.PEERS, "").count("\n")
        if future is not None and not future.done() and peers == self._pods:
            future.set_result(perf_counter())


class Bench(NamedTuple):
    """The coordinator at work: `client` is its own, which counts, and `other` that of everybody else."""

    pods: GangPods
    lists: Lists
    client: CountingClient
    other: KubeClient
    sizes: GangSizes


async def gangs(database_url: str, sizes: GangSizes = FULL) -> list[Figure]:
    """How many writes a gang costs, and how long after its last address the ConfigMap is complete."""
    async with _bench(database_url, sizes) as bench:
        formed = [await _formed(bench, f"g{number}") for number in range(sizes.rounds)]
        bare = [await _bare(bench, f"b{number}") for number in range(sizes.rounds)]
    name = f"a gang of {sizes.pods} pods"
    most = max(writes for writes, _ in formed)
    ours, peer = (median(took) * 1000 for took in ([took for _, took in formed], bare))
    alone = "recorded, and the ConfigMap patched, by a client alone"
    return [
        Figure(f"{name}, writes of its ConfigMap", most, "writes", "one for each pod", sizes.pods, WRITES_MAX, False),
        Figure(f"{name}, last address -> its ConfigMap is complete, p50", ours, "ms", alone, peer, None),
    ]


@asynccontextmanager
async def _bench(database_url: str, sizes: GangSizes) -> AsyncIterator[Bench]:
    with short_directory() as folder, unsynced_nats() as server:
        async with (
            api_server(Path(folder)) as kubeconfig,
            new_ledger(server.url, name="bench", puts_in_order=True) as ledger,
            open_client(kubeconfig) as other,
            counting(kubeconfig) as client,
        ):
            pods, lists = GangPods(ledger, other), Lists(sizes.pods)
            await pods.claim()
            watching = asyncio.create_task(lists.watch(other))
            try:
                async with coordinator(ledger, database_url, client, CoordinatorSettings()):
                    yield Bench(pods, lists, client, other, sizes)
            finally:
                watching.cancel()
                with suppress(asyncio.CancelledError):
                    await watching


async def _formed(bench: Bench, gang: str) -> tuple[int, float]:
    """How many writes a gang took, and how many seconds after its last address its ConfigMap was complete."""
    complete, before, began_s = bench.lists.expect(gang), _writes(bench.client), perf_counter()
    await bench.pods.record(*((_pod(gang, one), _fact(bench, gang, one)) for one in range(bench.sizes.pods)))
    for number in range(bench.sizes.pods):
        due_s = began_s + bench.sizes.coming_s * number / bench.sizes.pods
        await asyncio.sleep(max(due_s - perf_counter(), 0))
        last_s = perf_counter()
        await bench.pods.record((_pod(gang, number), _fact(bench, gang, number, has_address=True)))
    async with asyncio.timeout(DEADLINE_S):
        took_s = await complete - last_s
    return _writes(bench.client) - before, took_s


async def _bare(bench: Bench, gang: str) -> float:
    """After how many seconds the list is there that a client writes by itself."""
    complete, name = bench.lists.expect(gang), gang_config_map(gang)
    await bench.other.create(CONFIG_MAPS, {"metadata": {"name": name, "namespace": NAMESPACE}, "data": {}})
    peers = "".join(f"{_pod(gang, one)}:{_address(one)}\n" for one in range(bench.sizes.pods))
    began_s = perf_counter()
    await bench.pods.record((_pod(gang, 0), _fact(bench, "", 0, has_address=True)))
    await bench.other.merge_patch(CONFIG_MAPS, name, {"data": {GangKey.PEERS.value: peers}}, NAMESPACE)
    async with asyncio.timeout(DEADLINE_S):
        return await complete - began_s


def _fact(bench: Bench, gang: str, number: int, *, has_address: bool = False) -> Any:
    address = _address(number) if has_address else None
    return observed(f"{gang}-{number}", address, gang=gang or None, gang_size=bench.sizes.pods)


def _pod(gang: str, number: int) -> str:
    return f"{NAMESPACE}/{gang}-{number:04}"


def _address(number: int) -> str:
    return f"10.1.{number // 256}.{number % 256}"


def _writes(client: CountingClient) -> int:
    return sum("/configmaps" in one for one in client.written)
