"""How many reports a second health monitors get answers for: over TCP with TLS and a token, beside a node's socket.

One monitor reports one at a time, or many in a request; no two reports are the same. Over TCP an answer means that the
ledger has them, over the socket that they are on the node's disk.
"""

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from time import monotonic, perf_counter
from typing import Any, NamedTuple

from bench.report import Figure
from gpuledger.agent.board import Board
from gpuledger.agent.gateway.part import HealthGateway
from gpuledger.agent.gateway.service import ReportCounts
from gpuledger.agent.outbox.outbox import open_outbox
from gpuledger.agent.settings import HealthSettings
from gpuledger.edge.gateway.bounds import GatewayBounds
from gpuledger.ledger.memory import MemoryLedger
from gpuledger.runtime.clock import system_clock
from gpuledger.runtime.tasks import end
from support import servers
from support.edges import MemoryEdge
from support.gateway import gateways
from support.health_monitor import Monitor, a_monitor
from support.ledgers import new_ledger
from support.waiting import eventually

NODE = "n1"
UNBOUNDED = GatewayBounds(reports_per_s_max=1e9, reports_burst_max=10**9)


class ReportsSizes(NamedTuple):
    """How many reports are sent one at a time, and how many requests with how many reports."""

    alone: int = 1_000
    requests: int = 10
    together: int = 500


FULL = ReportsSizes()
QUICK = ReportsSizes(20, 2, 10)


class _Rates(NamedTuple):
    alone_per_s: float
    together_per_s: float


async def health_reports(sizes: ReportsSizes = FULL) -> list[Figure]:
    """Reports a second, one at a time and together."""
    async with _over_tcp() as monitor:
        tcp = await _measured(monitor, sizes)
    async with _over_a_socket() as monitor:
        socket = await _measured(monitor, sizes)
    name, peer = "health reports over TCP, each in the ledger", "over the socket, each on the disk"
    return [
        Figure(f"{name}, one at a time", tcp.alone_per_s, "/s", peer, socket.alone_per_s, None),
        Figure(f"{name}, {sizes.together} in a request", tcp.together_per_s, "/s", peer, socket.together_per_s, None),
    ]


async def _measured(monitor: Monitor, sizes: ReportsSizes) -> _Rates:
    await _report(monitor, range(1))
    began_s = perf_counter()
    for number in range(1, sizes.alone + 1):
        await _report(monitor, range(number, number + 1))
    alone_s = perf_counter() - began_s
    first = sizes.alone + 1
    began_s = perf_counter()
    for request in range(sizes.requests):
        begin = first + request * sizes.together
        await _report(monitor, range(begin, begin + sizes.together))
    together_s = perf_counter() - began_s
    return _Rates(sizes.alone / alone_s, sizes.requests * sizes.together / together_s)


async def _report(monitor: Monitor, numbers: range) -> None:
    answer = await monitor.report(*({"checkName": f"check {number}"} for number in numbers))
    assert answer.status == "OK", answer


@asynccontextmanager
async def _over_tcp() -> AsyncIterator[Monitor]:
    with servers.nats_server() as server, servers.short_directory() as folder:
        async with (
            new_ledger(server.url, name="bench") as ledger,
            gateways(folder, ledger) as here,
            here.serving(UNBOUNDED) as ports,
            here.monitor(ports.tokens, token=await here.token(NODE)) as monitor,
        ):
            yield monitor


@asynccontextmanager
async def _over_a_socket() -> AsyncIterator[Monitor]:
    with servers.short_directory() as folder:
        clocks: dict[str, Any] = {"clock": system_clock, "monotonic": monotonic}
        async with open_outbox(folder / "state", NODE, version="1.0", hardware="simulated", **clocks) as outbox:
            settings = HealthSettings(folder / "health.sock", frozenset(), folder / "pods")
            proc, edge = _without_pods(folder), MemoryEdge(MemoryLedger())
            counts = ReportCounts()
            part = HealthGateway(NODE, Board(), outbox, settings, counts, edge.connect, **clocks, proc=proc)
            serving = asyncio.create_task(part.run(outbox.record))
            try:
                await eventually(lambda: asyncio.to_thread((folder / "health.sock").exists))
                async with a_monitor(folder / "health.sock") as monitor:
                    yield monitor
            finally:
                await end([serving])


def _without_pods(folder: Path) -> Path:
    """A folder of processes in which this one belongs to no pod."""
    process = folder / "proc" / str(os.getpid())
    process.mkdir(parents=True)
    (process / "stat").write_text(f"1 (a) S {' '.join(map(str, range(1, 40)))}")
    (process / "cgroup").write_text("0::/\n")
    return folder / "proc"
