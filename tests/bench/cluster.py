"""From publishing to the commit that shows it on a cluster of three NATS servers, one of which dies every 20 s.

The schedule is that of `bench.latency`. An election lasts from a server's death to the moment when the cluster has its
leaders again, that of the stream and that of the metadata group, which makes consumers; its effect, until everything
is committed that was due by then. The first figures are those of events that are due outside of that; the next ones
also count those that wait behind what an election held back. The peer is a bare subscriber of nats-py in a process of
its own, which has nothing to make anew, and misses what comes while it is not connected. A loss of ours ends the run.
"""

import asyncio
import json
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from time import perf_counter
from typing import NamedTuple

from bench.latency import RATE_PER_S, Commits, Published, published_by_child
from bench.processes import percentile_ms
from bench.report import Figure
from gpuledger.ledger.api import Ledger
from gpuledger.projection.runner import Runner
from gpuledger.readmodels.projections import DevicesProjection
from gpuledger.runtime.tasks import end
from support.ledgers import new_ledger
from support.nats_cluster import ClusterServer, NatsCluster, nats_cluster

STREAM = "LEDGER_1"
P99_MS = 250.0
LISTENING = Path(__file__).with_name("listening.py")


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
    """p50 and p99 of published -> committed outside elections, beside those that an election holds back."""
    with nats_cluster() as servers:
        async with new_ledger(servers.url, name="bench") as ledger, _listening(servers.url) as came:
            published, commits, elections = await _measured(servers, ledger, database_url, sizes)
            await _check_whole(ledger, published)
    effects = [_effect(election, published, commits) for election in elections]
    name = f"published -> committed, {RATE_PER_S:,}/s, three servers, one killed every {sizes.kill_every_s:g} s"

    def figure(where: str, events: Sequence[Published], percent: int, target: float | None = None) -> Figure:
        ours = percentile_ms([commits.time_of(one.sequence) - one.seconds for one in events], percent)
        bare = percentile_ms([came[one.id] - one.seconds for one in events if one.id in came], percent)
        return Figure(f"{name}{where}, p{percent}", ours, "ms", "a bare subscriber", bare, target, is_ratio=False)

    undisturbed, led, disturbed = _outside(effects, published), _outside(elections, published), _in(effects, published)
    after, within = ", and behind what elections held back", f", in the effects of {len(elections)} deaths"
    return [
        figure("", undisturbed, 50),
        figure("", undisturbed, 99, P99_MS),
        *(figure(after, led, percent) for percent in (50, 99)),
        *(figure(within, disturbed, percent) for percent in (50, 99)),
    ]


def _effect(election: Span, published: Sequence[Published], commits: Commits) -> Span:
    """From a server's death until what was due while there were no leaders is committed."""
    killed, led = election
    return killed, max([led, *(commits.time_of(one.sequence) for one in _in([election], published))])


@asynccontextmanager
async def _listening(url: str) -> AsyncIterator[dict[str, float]]:
    """When each event first came to a bare subscriber; filled at the end of the block."""
    came: dict[str, float] = {}
    child = await asyncio.create_subprocess_exec(
        *(sys.executable, str(LISTENING), url), stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE
    )
    assert child.stdout is not None
    try:
        await child.stdout.readline()
        yield came
        output, _ = await child.communicate(b"")  # only what is given closes its stdin
        came.update(json.loads(output))
    finally:
        with suppress(ProcessLookupError):
            child.kill()


async def _measured(
    servers: NatsCluster, ledger: Ledger, database_url: str, sizes: ClusterSizes
) -> tuple[list[Published], Commits, list[Span]]:
    commits, elections = Commits(), list[Span]()
    async with _running(Runner(DevicesProjection(), ledger, database_url, on_flush=commits.note)):
        killing = asyncio.create_task(_kill_in_turn(servers, elections, sizes))
        try:
            published = await published_by_child(servers.url, int(RATE_PER_S * sizes.seconds))
            if killing.done():
                await killing  # it ends by an error alone
        finally:
            await end([killing])
        await commits.reach(max(one.sequence for one in published))
    return published, commits, elections


@asynccontextmanager
async def _running(runner: Runner) -> AsyncIterator[None]:
    task = asyncio.create_task(runner.run())
    try:
        yield
    finally:
        await end([task])


async def _kill_in_turn(servers: NatsCluster, elections: list[Span], sizes: ClusterSizes) -> None:
    """Kill one server after the other, and note how long there were no leaders."""
    number = 0
    while True:
        await asyncio.sleep(sizes.kill_every_s - sizes.away_s)
        dying = servers.servers[number % len(servers.servers)]
        killed = perf_counter()
        elections.append((killed, float("inf")))
        await asyncio.to_thread(dying.kill)
        back = asyncio.create_task(_back(dying, sizes.away_s))
        await asyncio.to_thread(servers.wait_led, STREAM, dying)
        elections[-1] = (killed, perf_counter())
        await back
        number += 1


async def _back(server: ClusterServer, away_s: float) -> None:
    await asyncio.sleep(away_s)
    await asyncio.to_thread(server.start)


async def _check_whole(ledger: Ledger, published: Sequence[Published]) -> None:
    """Refuse to report a run that lost an event, or recorded one twice."""
    head, positions = await ledger.head(), {one.sequence for one in published}
    if not head == len(positions) == len(published):
        raise RuntimeError(f"{len(published)} events were published to {len(positions)} positions; the log has {head}")


def _in(spans: Sequence[Span], published: Sequence[Published]) -> list[Published]:
    return [one for one in published if _is_in(one.seconds, spans)]


def _outside(spans: Sequence[Span], published: Sequence[Published]) -> list[Published]:
    return [one for one in published if not _is_in(one.seconds, spans)]


def _is_in(moment: float, spans: Sequence[Span]) -> bool:
    return any(first <= moment <= last for first, last in spans)
