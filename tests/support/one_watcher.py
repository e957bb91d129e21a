"""One watcher against a scripted API server, and the events that it records, as lines."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import datetime
from typing import Any

from aiohttp import web

from gpuledger.api.labels import LABEL_ENABLED
from gpuledger.edge.watchers.decide import AnyKind
from gpuledger.edge.watchers.journal import Journal
from gpuledger.edge.watchers.resources import nodes
from gpuledger.edge.watchers.watcher import WatchContext, Watcher, WatcherSettings
from gpuledger.events.envelope import decode
from gpuledger.events.node import NodeGone
from gpuledger.ledger.memory import MemoryLedger
from gpuledger.runtime.backoff import Backoff
from support.events import START
from support.ledgers import everything
from support.projections import stop
from support.scripted_api import Answer, ScriptedApi, answer, node, refuse, stream
from support.waiting import WAIT_MAX_S, eventually

NODES = nodes.kind(LABEL_ENABLED)
ON = stream(silent=True)


def gpu_node(name: str, product: str = "a", version: str = "1", uid: str = "u") -> dict[str, Any]:
    """A node that a watcher records because it has a label about a GPU."""
    metadata = {"uid": uid, "labels": {"nvidia.com/gpu.product": product}}
    return {"metadata": node(name, version)["metadata"] | metadata}


async def recorded_lines(ledger: MemoryLedger, epoch: bool = False) -> list[str]:
    """The recorded events as lines: number, subject and product."""
    words = []
    for message in await everything(ledger):
        one = decode(message.data)
        content = "gone" if isinstance(one.data, NodeGone) else one.data.labels.get("nvidia.com/gpu.product", "")  # type: ignore[attr-defined]
        words.append(f"{one.epoch + ' ' if epoch else ''}{one.number} {one.subject} {content}")
    return words


class OneCluster(ScriptedApi):
    """Answers which cluster it is at any time; the script is for all other requests."""

    cluster: str | None = "c1"

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        if not request.path.endswith("/namespaces/kube-system"):
            return await super()._answer(request)
        if self.cluster is None:
            return await refuse(403, "Forbidden")(request)
        return await answer({"metadata": {"uid": self.cluster}})(request)


class Watch:
    """A watcher that runs, and the pauses that it made; `on_pause` is called in each."""

    def __init__(self, client: Any, ledger: MemoryLedger, kind: AnyKind, epoch: str, audit_interval_s: float) -> None:
        self.pauses_s: list[float] = []
        self.now = START
        self.on_pause: Callable[[], None] = lambda: None
        bounds = WatcherSettings(audit_interval_s=audit_interval_s, backoff=Backoff(first_s=1, max_s=4))
        context = WatchContext(client, self.clock, lambda: 1.0, self.sleep, bounds)
        self.watcher = Watcher(kind, Journal(ledger, kind, lambda: epoch), context)

    def clock(self) -> datetime:
        return self.now

    async def sleep(self, pause_s: float) -> None:
        self.pauses_s.append(pause_s)
        self.on_pause()
        await asyncio.sleep(0)


@asynccontextmanager
async def watching(
    ledger: MemoryLedger,
    *answers: Answer,
    kind: AnyKind = NODES,
    epoch: str = "e",
    audit_interval_s: float = 60.0,
) -> AsyncIterator[tuple[Watch, OneCluster]]:
    """The running watcher and its API server, which gives the `answers` one after the other."""
    api = OneCluster(*answers)
    async with api.serving() as client:
        watch = Watch(client, ledger, kind, epoch, audit_interval_s)
        task = asyncio.create_task(watch.watcher.run())
        try:
            yield watch, api
        finally:
            await stop(task)


async def comes(ledger: MemoryLedger, *words: str) -> None:
    """Return when the ledger has exactly these lines."""
    try:
        async with asyncio.timeout(WAIT_MAX_S):
            while await recorded_lines(ledger) != list(words):  # noqa: ASYNC110 - the condition is in the ledger
                await asyncio.sleep(0.01)
    except TimeoutError:
        found = await recorded_lines(ledger)
        assert found == list(words), found


async def requested(api: ScriptedApi, count: int) -> None:
    """Return when the API server got so many requests."""

    async def so_often() -> bool:
        return len(api.requests) >= count

    await eventually(so_often)
