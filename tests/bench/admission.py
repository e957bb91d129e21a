"""The webhooks at a steady rate: how long an API server waits for an answer about a pod, over HTTPS.

The server is a process of its own; this one asks, open loop: what is due is asked whatever became of the questions
before. The ceiling is the very same server with nothing to decide. Called as a program it is the server:
`admission.py POOLS`, which decides, or `admission.py 0`, which allows everything.
"""

import asyncio
import json
import ssl
import sys
from collections.abc import Callable
from pathlib import Path
from time import perf_counter
from typing import Any, NamedTuple

import aiohttp
import orjson

if __name__ == "__main__":
    sys.path[0] = str(Path(__file__).parents[1])

from bench.processes import percentile_ms, process
from bench.report import Figure
from gpuledger.edge.admission.metrics import EXPIRES
from gpuledger.edge.admission.rules.decide import decide
from gpuledger.edge.admission.server import WebhookServer
from gpuledger.edge.admission.settings import AdmissionSettings
from gpuledger.edge.admission.webhook_configuration import MUTATE_PATH, VALIDATE_PATH
from gpuledger.edge.webhooks.certificates.authority import authority_at, serving_at
from gpuledger.edge.webhooks.certificates.rotation import ServedCertificate
from gpuledger.edge.webhooks.serving.review import ALLOWED, AdmissionRequest, AdmissionResponse
from gpuledger.runtime.clock import system_clock
from gpuledger.runtime.garbage import short_walks
from gpuledger.runtime.telemetry import configure_logging
from support.admission import cached, namespace, pod_with, pool

HOST = "127.0.0.1"
RATE_PER_S = 200
P99_MS = 20.0
WARMED_UP = 200
FIRST_AFTER_S = 0.2
TAINTS = [{"key": "gpu", "value": "yes", "effect": "NoSchedule"}]


class AdmissionSizes(NamedTuple):
    """How many pools are known, each in a namespace of its own, and for how long is asked."""

    pools: int = 1_000
    load_s: float = 20.0


FULL = AdmissionSizes()
QUICK = AdmissionSizes(20, 0.5)


async def admission(sizes: AdmissionSizes = FULL) -> list[Figure]:
    """The median and the 99th percentile of the answers' time."""
    questions = [_question(index, sizes.pools) for index in range(int(sizes.load_s * RATE_PER_S))]
    bare = await _latencies(0, questions)
    deciding = await _latencies(sizes.pools, questions)
    name, peer = f"a pod reviewed at {RATE_PER_S}/s, {sizes.pools:,} pools", "the same server, deciding nothing"
    p50, p99 = ((percentile_ms(deciding, percent), percentile_ms(bare, percent)) for percent in (50, 99))
    return [
        Figure(f"{name}, p50", p50[0], "ms", peer, p50[1], None),
        Figure(f"{name}, p99", p99[0], "ms", peer, p99[1], P99_MS, is_ratio=False),
    ]


def _question(index: int, pools: int) -> tuple[str, bytes]:
    number = index % pools
    pod = pod_with(f"gpu.deckhouse.io/pool-{number}", spec={"nodeSelector": {"zone": "a"}})
    review: dict[str, Any] = {
        "apiVersion": "admission.k8s.io/v1",
        "kind": "AdmissionReview",
        "request": {
            "uid": str(index),
            "operation": "CREATE",
            "resource": {"group": "", "version": "v1", "resource": "pods"},
            "namespace": f"team-{number}",
            "userInfo": {"username": "system:serviceaccount:kube-system:replicaset-controller"},
            "object": pod,
        },
    }
    return (MUTATE_PATH if index % 2 else VALIDATE_PATH), orjson.dumps(review)


async def _latencies(pools: int, questions: list[tuple[str, bytes]]) -> list[float]:
    """Seconds from when each question was due to its answer."""
    async with process(__file__, str(pools)) as child:
        assert child.stdout is not None
        greeting = json.loads(await child.stdout.readline())
        context = ssl.create_default_context(cadata=greeting["authority"])
        connector = aiohttp.TCPConnector(ssl=context, limit=0)
        async with aiohttp.ClientSession(greeting["url"], connector=connector) as session:
            for path, body in questions[:WARMED_UP]:
                await _answered(session, path, body)
            return await _paced(session, questions)


async def _paced(session: aiohttp.ClientSession, questions: list[tuple[str, bytes]]) -> list[float]:
    began = perf_counter() + FIRST_AFTER_S

    async def ask(number: int, path: str, body: bytes) -> float:
        await asyncio.sleep(max(began + number / RATE_PER_S - perf_counter(), 0))
        await _answered(session, path, body)
        return perf_counter() - began - number / RATE_PER_S

    return await asyncio.gather(*(ask(number, *question) for number, question in enumerate(questions)))


async def _answered(session: aiohttp.ClientSession, path: str, body: bytes) -> None:
    async with session.post(path, data=body) as response:
        answer = orjson.loads(await response.read())
        if not answer["response"]["allowed"]:
            raise RuntimeError(f"a pod was refused: {answer['response']['status']['message']}")


async def _serve(pools: int) -> None:
    """Serve until killed, and say where."""
    now = system_clock()
    authority = authority_at(None, now)
    certificates = ServedCertificate(EXPIRES)
    certificates.show(serving_at(None, authority, (HOST,), now))
    server = WebhookServer(_deciding(pools) if pools else lambda _: ALLOWED, AdmissionSettings(listen=f"{HOST}:0"))
    async with server.serving(certificates.context) as url:
        print(json.dumps({"url": url, "authority": authority.bundle.decode()}), flush=True)
        await asyncio.Event().wait()


def _deciding(pools: int) -> Callable[[AdmissionRequest], AdmissionResponse]:
    facts = []
    for number in range(pools):
        spec: dict[str, Any] = {"node_selector": {"labels": {"zone": "a"}}, "taints": TAINTS, "strategy": "Spread"}
        facts += [namespace(f"team-{number}"), *pool(f"team-{number}/pool-{number}", **spec)]
    state = cached(*facts)
    return lambda review: decide(review, state)


if __name__ == "__main__":
    configure_logging()
    with short_walks():
        asyncio.run(_serve(int(sys.argv[1])))
