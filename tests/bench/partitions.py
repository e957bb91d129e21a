"""A ledger of four partitions beside one of one: many agents record, a service publishes, a reader reads."""

import asyncio
from collections import defaultdict
from collections.abc import Iterator
from contextlib import AsyncExitStack, contextmanager
from dataclasses import dataclass
from statistics import median
from time import perf_counter

from bench.agents_traffic import recorded
from bench.report import Figure
from bench.rounds import medians
from gpuledger.events.position import events_up_to
from gpuledger.ledger.api import Ledger, Outgoing
from gpuledger.ledger.edge import connect_edge
from support import servers
from support.ledgers import new_ledger

PARTITIONS = 4
EVENTS_PER_CALL = 50
"""As many as an agent's outbox publishes together after it was away."""

PAUSE_S = 0.002


@dataclass(frozen=True)
class PartitionsSizes:
    """How many agents record how many events each, and how often a service publishes one."""

    agents: int = 40
    events_each: int = 500
    singles: int = 300


FULL = PartitionsSizes()
QUICK = PartitionsSizes(agents=4, events_each=100, singles=10)


class Measured:
    """A ledger of so many partitions on a server of its own."""

    def __init__(self, url: str, ledger: Ledger, sizes: PartitionsSizes) -> None:
        self._url = url
        self._ledger = ledger
        self._sizes = sizes

    async def recording(self, number: int) -> float:
        """Events per second of many agents, up to the moment when the last one is in the log."""
        by_node: dict[str, list[Outgoing]] = defaultdict(list)
        for one in recorded(self._sizes.agents, self._sizes.agents * self._sizes.events_each):
            by_node[one.subject.split(".")[2]].append(one._replace(id=f"{number} {one.id}"))
        async with AsyncExitStack() as stack:
            edges = [
                await stack.enter_async_context(connect_edge(self._url, name="bench", node=node)) for node in by_node
            ]
            before, began = events_up_to(await self._ledger.head()), perf_counter()
            async with asyncio.TaskGroup() as group:
                for edge, events in zip(edges, by_node.values(), strict=True):
                    for start in range(0, len(events), EVENTS_PER_CALL):
                        group.create_task(edge.publish_many(events[start : start + EVENTS_PER_CALL]))
            count = self._sizes.agents * self._sizes.events_each
            while events_up_to(await self._ledger.head()) < before + count:  # noqa: ASYNC110 - nothing reports when
                await asyncio.sleep(PAUSE_S)
            return count / (perf_counter() - began)

    async def publishing_ms(self, number: int) -> float:
        """The median time of one publish of a service, behind which the event is in the log."""
        found = []
        for index in range(self._sizes.singles):
            message = Outgoing("ledger.svc.pools.pool.p.changed", f"{number} {index}", b"{}")
            began = perf_counter()
            await self._ledger.publish(message)
            found.append(1000 * (perf_counter() - began))
        return median(found)

    async def reading(self, _: int) -> float:
        """Events per second of a reader of the whole log."""
        count = left = events_up_to(await self._ledger.head())
        began = perf_counter()
        async with self._ledger.read() as reader:
            while left:
                left -= len(await reader.next_batch())
        return count / (perf_counter() - began)


async def partitions(sizes: PartitionsSizes, rounds: int) -> list[Figure]:
    """Four beside one, in turns, each on a server that syncs every acknowledgement."""
    async with AsyncExitStack() as stack:
        measured = {}
        for count in (PARTITIONS, 1):
            url = stack.enter_context(_server())
            ledger = await stack.enter_async_context(new_ledger(url, count, name="bench", puts_in_order=True))
            measured[count] = Measured(url, ledger, sizes)
        several, one = measured[PARTITIONS], measured[1]
        recording = await medians({"several": several.recording, "one": one.recording}, rounds)
        publishing = await medians({"several": several.publishing_ms, "one": one.publishing_ms}, rounds)
        reading = await medians({"several": several.reading, "one": one.reading}, rounds)
    peer, named = "one partition", f"{PARTITIONS} partitions, "
    agents = f"{named}{sizes.agents} agents record, up to the log"
    return [
        Figure(agents, recording["several"], "events/s", peer, recording["one"], None),
        Figure(f"{named}one publish of a service", publishing["several"], "ms", peer, publishing["one"], None),
        Figure(f"{named}reading the log", reading["several"], "events/s", peer, reading["one"], None),
    ]


@contextmanager
def _server() -> Iterator[str]:
    with servers.nats_server() as server:
        yield server.url
