"""What a control plane costs while nothing happens, beside a loop that only wakes every second.

All projections of a process first, then `gpuledger up` with the servers that it starts: NATS, PostgreSQL, an API server
and one simulated node, for which hardly any time passes.
"""

import asyncio
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from time import process_time, sleep
from typing import NamedTuple

import psutil

from bench.report import Figure
from bench.servers import unsynced_nats
from gpuledger.ledger.jetstream import connect_ledger
from gpuledger.projection.supervision import Supervision
from gpuledger.tools.queries.backend import all_projections
from support.up import running_up

CPU_PERCENT = 2.0
POLL_S = 0.05


class RestingSizes(NamedTuple):
    """For how long all is watched at rest."""

    rest_s: float = 30.0
    settle_s: float = 60.0
    """How long `up` first takes for a node that has just come."""


FULL = RestingSizes()
QUICK = RestingSizes(1.0, 1.0)
ONE_NODE = ("--fleet", "nodes=1,gpus=8,profile=h200", "--speed", "0.001")


async def resting(database_url: str, sizes: RestingSizes = FULL) -> list[Figure]:
    """Processor time in percent of a core."""
    loop_percent = await _percent(sizes.rest_s)
    with unsynced_nats() as server:
        async with connect_ledger(server.url, name="bench") as ledger:
            supervision = Supervision(all_projections(), ledger, database_url)
            tasks = [asyncio.ensure_future(one) for one in supervision.work()]
            try:
                while not _are_settled(supervision):  # noqa: ASYNC110 - nobody notifies
                    await asyncio.sleep(POLL_S)
                percent = await _percent(sizes.rest_s)
            finally:
                for task in tasks:
                    task.cancel()
                for task in tasks:
                    with suppress(asyncio.CancelledError):
                        await task
    name = f"{len(all_projections())} projections at rest, CPU"
    up_percent = await asyncio.to_thread(_up_percent, sizes)
    wakes = "a loop that wakes every second"
    return [
        Figure(name, percent, "%", wakes, loop_percent, CPU_PERCENT, is_ratio=False),
        Figure(
            "`up` with its servers and a node, CPU", up_percent, "%", wakes, loop_percent, CPU_PERCENT, is_ratio=False
        ),
    ]


def _are_settled(supervision: Supervision) -> bool:
    return supervision.healthy and all(
        one.state == "running" and one.lag_events == 0 for one in supervision.health().values()
    )


async def _percent(rest_s: float) -> float:
    began_s = process_time()
    for _ in range(max(1, round(rest_s))):
        await asyncio.sleep(1.0)
    return (process_time() - began_s) / max(1, round(rest_s)) * 100


def _up_percent(sizes: RestingSizes) -> float:
    with TemporaryDirectory() as directory, running_up(Path(directory) / "data", *ONE_NODE) as up:
        sleep(sizes.settle_s)
        main = psutil.Process(up.process.pid)
        began_s = _spent_s(main)
        sleep(sizes.rest_s)
        return (_spent_s(main) - began_s) / sizes.rest_s * 100


def _spent_s(main: psutil.Process) -> float:
    spent = (one.cpu_times() for one in (main, *main.children(recursive=True)))
    return sum(one.user + one.system for one in spent)
