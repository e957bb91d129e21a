"""From publishing to the commit that shows it on a cluster of three NATS servers, one of which dies every 20 s.

The schedule is that of `bench.latency`. An event counts as outside elections unless it is due between a server's death
and the moment when the stream has a leader again and everything that it had by then is committed. A loss ends the run.
"""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from time import perf_counter
from typing import NamedTuple

from bench.latency import RATE_PER_S, Commits, published_by_child
from bench.processes import percentile_ms
from bench.report import Figure
from gpuledger.ledger.api import Ledger
from gpuledger.projection.runner import Runner
from gpuledger.readmodels.projections import DevicesProjection
from support.ledgers import new_ledger
from support.nats_cluster import ClusterServer, NatsCluster, nats_cluster

STREAM = "LEDGER_1"
P99_MS = 250.0


class ClusterSizes(NamedTuple):
    """For how long events are published, how often a server dies, and how long it is away."""

    seconds: float = 300.0
    kill_every_s: float = 20.0
    away_s: float = 8.0


FULL = ClusterSizes()
QUICK = ClusterSizes(6.0, 3.0, 1.0)

Span = tuple[float, float]
"""Two moments of the machine's steady clock."""


async def cluster(database_url: str, sizes: ClusterSizes) -> list[Figure]:
    """p50 and p99 of published -> committed outside elections, beside those within."""
    with nats_cluster() as servers:
        async with new_ledger(servers.url, name="bench") as ledger:
            published, commits, elections = await _measured(servers, ledger, database_url, sizes)
            await _check_whole(ledger, published)
    latencies = [(due, commits.time_of(sequence) - due) for sequence, due in published]
    within = [one for due, one in latencies if _is_within(due, elections)]
    outside = [one for due, one in latencies if not _is_within(due, elections)]
    name = f"published -> committed, {RATE_PER_S:,}/s, three servers, one killed every {sizes.kill_every_s:g} s"
    return [
        Figure(
            f"{name}, p{percent}", percentile_ms(outside, percent), "ms", f"during {len(elections)} elections",
            percentile_ms(within, percent), target, is_ratio=False,
        )
        for percent, target in ((50, None), (99, P99_MS))
    ]  # fmt: skip


async def _measured(
    servers: NatsCluster, ledger: Ledger, database_url: str, sizes: ClusterSizes
) -> tuple[list[tuple[int, float]], Commits, list[Span]]:
    commits, elections = Commits(), list[Span]()
    async with _running(Runner(DevicesProjection(), ledger, database_url, on_flush=commits.note)):
        killing = asyncio.create_task(_kill_in_turn(servers, ledger, commits, elections, sizes))
        try:
            published = await published_by_child(servers.url, int(RATE_PER_S * sizes.seconds))
            if killing.done():
                await killing  # it ends by an error alone
        finally:
            killing.cancel()
            await asyncio.gather(killing, return_exceptions=True)
        await commits.reach(max(sequence for sequence, _ in published))
    return published, commits, elections


@asynccontextmanager
async def _running(runner: Runner) -> AsyncIterator[None]:
    task = asyncio.create_task(runner.run())
    try:
        yield
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


async def _kill_in_turn(
    servers: NatsCluster, ledger: Ledger, commits: Commits, elections: list[Span], sizes: ClusterSizes
) -> None:
    """Kill one server after the other, and note how long each death was felt."""
    number = 0
    while True:
        await asyncio.sleep(sizes.kill_every_s - sizes.away_s)
        dying = servers.servers[number % len(servers.servers)]
        killed = perf_counter()
        elections.append((killed, float("inf")))
        await asyncio.to_thread(dying.kill)
        back = asyncio.create_task(_back(dying, sizes.away_s))
        await asyncio.to_thread(servers.wait_led, STREAM, dying)
        await commits.reach(await ledger.head())
        elections[-1] = (killed, perf_counter())
        await back
        number += 1


async def _back(server: ClusterServer, away_s: float) -> None:
    await asyncio.sleep(away_s)
    await asyncio.to_thread(server.start)


async def _check_whole(ledger: Ledger, published: Sequence[tuple[int, float]]) -> None:
    """Refuse to report a run that lost an event, or recorded one twice."""
    head, positions = await ledger.head(), {sequence for sequence, _ in published}
    if not head == len(positions) == len(published):
        raise RuntimeError(f"{len(published)} events were published to {len(positions)} positions; the log has {head}")


def _is_within(moment: float, spans: Sequence[Span]) -> bool:
    return any(first <= moment <= last for first, last in spans)
