"""From the request to the cordoned Node, through the decider and the node writer; the figures are printed."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from statistics import quantiles

from gpuledger.api.kinds import NODES
from gpuledger.deciders.maintenance.projection import MaintenanceProjection
from gpuledger.edge.kube.client import KubeClient
from gpuledger.events.envelope import Decoded, Event
from gpuledger.events.payload import Payload
from gpuledger.ledger.jetstream import JetStreamLedger
from gpuledger.projection.runner import Runner, RunnerSettings
from gpuledger.runtime.clock import system_clock
from support.maintenance import observed, requested, source_of
from support.nodewriting import QUICK, Maintainer, node_writer, settled
from support.projections import publish, reaches, running, stop
from support.waiting import eventually

BURST = 200


@asynccontextmanager
async def cordons(client: KubeClient) -> AsyncIterator[dict[str, float]]:
    """When each Node is first seen to be cordoned, in seconds of a steady clock."""
    seen: dict[str, float] = {}
    start = (await client.list(NODES)).resource_version

    async def watch() -> None:
        async for batch in client.watch(NODES, start):
            for one in batch:
                if one["object"].get("spec", {}).get("unschedulable"):
                    seen.setdefault(one["object"]["metadata"]["name"], time.monotonic())

    task = asyncio.create_task(watch())
    try:
        yield seen
    finally:
        await stop(task)


class Facts:
    """Facts that were just recorded, numbered."""

    def __init__(self) -> None:
        self._number = 0

    def now(self, node: str, data: Payload) -> Decoded:
        self._number += 1
        source = source_of(data)
        event_id = f"{source}/{self._number}"
        return Event(event_id, source, data.TYPE, node, system_clock(), data, "e1", self._number)


async def test_a_burst_of_requests_cordons_each_node_once(
    ledger: JetStreamLedger, client: KubeClient, migrated_url: str
) -> None:
    maintainer, facts = Maintainer(ledger, client), Facts()
    await maintainer.claim()
    names = [f"n{number:03}" for number in range(BURST)]
    uids = {name: (await maintainer.node(name))["metadata"]["uid"] for name in names}
    head = await publish(ledger, [facts.now(name, observed(uid)) for name, uid in uids.items()])
    settings = replace(RunnerSettings(), tick_s=0.05)
    async with (
        running(Runner(MaintenanceProjection(), ledger, migrated_url, settings=settings)),
        node_writer(ledger, migrated_url, client, QUICK) as writer,
        cordons(client) as seen,
    ):
        await reaches(migrated_url, "maintenance", head)
        await settled(writer, ledger)
        alone = await _cordoned(ledger, [facts.now(names[0], requested())], seen)
        took = await _cordoned(ledger, [facts.now(name, requested()) for name in names[1:]], seen)
    p50, p99 = quantiles(took, n=100)[49], quantiles(took, n=100)[98]
    print(f"one request: cordoned after {alone[0] * 1000:.0f} ms")
    print(f"{len(took)} requests at once: cordoned after p50 {p50 * 1000:.0f} ms, p99 {p99 * 1000:.0f} ms")


async def _cordoned(ledger: JetStreamLedger, requests: list[Decoded], seen: dict[str, float]) -> list[float]:
    """Record requests; returns after how many seconds each of their Nodes was cordoned."""
    begun = time.monotonic()
    await publish(ledger, requests)
    nodes = {one.subject for one in requests}

    async def are_cordoned() -> bool:
        return nodes <= seen.keys()

    await eventually(are_cordoned)
    return sorted(seen[node] - begun for node in nodes)
