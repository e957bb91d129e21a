"""How long the commands that ask the past take, in a long log about a large fleet, each in a process of its own.

A person waits for the whole command: the interpreter, its imports, the question, and the rows as text. So the figures
are of processes, and beside each stands one that only imports what the command does, and the question alone.
"""

import asyncio
import json
import os
import subprocess
import sys
from collections import deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, Final, NamedTuple

import psutil

from bench.commands import Taken, command, program, took_s
from bench.past_data import Past, PastSizes, open_past
from bench.processes import percentile_ms
from bench.report import Figure
from gpuledger.cli.get.nouns import DEVICES
from gpuledger.cli.render import Output
from gpuledger.ledger.connect import connected
from gpuledger.ledger.partition_size import log_size
from gpuledger.ledger.stream import stream_info, stream_name
from gpuledger.local.servers.nats import NatsServer
from gpuledger.runtime.settings import OBJECTS_URL
from gpuledger.tools.queries.backend import Backend
from gpuledger.tools.queries.halves import all_rows_at
from gpuledger.tools.queries.rows import RowFilter, rows_as_recorded
from gpuledger.tools.timeline import device_timeline

CHILD = Path(__file__).with_name("starting_rows.py")
IMPORTING: Final = (
    "import gpuledger.cli.main as cli; cli.defer_imports(); import gpuledger.cli.app as app; app.COMMANDS"
)
NATS_MB_MAX: Final = 1_000.0
START_S_MAX: Final = 10.0
FULL = PastSizes()
QUICK = PastSizes(3_000, 300, 2)


class Asked(NamedTuple):
    """A command, its question alone, and what is asked each round."""

    name: str
    p95_ms_max: float
    options: Sequence[str]
    question: Callable[[Backend, str], Awaitable[object]]
    asked: Sequence[str]


async def past(sizes: PastSizes = FULL) -> list[Figure]:
    """The memory of NATS, a rebuild from a snapshot, and each command beside its imports."""
    async with open_past(sizes) as (data, figures):
        backend = data.backend
        figures += [await _memory(data), *await _start(backend, sizes)]
        environment = {
            "NATS_URL": backend.nats_url,
            "DATABASE_URL": backend.database_url,
            OBJECTS_URL: backend.objects_url or "",
        }
        for asked in await _commands(data):
            figures.extend(await _figures(asked, data, environment))
    return figures


async def _commands(data: Past) -> list[Asked]:
    at, recorded = ("get", "devices", "--at"), ("get", "devices", "--as-recorded")
    return [
        Asked("get devices --at", 1_000.0, at, _at, await data.times()),
        Asked("get devices --as-recorded", 3_000.0, recorded, _as_recorded, await data.positions()),
        Asked(
            "timeline of a device",
            200.0,
            ("timeline", "--no-kube", "device"),
            device_timeline,
            data.devices(),
        ),
    ]


async def _at(backend: Backend, at: str) -> object:
    shown = RowFilter(columns=DEVICES.view.needed(Output.TABLE))
    return await all_rows_at(backend, DEVICES.source, datetime.fromisoformat(at), shown)


async def _as_recorded(backend: Backend, position: str) -> object:
    return await rows_as_recorded(backend, DEVICES.source, int(position))


async def _figures(asked: Asked, data: Past, environment: Mapping[str, str]) -> list[Figure]:
    taken, started, alone = list[Taken](), list[Taken](), list[Taken]()
    # No question is asked twice in a row: the servers would still have in memory what it needs.
    others = deque(asked.asked)
    others.rotate(len(others) // 2)
    for one, other in zip(asked.asked, others, strict=True):
        started.append(await program(["-c", f"{IMPORTING}[{asked.options[0]!r}]"], environment))
        taken.append(await command([*asked.options, one], environment))
        alone.append(await took_s(asked.question(data.backend, other)))
    name, imports = f"{asked.name}, {data.sizes.label}", "a process with its imports"
    target = asked.p95_ms_max
    return [
        Figure(f"{name}, p95", _wall_ms(taken, 95), "ms", imports, _wall_ms(started, 95), target, is_ratio=False),
        Figure(f"{name}, p50", _wall_ms(taken, 50), "ms", imports, _wall_ms(started, 50), None),
        Figure(f"{name}, processor time, p95", _busy_ms(taken, 95), "ms", imports, _busy_ms(started, 95), None),
        Figure(f"{name}, the question alone, p95", _wall_ms(alone, 95), "ms", "p50", _wall_ms(alone, 50), None),
    ]


def _wall_ms(taken: Sequence[Taken], percent: int) -> float:
    return percentile_ms([one.wall_s for one in taken], percent)


def _busy_ms(taken: Sequence[Taken], percent: int) -> float:
    return percentile_ms([one.busy_s for one in taken], percent)


async def _start(backend: Backend, sizes: PastSizes) -> list[Figure]:
    """A start of the projection behind its rows: what is open, whatever the log's length."""
    environment = {**os.environ, "PYTHONPATH": str(CHILD.parent.parent)}
    arguments = [sys.executable, str(CHILD), backend.nats_url, backend.database_url]
    done = await asyncio.to_thread(subprocess.run, arguments, check=True, stdout=subprocess.PIPE, env=environment)
    took: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    peak_mb, imports_mb = took["peak_kib"] * 1024 / 1e6, took["imports_kib"] * 1024 / 1e6
    name = f"start of devices, {sizes.label}"
    return [
        Figure(name, took["wall_s"], "s", "processor time", took["busy_s"], START_S_MAX, is_ratio=False),
        Figure(f"peak memory of a {name}", peak_mb, "MB", "the process after its imports", imports_mb, None),
    ]


async def _memory(data: Past) -> Figure:
    async with connected(data.nats.url, name="bench") as connection:
        size = await log_size(connection, 1, await stream_info(connection, stream_name(1)))
    name, log_mb = f"memory of NATS, {data.sizes.label}", size.size_bytes / 1e6
    return Figure(name, _resident_mb(data.nats), "MB", "its log", log_mb, NATS_MB_MAX, is_ratio=False)


def _resident_mb(server: NatsServer) -> float:
    return float(psutil.Process(server.pid).memory_info().rss) / 1e6
