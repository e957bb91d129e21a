"""A start of admission behind its last snapshot, in a log of N events and of ten times as many with the same state."""

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.report import Figure
from bench.servers import unsynced_nats
from gpuledger.events.namespace import NamespaceObserved
from gpuledger.events.node import NodeLabelled
from gpuledger.events.payload import Payload
from gpuledger.ledger.api import Ledger, Outgoing
from support.events import event, outgoing
from support.ledgers import new_ledger

CHILD = Path(__file__).with_name("starting.py")
TIMES = 10
PER_PUBLISH = 1_000
START_MAX_S = 5.0
SOURCE = "/watchers/bench"


@dataclass(frozen=True)
class RestartingSizes:
    """How long the shorter log is, and how many nodes and namespaces both speak of."""

    events: int
    subjects: int


FULL = RestartingSizes(100_000, 2_000)
QUICK = RestartingSizes(2_500, 100)


async def restarting(database_url: str, sizes: RestartingSizes) -> list[Figure]:
    """Seconds and peak memory of a start in the long log, beside those in the short one and of the first start."""
    with unsynced_nats() as server:
        async with new_ledger(server.url, name="bench") as ledger:
            await _record(ledger, sizes, 1, sizes.events)
            await _start(server.url, database_url)
            short = await _start(server.url, database_url)
            await _record(ledger, sizes, sizes.events + 1, TIMES * sizes.events)
        first = await _start(server.url, database_url)
        long = await _start(server.url, database_url)
    name = f"start of admission, {long['log']:,} events, {long['read']:,} of them behind a snapshot"
    shorter, took_s = f"at {short['log']:,} events", long["took_s"]
    peaks = [one["peak_kib"] * 1024 / 1e6 for one in (long, short)]
    return [
        Figure(name, took_s, "s", shorter, short["took_s"], START_MAX_S, is_ratio=False),
        Figure(f"{name}, again", took_s, "s", f"{first['read']:,} events read", first["took_s"], None),
        Figure(f"peak memory of a start of admission, {long['log']:,} events", peaks[0], "MB", shorter, peaks[1], None),
    ]


async def _record(ledger: Ledger, sizes: RestartingSizes, first: int, last: int) -> None:
    for start in range(first, last + 1, PER_PUBLISH):
        await ledger.publish_many(list(_events(sizes, start, min(last, start + PER_PUBLISH - 1))))


def _events(sizes: RestartingSizes, first: int, last: int) -> Iterator[Outgoing]:
    for number in range(first, last + 1):
        subject = f"s{number % sizes.subjects}"
        data: Payload = NamespaceObserved(uid="u", gpu_enabled=number % 3 > 0)
        if number % 2:
            data = NodeLabelled(uid="u", labels={"zone": f"z{number % 5}", "kubernetes.io/hostname": subject})
        yield outgoing(event(data, subject, number=number, at=number / 3600, source=SOURCE))


async def _start(nats_url: str, database_url: str) -> dict[str, Any]:
    command = [sys.executable, str(CHILD), nats_url, database_url]
    environment = {**os.environ, "PYTHONPATH": str(CHILD.parent.parent)}
    done = await asyncio.to_thread(subprocess.run, command, check=True, stdout=subprocess.PIPE, env=environment)
    usage: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return usage
