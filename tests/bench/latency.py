"""From publishing to the commit that shows it, at a steady rate.

The schedule is open loop: an event is due at its moment however long earlier ones take, and its latency counts from
that moment. The ceiling is the least that the two servers need one after the other: a bare acknowledgement and a bare
commit.
"""

import asyncio
import json
import sys
from bisect import bisect_left
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from statistics import quantiles
from time import perf_counter
from typing import Any

import psycopg

from bench import raw
from bench.report import Figure
from gpuledger.ledger.api import Ledger
from gpuledger.ledger.jetstream import connect_ledger
from gpuledger.projection.runner import Runner
from gpuledger.projection.store import Checkpoint
from gpuledger.readmodels.devices import DevicesProjection
from support import servers

RATE_PER_S = 1_000
P99_MS = 25.0
SETTLE_S = 60.0
CHILD = Path(__file__).with_name("pacing.py")
BARE_SUBJECT = "bare.commit"


class Commits:
    """When which position was committed."""

    def __init__(self) -> None:
        self._positions: list[int] = []
        self._times: list[float] = []
        self._advanced = asyncio.Event()

    def note(self, checkpoint: Checkpoint) -> None:
        """Called by the runner after each commit."""
        self._positions.append(checkpoint.position)
        self._times.append(perf_counter())
        self._advanced.set()

    async def reach(self, position: int) -> None:
        """Return when a position is committed."""
        async with asyncio.timeout(SETTLE_S):
            while not self._positions or self._positions[-1] < position:
                self._advanced.clear()
                await self._advanced.wait()

    def time_of(self, position: int) -> float:
        """When the commit that contains a position was done."""
        return self._times[bisect_left(self._positions, position)]


async def latency(database_url: str, seconds: float, bare_samples: int) -> list[Figure]:
    """p50 and p99 of published -> committed, beside those of an acknowledgement and a commit."""
    with servers.nats_server() as server:
        async with connect_ledger(server.url, name="bench") as ledger:
            bare = await _bare(server.url, database_url, bare_samples // 2)
            ours = await _paced(server.url, ledger, database_url, int(RATE_PER_S * seconds))
            bare += await _bare(server.url, database_url, bare_samples // 2)
    peer, name = "an acknowledgement and a commit", f"published -> committed at {RATE_PER_S:,}/s"
    return [
        Figure(f"{name}, p50", _percentile(ours, 50), "ms", f"{peer}, p50", _percentile(bare, 50), None),
        Figure(f"{name}, p99", _percentile(ours, 99), "ms", f"{peer}, p99", _percentile(bare, 99), P99_MS, False),
    ]


async def _paced(nats_url: str, ledger: Ledger, database_url: str, events: int) -> list[float]:
    commits = Commits()
    running = asyncio.create_task(Runner(DevicesProjection(), ledger, database_url, on_flush=commits.note).run())
    try:
        published = await _published(nats_url, events)
        await commits.reach(max(sequence for sequence, _ in published))
    finally:
        running.cancel()
        with suppress(asyncio.CancelledError):
            await running
    return [commits.time_of(sequence) - due for sequence, due in published]


async def _published(nats_url: str, events: int) -> list[tuple[int, float]]:
    """Publish from another process; sequence and moment of each event, by the clock that processes share."""
    command = (sys.executable, str(CHILD), nats_url, str(events), str(RATE_PER_S))
    child = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
    told, _ = await child.communicate()
    if child.returncode:
        raise RuntimeError(f"{CHILD.name} ended with {child.returncode}")
    return [(sequence, due) for sequence, due in json.loads(told)]


async def _bare(nats_url: str, database_url: str, samples: int) -> list[float]:
    times = []
    async with raw.client(nats_url) as client, await _connection(database_url) as connection:
        jetstream = client.jetstream()
        await jetstream.add_stream(name="BARE", subjects=[BARE_SUBJECT])
        await connection.execute("CREATE TABLE IF NOT EXISTS public.bare (id int PRIMARY KEY, value int)")
        await connection.execute("INSERT INTO public.bare VALUES (1, 0) ON CONFLICT DO NOTHING")
        for _ in range(samples):
            began = perf_counter()
            await jetstream.publish(BARE_SUBJECT, bytes(500))
            await connection.execute("UPDATE public.bare SET value = value + 1 WHERE id = 1")
            times.append(perf_counter() - began)
    return times


async def _connection(database_url: str) -> psycopg.AsyncConnection[Any]:
    return await psycopg.AsyncConnection.connect(database_url, autocommit=True)


def _percentile(times_s: Sequence[float], percent: int) -> float:
    return quantiles(times_s, n=100)[percent - 1] * 1000
