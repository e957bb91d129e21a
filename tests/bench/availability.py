"""Availability of devices: from a ResourceClaim's change to the status of its slice, under churn and in a burst.

The API server, the ledger and the services are processes of their own; this one plays the scheduler, who allocates and
deallocates claims, and somebody who watches statuses. Devices are shared, because 1,000 devices could not be allocated
to 10,000 claims otherwise.
"""

import asyncio
import json
from collections import defaultdict, deque
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing, asynccontextmanager, suppress
from pathlib import Path
from random import Random
from time import perf_counter
from typing import NamedTuple
from uuid import UUID

from bench import fleet
from bench.availability_services import Report
from bench.claim_cost import claim_cost
from bench.processes import api_server, at_once, percentile_ms, process
from bench.report import Figure
from gpuledger.api.kinds import (
    MODULE_CONFIG,
    MODULE_CONFIGS,
    RESOURCE_CLAIMS,
    RESOURCE_SLICE_STATUSES,
    RESOURCE_SLICES,
    Resource,
)
from gpuledger.edge.kube import crds
from gpuledger.edge.kube.client import KubeClient, Object, open_client
from gpuledger.edge.statuswriter.settings import StatusWriterSettings
from gpuledger.local.servers.nats import NatsServer
from support.ledgers import make_ledger
from support.servers import short_directory

NAMESPACE = "default"
DRIVER = "gpu.example.com"
DEVICES_PER_POOL = 8
DEVICE_MEMORY, SHARE_MEMORY = "160Gi", "2Gi"
CHURN_PER_S = 50.0
AWAY_S = 1.0
"""How long a claim of the churn stays deallocated."""

P95_MS, P99_MS = 28.0, 250.0
SETTLE_S = 600.0
CATCH_UP_S = 0.02


SERVICES = str(Path(__file__).with_name("availability_services.py"))


class AvailabilitySizes(NamedTuple):
    """How many pools of eight devices, how many claims, and how many changes of claims."""

    pools: int = 125
    claims: int = 10_000
    churn: int = 3_000
    burst: int = 2_000
    few: int = 1_000
    many: int = 100_000
    folded: int = 4_000


FULL = AvailabilitySizes()
QUICK = AvailabilitySizes(5, 100, 50, 40, 80, 400, 50)


async def availability(database_url: str, sizes: AvailabilitySizes, rounds: int) -> list[Figure]:
    """What a watching client sees of churn and of a burst, and what a change costs in a big cluster."""
    return [*await _edge(database_url, sizes), await claim_cost(sizes.few, sizes.many, sizes.folded, rounds)]


async def _edge(database_url: str, sizes: AvailabilitySizes) -> list[Figure]:
    with short_directory() as directory, NatsServer(directory / "nats") as nats:
        await make_ledger(nats.url)
        async with (
            api_server(directory) as kubeconfig,
            open_client(kubeconfig) as client,
            process(SERVICES, nats.url, database_url, str(kubeconfig)) as child,
        ):
            await crds.install(client, crds.shipped() + crds.foreign())
            await client.create(MODULE_CONFIGS, _module_config())
            cluster = Cluster(client, child, sizes)
            async with cluster.watched():
                await cluster.fill()
                shown, own = await cluster.churn()
                return [*_latency(shown, own), *await cluster.burst()]


def _latency(shown: list[float], own: list[float]) -> list[Figure]:
    name, peer = f"claim change -> status of its slice, {CHURN_PER_S:g}/s", "the claim itself, watched"
    targets = {50: None, 95: P95_MS, 99: P99_MS}
    return [
        Figure(
            f"{name}, p{percent}", percentile_ms(shown, percent), "ms", peer, percentile_ms(own, percent), target,
            is_ratio=False,
        )
        for percent, target in targets.items()
    ]  # fmt: skip


class Change(NamedTuple):
    """A claim that is to be allocated, or not, from a moment on."""

    claim: int
    is_allocated: bool
    begun_s: float


class Cluster:
    """Slices and claims, and what is seen of them."""

    def __init__(self, client: KubeClient, child: asyncio.subprocess.Process, sizes: AvailabilitySizes) -> None:
        self._client = client
        self._child = child
        self._sizes = sizes
        self._random = Random(fleet.SEED)
        self._last = Report(0, 0)
        self._held: dict[str, set[str]] = {}
        self._shown: list[float] = []
        self._own: list[float] = []
        self._pending: dict[str, dict[str, Change]] = defaultdict(dict)
        self._unseen: dict[str, Change] = {}
        self._tasks: list[asyncio.Task[None]] = []

    @asynccontextmanager
    async def watched(self) -> AsyncIterator[None]:
        """Watch statuses and claims, and listen to the services, while the block runs."""
        work = (
            self._listen(),
            self._watch(RESOURCE_SLICE_STATUSES, self._saw_status),
            self._watch(RESOURCE_CLAIMS, self._saw_claim),
        )
        self._tasks = [asyncio.create_task(one) for one in work]
        try:
            yield
        finally:
            for task in self._tasks:
                task.cancel()
                with suppress(asyncio.CancelledError):
                    await task

    async def fill(self) -> None:
        """Publish all slices and allocate all claims; return when the statuses say so."""
        await at_once(self._client.create(RESOURCE_SLICES, _slice(pool)) for pool in range(self._sizes.pools))
        await at_once(self._claim(number) for number in range(self._sizes.claims))
        await self._until(lambda: sum(map(len, self._held.values())) == self._sizes.claims)
        await self._until(lambda: not self._last.waiting)

    async def churn(self) -> tuple[list[float], list[float]]:
        """Claims are deallocated and allocated again; returns how long statuses took to show it, and the claims."""
        away: deque[int] = deque()
        changes, began = [], perf_counter()
        for number in range(self._sizes.churn):
            await asyncio.sleep(max(0.0, began + number / CHURN_PER_S - perf_counter()))
            is_allocated = number % 2 == 1 and len(away) > AWAY_S * CHURN_PER_S / 2 and not self._is_pending(away[0])
            claim = away.popleft() if is_allocated else self._another(away)
            if not is_allocated:
                away.append(claim)
            changes.append(asyncio.create_task(self._change(claim, is_allocated=is_allocated)))
        await asyncio.gather(*changes)
        await self._until(self._all_seen)
        await at_once(self._change(claim, is_allocated=True) for claim in away)
        await self._until(self._all_seen)
        number = self._sizes.churn
        return self._shown[:number], self._own[:number]

    def _another(self, away: deque[int]) -> int:
        while (claim := self._random.randrange(self._sizes.claims)) in away or self._is_pending(claim):
            continue
        return claim

    def _is_pending(self, claim: int) -> bool:
        """Whether a change of the claim has not been seen yet; another one could undo it before anybody sees it."""
        name = _claim_name(claim)
        return name in self._unseen or name in self._pending[_pool_name(self._pool_of(claim))]

    async def burst(self) -> list[Figure]:
        """Many claims are deallocated at once."""
        claims = self._random.sample(range(self._sizes.claims), self._sizes.burst)
        before, began = self._last, perf_counter()
        await at_once(self._change(claim, is_allocated=False) for claim in claims)
        changed_s = perf_counter() - began
        await self._until(self._all_seen)
        settled_s = perf_counter() - began
        await self._until(lambda: not self._last.waiting)
        name = f"burst of {self._sizes.burst:,} claim changes"
        written, limits = self._last.written - before.written, StatusWriterSettings()
        allowed = limits.slice_writes_burst + settled_s * (
            limits.slice_writes_per_s + self._sizes.pools / limits.slice_status_pause_s
        )
        return [
            Figure(
                f"{name}: status writes", written, "writes", "allowed", round(allowed), round(allowed), is_ratio=False
            ),
            Figure(f"{name}: status writes", written, "writes", "claim changes", self._sizes.burst, None),
            Figure(f"{name}: until all is shown", settled_s, "s", "until all claims are changed", changed_s, None),
        ]  # fmt: skip

    async def _change(self, claim: int, *, is_allocated: bool) -> None:
        name = _claim_name(claim)
        change = Change(claim, is_allocated, perf_counter())
        self._pending[_pool_name(self._pool_of(claim))][name] = self._unseen[name] = change
        await self._client.merge_patch(
            RESOURCE_CLAIMS, name, self._allocation(claim, is_allocated=is_allocated), NAMESPACE, subresource="status"
        )

    async def _claim(self, number: int) -> None:
        await self._client.create(RESOURCE_CLAIMS, _claim(number))
        await self._client.merge_patch(
            RESOURCE_CLAIMS, _claim_name(number), self._allocation(number, is_allocated=True), NAMESPACE,
            subresource="status",
        )  # fmt: skip

    def _pool_of(self, claim: int) -> int:
        return claim % self._sizes.pools

    def _allocation(self, claim: int, *, is_allocated: bool) -> Object:
        if not is_allocated:
            return {"status": {"allocation": None}}
        result = {
            "request": "gpu", "driver": DRIVER, "pool": _pool_name(self._pool_of(claim)),
            "device": f"gpu-{claim // self._sizes.pools % DEVICES_PER_POOL}", "shareID": str(UUID(int=claim + 1)),
            "consumedCapacity": {"memory": SHARE_MEMORY},
        }  # fmt: skip
        return {"status": {"allocation": {"devices": {"results": [result]}}}}

    def _all_seen(self) -> bool:
        return not any(self._pending.values()) and not self._unseen

    async def _until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(SETTLE_S):
            while not condition():
                for task in self._tasks:
                    if task.done():
                        task.result()
                await asyncio.sleep(CATCH_UP_S)

    async def _listen(self) -> None:
        assert self._child.stdout is not None
        while line := await self._child.stdout.readline():
            self._last = Report(**json.loads(line))
        raise RuntimeError("the services ended")

    async def _watch(self, resource: Resource, saw: Callable[[Object, float], None]) -> None:
        version = (await self._client.list(resource)).resource_version
        while True:
            async with aclosing(self._client.watch(resource, version)) as stream:
                async for batch in stream:
                    now_s = perf_counter()
                    for event in batch:
                        version = event["object"]["metadata"]["resourceVersion"]
                        if event["type"] != "BOOKMARK":
                            saw(event["object"], now_s)

    def _saw_status(self, obj: Object, now_s: float) -> None:
        pool = obj["metadata"]["name"]
        devices = (obj.get("status") or {}).get("devices", ())
        held = {claim["claimName"] for device in devices for claim in device.get("allocations", ())}
        self._held[pool] = held
        pending = self._pending[pool]
        for name, change in list(pending.items()):
            if (name in held) == change.is_allocated:
                del pending[name]
                self._shown.append(now_s - change.begun_s)

    def _saw_claim(self, obj: Object, now_s: float) -> None:
        name = obj["metadata"]["name"]
        change = self._unseen.get(name)
        if change is not None and ("allocation" in (obj.get("status") or {})) == change.is_allocated:
            del self._unseen[name]
            self._own.append(now_s - change.begun_s)


def _module_config() -> Object:
    """Statuses name the claims, by which the bench recognises a change."""
    return {
        "apiVersion": MODULE_CONFIGS.api_version, "kind": MODULE_CONFIGS.kind, "metadata": {"name": MODULE_CONFIG},
        "spec": {"enabled": True, "version": 1, "settings": {"dra": {"claimReferences": "Full"}}},
    }  # fmt: skip


def _pool_name(pool: int) -> str:
    return f"pool-{pool:04}"


def _claim_name(claim: int) -> str:
    return f"claim-{claim:06}"


def _slice(pool: int) -> Object:
    """A slice that is named as its pool."""
    shared = {"allowMultipleAllocations": True, "capacity": {"memory": {"value": DEVICE_MEMORY}}}
    return {
        "apiVersion": RESOURCE_SLICES.api_version, "kind": RESOURCE_SLICES.kind, "metadata": {"name": _pool_name(pool)},
        "spec": {
            "driver": DRIVER, "allNodes": True,
            "pool": {"name": _pool_name(pool), "generation": 1, "resourceSliceCount": 1},
            "devices": [{"name": f"gpu-{device}", **shared} for device in range(DEVICES_PER_POOL)],
        },
    }  # fmt: skip


def _claim(number: int) -> Object:
    request = {"name": "gpu", "exactly": {"deviceClassName": "gpu"}}
    return {
        "apiVersion": RESOURCE_CLAIMS.api_version, "kind": RESOURCE_CLAIMS.kind,
        "metadata": {"name": _claim_name(number), "namespace": NAMESPACE}, "spec": {"devices": {"requests": [request]}},
    }  # fmt: skip
