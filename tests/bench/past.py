"""How long the commands that ask the past take, in a long log about a large fleet, each in a process of its own.

A person waits for the whole command: the interpreter, its imports, the question, and the rows as text. So the figures
are of processes, and beside each stands one that only imports what the command does.
"""

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

import psutil

from bench.commands import Taken, command, program
from bench.past_data import Past, PastSizes, open_past
from bench.processes import percentile_ms
from bench.raw import client
from bench.report import Figure
from gpuledger.ledger.stream import stream_name
from gpuledger.local.servers.nats import NatsServer
from gpuledger.runtime.settings import OBJECTS_URL

NATS_MB_MAX: Final = 1_000.0
FULL = PastSizes()
QUICK = PastSizes(3_000, 300, 2)


class Asked(NamedTuple):
    """A command, the modules that it imports whatever it does, and its arguments of each round."""

    name: str
    modules: str
    p95_ms_max: float
    arguments: Sequence[Sequence[str]]


async def past(sizes: PastSizes = FULL) -> list[Figure]:
    """The memory of NATS, a rebuild from a snapshot, and each command beside its imports."""
    async with open_past(sizes) as (data, figures):
        figures.append(await _memory(data))
        backend = data.backend
        environment = {
            "NATS_URL": backend.nats_url,
            "DATABASE_URL": backend.database_url,
            OBJECTS_URL: backend.objects_url or "",
        }
        for asked in await _commands(data):
            figures.extend(await _figures(asked, sizes, environment))
    return figures


async def _commands(data: Past) -> list[Asked]:
    get, timeline = "gpuledger.cli.get.command", "gpuledger.cli.commands.timeline"
    at = [("get", "devices", "--at", one) for one in await data.times()]
    recorded = [("get", "devices", "--as-recorded", one) for one in await data.positions()]
    devices = [("timeline", "device", one, "--no-kube") for one in data.devices()]
    return [
        Asked("get devices --at", get, 1_000.0, at),
        Asked("get devices --as-recorded", get, 3_000.0, recorded),
        Asked("timeline of a device", timeline, 200.0, devices),
    ]


async def _figures(asked: Asked, sizes: PastSizes, environment: Mapping[str, str]) -> list[Figure]:
    taken, started = list[Taken](), list[Taken]()
    for arguments in asked.arguments:
        started.append(await program(["-c", f"import gpuledger.cli.main, {asked.modules}"], environment))
        taken.append(await command(arguments, environment))
    name, peer = f"{asked.name}, {sizes.label}", "a process with its imports"
    walls, imports = [[one.wall_s for one in some] for some in (taken, started)]
    busy, imports_busy = [[one.busy_s for one in some] for some in (taken, started)]
    p95, p50, busy95 = percentile_ms(walls, 95), percentile_ms(walls, 50), percentile_ms(busy, 95)
    return [
        Figure(f"{name}, p95", p95, "ms", peer, percentile_ms(imports, 95), asked.p95_ms_max, is_ratio=False),
        Figure(f"{name}, p50", p50, "ms", peer, percentile_ms(imports, 50), None),
        Figure(f"{name}, processor time, p95", busy95, "ms", peer, percentile_ms(imports_busy, 95), None),
    ]


async def _memory(data: Past) -> Figure:
    async with client(data.nats.url) as connection:
        info = await connection.jetstream().stream_info(stream_name(1))
    name, log_mb = f"memory of NATS, {data.sizes.label}", int(info.state.bytes) / 1e6
    return Figure(name, _resident_mb(data.nats), "MB", "its log", log_mb, NATS_MB_MAX, is_ratio=False)


def _resident_mb(server: NatsServer) -> float:
    return float(psutil.Process(server.pid).memory_info().rss) / 1e6
