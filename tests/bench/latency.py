"""From publishing to the commit that shows it, at a steady rate.

The schedule is open loop: an event is due at its moment however long earlier ones take, and its latency counts from
that moment. The ceiling is the least that the two servers need: the acknowledgement of nats-py's own
publishing at the same rate, and a commit of one row beside it.
"""

import asyncio
import json
import sys
from bisect import bisect_left
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, suppress
from pathlib import Path
from statistics import median, quantiles
from time import perf_counter
from typing import Any, NamedTuple

import psycopg
from psycopg.sql import SQL, Identifier

from bench import raw
from bench.report import Figure
from bench.servers import unsynced_nats
from gpuledger.events.position import Offset, number_of
from gpuledger.ledger.api import Ledger
from gpuledger.local.servers.nats import NatsServer
from gpuledger.projection.checkpoint import LIVE, Checkpoint, schema_of
from gpuledger.projection.runner import Runner
from gpuledger.readmodels.projections import DevicesProjection
from support import servers
from support.ledgers import new_ledger

RATE_PER_S = 1_000
P99_MS = 25.0
SETTLE_S = 60.0
COMMIT_EVERY_S = 0.01
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
        self._positions.append(number_of(checkpoint.position))
        self._times.append(perf_counter())
        self._advanced.set()

    async def reach(self, position: Offset) -> None:
        """Return when a position is committed."""
        async with asyncio.timeout(SETTLE_S):
            while not self._positions or self._positions[-1] < number_of(position):
                self._advanced.clear()
                await self._advanced.wait()

    def time_of(self, position: int) -> float:
        """When the commit that contains a position was done."""
        return self._times[bisect_left(self._positions, position)]


class Published(NamedTuple):
    """An event's position, when it was due by the steady clock, and its id; of a bare message, its latency."""

    sequence: int
    seconds: float
    id: str = ""


async def latency(database_url: str, seconds: float, rounds: int) -> list[Figure]:
    """p50 and p99 of published -> committed, with the log synced for every event and without that."""
    events = int(RATE_PER_S * seconds)
    synced = [await _round(servers.nats_server, database_url, events) for _ in range(rounds)]
    unsynced = [await _round(unsynced_nats, database_url, events) for _ in range(rounds)]
    return _figures(synced, "", P99_MS) + _figures(unsynced, ", without sync", None)


class Round(NamedTuple):
    """Percentiles of one round, in ms."""

    p50: float
    p99: float
    bare_p50: float
    bare_p99: float


async def _round(
    nats_server: Callable[[], AbstractContextManager[NatsServer]], database_url: str, events: int
) -> Round:
    with nats_server() as server:
        bare = await _bare(server.url, database_url, events // 2)
        async with new_ledger(server.url, name="bench") as ledger:
            ours = await _paced(server.url, ledger, database_url, events)
    await _forget_rows(database_url)
    return Round(_percentile(ours, 50), _percentile(ours, 99), _sum(bare, 50), _sum(bare, 99))


def _figures(rounds: Sequence[Round], kind: str, target: float | None) -> list[Figure]:
    p50, p99, bare_p50, bare_p99 = map(median, zip(*rounds, strict=True))
    name, peer = f"published -> committed, {RATE_PER_S:,}/s{kind}", "bare acknowledgement + commit"
    return [
        Figure(f"{name}, p50", p50, "ms", peer, bare_p50, None),
        Figure(f"{name}, p99", p99, "ms", peer, bare_p99, target, is_ratio=False),
    ]


async def _paced(nats_url: str, ledger: Ledger, database_url: str, events: int) -> list[float]:
    commits = Commits()
    running = asyncio.create_task(Runner(DevicesProjection(), ledger, database_url, on_flush=commits.note).run())
    try:
        published = await published_by_child(nats_url, events)
        await commits.reach(max(one.sequence for one in published))
    finally:
        running.cancel()
        with suppress(asyncio.CancelledError):
            await running
    return [commits.time_of(one.sequence) - one.seconds for one in published]


async def published_by_child(nats_url: str, events: int, *options: str) -> list[Published]:
    """Publish from another process; what it prints, by the clock that processes share."""
    command = (sys.executable, str(CHILD), nats_url, str(events), str(RATE_PER_S), *options)
    child = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
    output, _ = await child.communicate()
    if child.returncode:
        raise RuntimeError(f"{CHILD.name} ended with {child.returncode}")
    return [Published(*one) for one in json.loads(output)]


async def _bare(nats_url: str, database_url: str, events: int) -> tuple[list[float], list[float]]:
    """Latencies of acknowledgements at the same rate, and of commits of one row meanwhile."""
    async with raw.client(nats_url) as client, await _connection(database_url) as connection:
        await client.jetstream().add_stream(name="BARE", subjects=[BARE_SUBJECT])
        await connection.execute("CREATE TABLE IF NOT EXISTS public.bare (id int PRIMARY KEY, value int)")
        await connection.execute("INSERT INTO public.bare VALUES (1, 0) ON CONFLICT DO NOTHING")
        commits: list[float] = []
        publishing = asyncio.create_task(published_by_child(nats_url, events, BARE_SUBJECT))
        while not publishing.done():
            began = perf_counter()
            await connection.execute("UPDATE public.bare SET value = value + 1 WHERE id = 1")
            commits.append(perf_counter() - began)
            await asyncio.sleep(COMMIT_EVERY_S)
        return [one.seconds for one in await publishing], commits


async def _forget_rows(database_url: str) -> None:
    """The next log begins anew, so the rows have to."""
    projection = DevicesProjection()
    async with await _connection(database_url) as connection:
        for spec in projection.specs:
            await connection.execute(SQL("TRUNCATE {}").format(Identifier(schema_of(LIVE), spec.name)))
        await connection.execute("DELETE FROM gpuledger.projection")
        await connection.execute("DELETE FROM gpuledger.seen")


async def _connection(database_url: str) -> psycopg.AsyncConnection[Any]:
    return await psycopg.AsyncConnection.connect(database_url, autocommit=True)


def _percentile(times_s: Sequence[float], percent: int) -> float:
    return quantiles(times_s, n=100)[percent - 1] * 1000


def _sum(parts: Sequence[Sequence[float]], percent: int) -> float:
    return sum(_percentile(part, percent) for part in parts)
