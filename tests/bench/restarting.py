"""Starts of services behind their last snapshots, in a log of N events and in one many times as long."""

import asyncio
import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from bench.long_log import LongLog
from bench.report import Figure
from bench.servers import unsynced_nats
from support.ledgers import new_ledger

CHILD = Path(__file__).with_name("starting.py")
START_MAX_S: Final = {"admission": 5.0, "statuswriter": 10.0}
"""How long a start of each service may take, at any length of the log."""


@dataclass(frozen=True)
class RestartingSizes:
    """How long the shorter log and the longer one are, and how many devices, nodes and namespaces both speak of."""

    events: int
    subjects: int
    long_events: int


FULL = RestartingSizes(100_000, 2_000, 1_000_000)
QUICK = RestartingSizes(2_500, 100, 25_000)


async def restarting(database_url: str, sizes: RestartingSizes) -> list[Figure]:
    """Seconds and peak memory of starts in the long log, beside those in the short one and of the first start."""
    log, services = LongLog(sizes.subjects), list(START_MAX_S)
    with unsynced_nats() as server:

        async def start() -> list[dict[str, Any]]:
            return [await _start(server.url, database_url, one) for one in services]

        async with new_ledger(server.url, name="bench") as ledger:
            await log.record(ledger, 1, sizes.events)
            await _start(server.url, database_url, *services)
            short = await start()
            await log.record(ledger, sizes.events + 1, sizes.long_events)
        first, long = await _start(server.url, database_url, *services), await start()
    return [
        figure
        for service, *measured in zip(services, short, long, strict=True)
        for figure in _figures(service, first, *measured)
    ]


def _figures(service: str, first: dict[str, Any], short: dict[str, Any], long: dict[str, Any]) -> list[Figure]:
    assert short["work"] == long["work"], "the open state is the same"
    name = f"start of {service}, {long['log']:,} events, {long['read']:,} of them behind a snapshot"
    shorter, took_s, limit_s = f"at {short['log']:,} events", long["took_s"], START_MAX_S[service]
    peaks = [one["peak_kib"] * 1024 / 1e6 for one in (long, short)]
    memory = f"peak memory of a start of {service}, {long['log']:,} events"
    everything = f"{first['read']:,} events read, for all services at once"
    return [
        Figure(name, took_s, "s", shorter, short["took_s"], limit_s, is_ratio=False),
        Figure(f"{name}, again", took_s, "s", everything, first["took_s"], None),
        Figure(memory, peaks[0], "MB", shorter, peaks[1], None),
    ]


async def _start(nats_url: str, database_url: str, *services: str) -> dict[str, Any]:
    command = [sys.executable, str(CHILD), nats_url, database_url, *services]
    environment = {**os.environ, "PYTHONPATH": str(CHILD.parent.parent)}
    done = await asyncio.to_thread(subprocess.run, command, check=True, stdout=subprocess.PIPE, env=environment)
    usage: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return usage
