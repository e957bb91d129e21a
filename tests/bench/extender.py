"""The extender through HTTP: filter and prioritize over many nodes, pods bound a second, and memory over many pods.

The extender is a process of its own, and so is an API server that takes every write and checks none, because the
embedded one takes fewer writes a second than pods are to be bound. This process asks, as kube-scheduler does. The
ceilings: the very same HTTP server with nothing to decide, and the annotation and the binding written by a client
alone. Called as a program it is the extender (`extender.py serve NATS DATABASE KUBECONFIG`), the empty server
(`extender.py empty`), the API server (`extender.py api LEDGER`), or the fold of pods that come and go (`extender.py
fold PODS`).
"""

import asyncio
import json
import os
import resource
import sys
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from random import Random
from time import perf_counter
from typing import Any, Final, NamedTuple

import aiohttp
import orjson
from aiohttp import web

if __name__ == "__main__":
    sys.path[0] = str(Path(__file__).parents[1])

from bench.processes import AT_ONCE, at_once, percentile_ms, process
from bench.report import Figure
from bench.servers import unsynced_nats
from gpuledger.domain.fact import Fact
from gpuledger.edge.extender.cluster import PodWriter
from gpuledger.edge.extender.holdings import Holdings
from gpuledger.edge.extender.pods import read_pod
from gpuledger.edge.extender.server import ExtenderServer
from gpuledger.edge.extender.service import Extender, ExtenderLeadership
from gpuledger.edge.extender.settings import ExtenderSettings
from gpuledger.edge.extender.state import ExtenderProjection, ExtenderState
from gpuledger.edge.extender.wire import BindingArgs
from gpuledger.edge.kube.circuit_breaker import CircuitBreaker, RateLimiter
from gpuledger.edge.kube.client import KubeClient, open_client
from gpuledger.edge.webhooks.settings import ServingSettings
from gpuledger.events.envelope import Event
from gpuledger.events.sharing import (
    AllocatedDevice,
    Allocation,
    NodeDevicesShared,
    PodDevicesBound,
    PodDevicesReserved,
    PodSharingGone,
    PodSharingObserved,
)
from gpuledger.ledger.jetstream import connect_ledger
from gpuledger.projection.followed_log import FollowedLog
from gpuledger.runtime.backoff import Backoff, system_jitter
from gpuledger.runtime.clock import system_clock
from gpuledger.runtime.garbage import short_walks
from gpuledger.runtime.telemetry import configure_logging
from support.events import outgoing
from support.extending import NAMES, SHARER, WATCHERS, gpu, pod_of
from support.ledgers import new_ledger
from support.servers import short_directory

CARDS: Final = 8
P99_MS: Final = 25.0
BINDS_PER_S: Final = 200.0
FLAT: Final = 1.1
"""How much memory may grow from a fifth of the pods to all of them."""

SETTINGS: Final = ExtenderSettings(serving=ServingSettings(listen="127.0.0.1:0", review_bytes_max=32 * 1024 * 1024))


class ExtenderSizes(NamedTuple):
    """How many nodes there are, how often is asked about them, how many pods are bound, and how many come and go."""

    nodes: int = 1_000
    questions: int = 1_000
    binds: int = 2_000
    pods: int = 100_000


FULL = ExtenderSizes()
QUICK = ExtenderSizes(20, 10, 20, 500)


async def extender(database_url: str, sizes: ExtenderSizes = FULL) -> list[Figure]:
    """The answers' time, pods bound a second, and the growth of memory."""
    with short_directory() as folder, unsynced_nats() as server:
        async with (
            new_ledger(server.url, name="bench", puts_in_order=True) as ledger,
            _taking_all(Path(folder), ledger.identity.ledger_id) as kubeconfig,
            open_client(kubeconfig) as client,
        ):
            await ledger.publish_many([outgoing(one) for one in _fleet(sizes.nodes)])
            alone = await _bound_alone(client, sizes.binds)
            async with _serving("empty") as (session, _):
                bare = await _answered(session, sizes)
            async with _serving("serve", server.url, database_url, str(kubeconfig)) as (session, pid):
                asked = await _answered(session, sizes)
                before_s = _processor_s(pid)
                bound = await _bound(session, sizes)
                own = sizes.binds / max(_processor_s(pid) - before_s, 0.01)
    first, last = await _memory(sizes.pods // 5), await _memory(sizes.pods)
    question, peer = f"filter + prioritize, {sizes.nodes:,} nodes", "the same server, deciding nothing"
    return [
        Figure(f"{question}, p50", percentile_ms(asked, 50), "ms", peer, percentile_ms(bare, 50), None),
        Figure(f"{question}, p99", percentile_ms(asked, 99), "ms", peer, percentile_ms(bare, 99), P99_MS, False),
        Figure("pods bound", bound, "/s", "annotation and binding by a client alone", alone, None),
        Figure(
            "pods bound in a second of the extender's processor time", own, "/s", "pods to be bound in a second",
            BINDS_PER_S, 1.0,
        ),
        Figure(
            f"memory of the extender's state, {sizes.pods:,} pods came and went", last, "MB",
            f"after {sizes.pods // 5:,}", first, first * FLAT, False,
        ),
    ]  # fmt: skip


def _fleet(nodes: int) -> list[Event[Any]]:
    """Nodes with cards, of which others hold shares, each in its own way, so that few nodes are alike."""
    draw, now, events = Random(1), system_clock(), list[Event[Any]]()
    for number in range(nodes):
        node = f"node-{number}"
        shared = NodeDevicesShared(devices=tuple(gpu(node, minor) for minor in range(CARDS)))
        events.append(Event(f"s{number}", SHARER, shared.TYPE, node, now, shared, "e1", number + 1))
        held = tuple(
            AllocatedDevice(minor=minor, resources={"gpu-core": share, "gpu-memory-ratio": share})
            for minor in range(CARDS // 2)
            if (share := draw.randrange(0, 100, 5))
        )
        observed = PodSharingObserved(uid=f"uid-{number}", node=node, allocation={"gpu": held}, started=True)
        events.append(
            Event(f"w{number}", WATCHERS, observed.TYPE, f"default/old-{number}", now, observed, "e1", number + 1)
        )
    return events


async def _answered(session: aiohttp.ClientSession, sizes: ExtenderSizes) -> list[float]:
    """Seconds from a question about a pod to both answers, one pod after the other; as many again come before."""
    names = [f"node-{number}" for number in range(sizes.nodes)]
    pods = [pod_of(f"p{share}", gpu_core=share, gpu_memory_ratio=share) for share in range(5, 101, 5)]
    bodies = [
        orjson.dumps({"Pod": {**pod, "metadata": pod["metadata"] | {"uid": f"q{number}"}}, "NodeNames": names})
        for number, pod in enumerate(pods)
    ]
    times = []
    for number in range(2 * sizes.questions):
        body, began_s = bodies[number % len(bodies)], perf_counter()
        for verb in ("filter", "prioritize"):
            await _ask(session, verb, body)
        times.append(perf_counter() - began_s)
    return times[sizes.questions :]


async def _bound(session: aiohttp.ClientSession, sizes: ExtenderSizes) -> float:
    """How many pods are bound a second, so many at a time, each asked about on a few nodes before."""
    pods = [_pod("b", number) for number in range(sizes.binds)]

    async def schedule(number: int, pod: dict[str, Any]) -> None:
        names = [f"node-{(number + step) % sizes.nodes}" for step in range(min(16, sizes.nodes))]
        body = orjson.dumps({"Pod": pod, "NodeNames": names})
        fits = (await _ask(session, "filter", body))["NodeNames"]
        scores = await _ask(session, "prioritize", orjson.dumps({"Pod": pod, "NodeNames": fits}))
        node = max(scores, key=lambda one: one["Score"])["Host"]
        metadata = pod["metadata"]
        args = {"PodName": metadata["name"], "PodNamespace": "default", "PodUID": metadata["uid"], "Node": node}
        error = (await _ask(session, "bind", orjson.dumps(args)))["Error"]
        if error:
            raise RuntimeError(f"a pod was not bound: {error}")

    began_s = perf_counter()
    await at_once(schedule(number, pod) for number, pod in enumerate(pods))
    return len(pods) / (perf_counter() - began_s)


async def _bound_alone(client: KubeClient, binds: int) -> float:
    """How many pods a second a client annotates and binds that decides nothing."""
    pods, now = [_pod("a", number) for number in range(binds)], asyncio.get_running_loop().time
    breaker = CircuitBreaker(RateLimiter(10_000, 10_000, now), Backoff(), system_jitter, now)
    writer = PodWriter(client, breaker, NAMES, 30.0)

    async def bind(pod: dict[str, Any]) -> None:
        found = read_pod(pod, NAMES)
        await writer.annotate(found, '{"gpu":[{"minor":0}]}')
        await writer.bind("default", found.name, found.uid, "node-0")

    began_s = perf_counter()
    await at_once(bind(pod) for pod in pods)
    return len(pods) / (perf_counter() - began_s)


def _pod(prefix: str, number: int) -> dict[str, Any]:
    pod = pod_of(f"{prefix}{number}", gpu_core=10, gpu_memory_ratio=10)
    return {**pod, "metadata": pod["metadata"] | {"uid": f"{prefix}-{number}"}}


async def _ask(session: aiohttp.ClientSession, verb: str, body: bytes) -> Any:
    async with session.post(f"/{verb}", data=body, headers={"Content-Type": "application/json"}) as answer:
        text = await answer.read()
        if answer.status != 200:
            raise RuntimeError(f"{verb} was answered with {answer.status}: {text.decode()}")
        return orjson.loads(text)


@asynccontextmanager
async def _taking_all(folder: Path, ledger_id: str) -> AsyncIterator[Path]:
    """An API server that takes every write; yields its kubeconfig."""
    async with process(__file__, "api", ledger_id) as child:
        assert child.stdout is not None
        url = json.loads(await child.stdout.readline())["url"]
        cluster = {"name": "bench", "cluster": {"server": url}}
        context = {"name": "bench", "context": {"cluster": "bench", "user": "bench"}}
        document = {
            "apiVersion": "v1", "kind": "Config", "current-context": "bench", "clusters": [cluster],
            "contexts": [context], "users": [{"name": "bench", "user": {}}],
        }  # fmt: skip
        kubeconfig = folder / "kubeconfig"
        kubeconfig.write_bytes(orjson.dumps(document))
        yield kubeconfig


async def _take_all(ledger_id: str) -> None:
    """Answer every write with success, and whose the cluster is."""
    owned = {"metadata": {"name": "x", "uid": "x", "resourceVersion": "1"}, "data": {"ledger-id": ledger_id}}
    answers = {"GET": (200, orjson.dumps(owned)), "PATCH": (200, b"{}"), "POST": (201, b"{}")}

    async def answer(request: web.BaseRequest) -> web.Response:
        await request.read()
        status, body = answers[request.method]
        return web.Response(status=status, body=body, content_type="application/json")

    server = web.Server(answer)
    listening = await asyncio.get_running_loop().create_server(server, "127.0.0.1", 0)
    host, port = listening.sockets[0].getsockname()[:2]
    print(json.dumps({"url": f"http://{host}:{port}"}), flush=True)
    await asyncio.Event().wait()


@asynccontextmanager
async def _serving(*arguments: str) -> AsyncIterator[tuple[aiohttp.ClientSession, int]]:
    """A server of its own: a session with it, and its process."""
    async with process(__file__, *arguments) as child:
        assert child.stdout is not None
        url = json.loads(await child.stdout.readline())["url"]
        connector = aiohttp.TCPConnector(limit=AT_ONCE)
        async with aiohttp.ClientSession(url, connector=connector) as session:
            yield session, child.pid


def _processor_s(pid: int) -> float:
    """The processor time that a process has taken, of Linux; 0 elsewhere."""
    path = Path(f"/proc/{pid}/stat")
    if not path.exists():
        return 0.0
    fields = path.read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


async def _memory(pods: int) -> float:
    """The megabytes that the extender's state takes after so many pods have come and gone."""
    async with process(__file__, "fold", str(pods)) as child:
        assert child.stdout is not None
        return float(json.loads(await child.stdout.readline())["kib"]) * 1024 / 1e6


async def _serve(nats_url: str, database_url: str, kubeconfig: str) -> None:
    """Serve until killed, and say where."""
    async with (
        connect_ledger(nats_url, name="bench extender") as ledger,
        open_client(Path(kubeconfig)) as client,
        aclosing(FollowedLog((), ledger, database_url)) as followed,
    ):
        found = Extender(ExtenderLeadership(ledger, database_url, client, followed, settings=SETTINGS), SETTINGS)
        running = asyncio.create_task(found.run())
        while not found.health().is_ready:  # noqa: ASYNC110 - nobody reports it
            await asyncio.sleep(0.05)
        print(json.dumps({"url": await found.url()}), flush=True)
        await running


class Nothing:
    """A leader that decides nothing."""

    @property
    def questions(self) -> "Nothing":
        return self

    def filter(self, document: object) -> dict[str, Any]:
        return {"Nodes": None, "NodeNames": [], "FailedNodes": {}, "FailedAndUnresolvableNodes": {}, "Error": ""}

    def prioritize(self, document: object) -> list[dict[str, Any]]:
        return []

    def preempt(self, document: object) -> dict[str, Any]:
        return {"NodeNameToMetaVictims": {}}

    async def bind(self, args: BindingArgs) -> None:
        return None


async def _serve_nothing() -> None:
    server = ExtenderServer(Nothing, SETTINGS)
    async with server.serving(None) as url:
        print(json.dumps({"url": url}), flush=True)
        await asyncio.Event().wait()


def _fold(pods: int) -> None:
    """Fold pods that come, are reserved devices, run, and are gone, and print the memory that this took."""
    state, now = ExtenderState(), system_clock()
    holdings, before_kib, number = Holdings(state), _resident_kib(), 0

    def fold(source: str, subject: str, data: Any) -> None:
        nonlocal number
        number += 1
        event = Event(f"{source}/{number}", source, data.TYPE, subject, now, data, "e1", number)
        ExtenderProjection.handlers[type(data)](state, Fact(event, number, 0), data)

    for index in range(10):
        devices = tuple(gpu(f"node-{index}", one) for one in range(CARDS))
        fold(SHARER, f"node-{index}", NodeDevicesShared(devices=devices))
    allocation: Allocation = {"gpu": (AllocatedDevice(minor=0, resources={"gpu-core": 10, "gpu-memory-ratio": 10}),)}
    for index in range(pods):
        pod, uid, node = f"default/pod-{index}", f"uid-{index}", f"node-{index % 10}"
        fold(WATCHERS, pod, PodSharingObserved(uid=uid, requests={"gpu": 10}))
        fold("/services/extender", pod, PodDevicesReserved(uid=uid, node=node, allocation=allocation, strategy="x"))
        fold("/services/extender", pod, PodDevicesBound(uid=uid, node=node))
        fold(WATCHERS, pod, PodSharingGone(uid=uid))
        holdings.refresh()
    print(json.dumps({"kib": _resident_kib() - before_kib}), flush=True)


def _resident_kib() -> int:
    status = Path("/proc/self/status")
    if status.exists():
        return next(int(line.split()[1]) for line in status.read_text().splitlines() if line.startswith("VmRSS"))
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


if __name__ == "__main__":
    configure_logging()
    with short_walks():
        if sys.argv[1] == "serve":
            asyncio.run(_serve(*sys.argv[2:]))
        elif sys.argv[1] == "api":
            asyncio.run(_take_all(sys.argv[2]))
        elif sys.argv[1] == "empty":
            asyncio.run(_serve_nothing())
        else:
            _fold(int(sys.argv[2]))
