"""The traffic of ten thousand agents into one ledger, with the services that read it beside it on the same machine.

The agents are a process of their own, see `agents_traffic`. What is late counts from when it was due: until the ledger
has acknowledged it, and until the slowest of the services has committed what follows from it.
"""

import asyncio
import json
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from statistics import quantiles
from typing import NamedTuple

from bench.latency import Commits
from bench.report import Figure
from gpuledger.deciders.bootstrap.projection import BootstrapProjection
from gpuledger.deciders.inventory.projection import InventoryProjection
from gpuledger.deciders.pools.projection import PoolsProjection
from gpuledger.deciders.sources.projection import SourcesProjection
from gpuledger.projection.definition import Projection
from gpuledger.projection.runner import Runner
from gpuledger.readmodels.projections import DevicesProjection
from support import servers
from support.ledgers import new_ledger

LAG_MS = 1_000.0
CHILD = Path(__file__).with_name("agents_traffic.py")
SERVICES: tuple[type[Projection], ...] = (
    SourcesProjection,
    DevicesProjection,
    InventoryProjection,
    BootstrapProjection,
    PoolsProjection,
)


class AgentsSizes(NamedTuple):
    """How many agents, over how many connections, and how many events they tell together."""

    agents: int = 10_000
    connections: int = 100
    events: int = 30_000


FULL = AgentsSizes()
QUICK = AgentsSizes(1_000, 5, 200)


async def agents(database_url: str, sizes: AgentsSizes = FULL) -> list[Figure]:
    """The 99th percentile and the most of the lag, beside that of the acknowledgements alone."""
    with servers.nats_server() as server:
        async with new_ledger(server.url, name="bench") as ledger:
            commits = [Commits() for _ in SERVICES]
            running = [
                asyncio.create_task(Runner(service(), ledger, database_url, on_flush=commit.note).run())
                for service, commit in zip(SERVICES, commits, strict=True)
            ]
            try:
                published = await _published(server.url, sizes)
                last = max(sequence for sequence, _, _ in published)
                await asyncio.gather(*(commit.reach(last) for commit in commits))
            finally:
                for task in running:
                    task.cancel()
                for task in running:
                    with suppress(asyncio.CancelledError):
                        await task
    committed = [max(one.time_of(sequence) for one in commits) - due for sequence, due, _ in published]
    return _figures(sizes, committed, [at - due for _, due, at in published])


def _figures(sizes: AgentsSizes, committed: Sequence[float], acknowledged: Sequence[float]) -> list[Figure]:
    name = f"{sizes.agents:,} agents at 0.1 events/s, due -> committed by {len(SERVICES)} services"
    peer = "due -> acknowledged by the ledger"
    p99, bare_p99 = (quantiles(times, n=100)[98] * 1000 for times in (committed, acknowledged))
    return [
        Figure(f"{name}, p99", p99, "ms", peer, bare_p99, None),
        Figure(f"{name}, most", max(committed) * 1000, "ms", peer, max(acknowledged) * 1000, LAG_MS, is_ratio=False),
    ]


async def _published(nats_url: str, sizes: AgentsSizes) -> list[tuple[int, float, float]]:
    arguments = (nats_url, str(sizes.agents), str(sizes.events), str(sizes.connections))
    child = await asyncio.create_subprocess_exec(sys.executable, str(CHILD), *arguments, stdout=asyncio.subprocess.PIPE)
    recorded, _ = await child.communicate()
    if child.returncode:
        raise RuntimeError(f"{CHILD.name} ended with {child.returncode}")
    return [(sequence, due, at) for sequence, due, at in json.loads(recorded)]
