"""The webhook of preflight checks at a steady rate: how long an API server waits for an answer about a pod, over HTTPS.

The webhook is a process of its own beside an embedded API server, which has a namespace and a claim template for each
gang: a pod of another gang each time, so every answer takes a look-up. This one asks, open loop. The peer is the same
server in a process of its own that answers each review without deciding. Called as a program it is the server:
`preflight.py KUBECONFIG FILE`, which decides, or `preflight.py`, which allows everything.
"""

import asyncio
import base64
import gc
import json
import ssl
import sys
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from time import perf_counter
from typing import Any, NamedTuple

import aiohttp
import orjson

if __name__ == "__main__":
    sys.path[0] = str(Path(__file__).parents[1])

from bench.processes import api_server, at_once, percentile_ms, process
from bench.report import Figure
from gpuledger.api.kinds import NAMESPACES, RESOURCE_CLAIM_TEMPLATES
from gpuledger.edge.kube.client import KubeClient, open_client
from gpuledger.edge.kube.ownership import claim, owner
from gpuledger.edge.preflight.metrics import CONNECTIONS_REFUSED, EXPIRES, LATENCY, UNDER_WAY
from gpuledger.edge.preflight.service import PreflightWebhook
from gpuledger.edge.preflight.settings import PreflightSettings
from gpuledger.edge.preflight.webhook_configuration import MUTATE_PATH, NAME
from gpuledger.edge.webhooks.certificates.authority import authority_at, serving_at
from gpuledger.edge.webhooks.certificates.rotation import ServedCertificate
from gpuledger.edge.webhooks.configuration import MUTATING
from gpuledger.edge.webhooks.serving.review import ALLOWED, AdmissionRequest, AdmissionResponse
from gpuledger.edge.webhooks.serving.server import ReviewServer, ServerMetrics
from gpuledger.runtime.clock import system_clock
from gpuledger.runtime.garbage import short_walks
from gpuledger.runtime.telemetry import configure_logging

HOST = "127.0.0.1"
LEDGER = "bench"
HOME = "gpu-system"
RATE_PER_S = 200
P99_MS = 15.0
CONNECTIONS = 64
"""API servers keep connections and use them again; what waits for one counts."""

WARMED_UP = 100
FIRST_AFTER_S = 0.2
NAMESPACE_COUNT = 50
READY_POLL_S = 0.05
TEMPLATE = {"spec": {"devices": {"requests": [{"name": "g", "exactly": {"deviceClassName": "gpu.nvidia.com"}}]}}}


class PreflightSizes(NamedTuple):
    """How many gangs there are, and for how long is asked."""

    gangs: int = 5_000
    load_s: float = 20.0


FULL = PreflightSizes()
QUICK = PreflightSizes(20, 0.5)


async def preflight(sizes: PreflightSizes = FULL) -> list[Figure]:
    """The median and the 99th percentile of the answers' time."""
    questions = [_question(index, sizes.gangs) for index in range(int(sizes.load_s * RATE_PER_S))]
    bare = await _latencies([], questions)
    with tempfile.TemporaryDirectory(prefix="gl-bench-") as folder:
        async with api_server(Path(folder)) as kubeconfig:
            file = _configuration(Path(folder))
            await _fill(kubeconfig, sizes.gangs)
            deciding = await _latencies([str(kubeconfig), str(file)], questions)
    name = f"checks injected at {RATE_PER_S}/s, {sizes.gangs:,} gangs"
    p50, p99 = ((percentile_ms(deciding, percent), percentile_ms(bare, percent)) for percent in (50, 99))
    peer = "the same server, an empty review"
    return [
        Figure(f"{name}, p50", p50[0], "ms", peer, p50[1], None),
        Figure(f"{name}, p99", p99[0], "ms", peer, p99[1], P99_MS, is_ratio=False),
    ]


def _configuration(folder: Path) -> Path:
    file = folder / "preflight.yaml"
    text = json.dumps(
        {
            "checks": [{"name": one, "image": "i"} for one in ("dcgm-diag", "nccl-loopback", "nccl-allreduce")],
            "gangDiscovery": {"method": "labels", "labels": {"gangIdLabel": "gang", "gangSizeLabel": "gang-size"}},
            "gpuDetection": {"resourceNames": ["nvidia.com/gpu"], "deviceClasses": ["gpu.nvidia.com"]},
            "namespaces": [f"team-{number}" for number in range(NAMESPACE_COUNT)],
        }
    )
    file.write_text(text)
    return file


async def _fill(kubeconfig: Path, gangs: int) -> None:
    async with open_client(kubeconfig) as client:
        await client.create(NAMESPACES, {"metadata": {"name": HOME}})
        await claim(client, owner(LEDGER, system_clock()), "of the bench")
        names = [f"team-{number}" for number in range(NAMESPACE_COUNT)]
        await at_once(client.create(NAMESPACES, {"metadata": {"name": name}}) for name in names)
        await at_once(
            client.create(RESOURCE_CLAIM_TEMPLATES, {"metadata": _place(gang, f"gang-{gang}"), "spec": TEMPLATE})
            for gang in range(gangs)
        )


def _place(gang: int, name: str) -> dict[str, Any]:
    return {"name": name, "namespace": f"team-{gang % NAMESPACE_COUNT}"}


def _question(index: int, gangs: int) -> bytes:
    gang = index % gangs
    metadata = _place(gang, f"pod-{index}") | {"labels": {"gang": f"g{gang}", "gang-size": "8"}}
    env = [{"name": f"NCCL_{number}", "value": "1"} for number in range(8)]
    limits = {"nvidia.com/mlnxnics": "8", "memory": "64Gi"}
    container = {"name": "m", "image": "i", "env": env, "resources": {"limits": limits, "claims": [{"name": "gpus"}]}}
    claims = [{"name": "gpus", "resourceClaimTemplateName": f"gang-{gang}"}]
    review: dict[str, Any] = {
        "apiVersion": "admission.k8s.io/v1",
        "kind": "AdmissionReview",
        "request": {
            "uid": str(index),
            "operation": "CREATE",
            "resource": {"group": "", "version": "v1", "resource": "pods"},
            "namespace": metadata["namespace"],
            "object": {"metadata": metadata, "spec": {"resourceClaims": claims, "containers": [container]}},
        },
    }
    return orjson.dumps(review)


async def _latencies(arguments: list[str], questions: list[bytes]) -> list[float]:
    """Seconds from when each question was due to its answer."""
    async with process(__file__, *arguments) as child:
        assert child.stdout is not None
        greeting = json.loads(await child.stdout.readline())
        context = ssl.create_default_context(cadata=greeting["authority"])
        connector = aiohttp.TCPConnector(ssl=context, limit=CONNECTIONS)
        async with aiohttp.ClientSession(greeting["url"], connector=connector) as session:
            for body in questions[-WARMED_UP:]:
                await _answered(session, body, changes=bool(arguments))
            return await _paced(session, questions, changes=bool(arguments))


async def _paced(session: aiohttp.ClientSession, questions: list[bytes], *, changes: bool) -> list[float]:
    began = perf_counter() + FIRST_AFTER_S

    async def ask(number: int, body: bytes) -> float:
        await asyncio.sleep(max(began + number / RATE_PER_S - perf_counter(), 0))
        await _answered(session, body, changes=changes)
        return perf_counter() - began - number / RATE_PER_S

    return await asyncio.gather(*(ask(number, body) for number, body in enumerate(questions)))


async def _answered(session: aiohttp.ClientSession, body: bytes, *, changes: bool) -> None:
    async with session.post(MUTATE_PATH, data=body) as response:
        answer = orjson.loads(await response.read())["response"]
        if not answer["allowed"] or ("patch" in answer) != changes:
            raise RuntimeError(f"an answer is not what it should be: {answer}")


async def _allow() -> None:
    """Answer each review at once, until killed."""

    async def allowed(_request: AdmissionRequest) -> AdmissionResponse:
        return ALLOWED

    now = system_clock()
    authority, certificates = authority_at(None, now), ServedCertificate(EXPIRES)
    certificates.show(serving_at(None, authority, (HOST,), now))
    metrics = ServerMetrics(UNDER_WAY, CONNECTIONS_REFUSED, lambda _, seconds: LATENCY.observe(seconds))
    server = ReviewServer(PreflightSettings(listen=f"{HOST}:0"), metrics)
    paths = {MUTATE_PATH: lambda http: server.answer(http, allowed, "")}
    async with server.serving(certificates.context, paths) as url:
        _greet(url, authority.bundle)
        await asyncio.Event().wait()


async def _decide(kubeconfig: Path, file: Path) -> None:
    """Inject checks until killed."""
    async with open_client(kubeconfig) as client, _running(client, file) as webhook:
        hook, *_ = (await client.get(MUTATING, NAME))["webhooks"]
        _greet(webhook.health().url or "", base64.b64decode(hook["clientConfig"]["caBundle"]))
        await asyncio.Event().wait()


@asynccontextmanager
async def _running(client: KubeClient, file: Path) -> AsyncIterator[PreflightWebhook]:
    settings = PreflightSettings(listen=f"{HOST}:0", address=None, namespace=HOME, file=file)
    webhook = PreflightWebhook(client, LEDGER, settings)
    running = asyncio.create_task(webhook.run())
    while not webhook.is_configured and not running.done():  # noqa: ASYNC110 - it says nothing
        await asyncio.sleep(READY_POLL_S)
    yield webhook
    running.cancel()


def _greet(url: str, bundle: bytes) -> None:
    """Say where it serves; what was imported is walked no more, as in `gpuledger up`."""
    gc.freeze()
    print(json.dumps({"url": url, "authority": bundle.decode()}), flush=True)


if __name__ == "__main__":
    configure_logging()
    with short_walks():
        asyncio.run(_decide(Path(sys.argv[1]), Path(sys.argv[2])) if sys.argv[1:] else _allow())
