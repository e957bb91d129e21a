"""All projections and deciders of one process behind a log of many agents' events, until every one has committed it.

The log is there before they start, so that nothing but reading, folding and writing is measured. The ceiling is the
same log read and parsed once by one process.
"""

import asyncio
from collections import defaultdict
from contextlib import suppress
from time import perf_counter, process_time
from typing import NamedTuple

from bench.agents_traffic import recorded
from bench.report import Figure
from bench.servers import unsynced_nats
from gpuledger.db.migrate import migrate
from gpuledger.events.envelope import parse
from gpuledger.events.position import Offset, is_at_or_after
from gpuledger.ledger.api import Ledger, Outgoing
from gpuledger.ledger.jetstream import JetStreamLedger, connect_ledger
from gpuledger.ledger.partitions import partition_of
from gpuledger.projection.supervision import Supervision
from gpuledger.tools.queries.backend import all_projections
from support.servers import fresh_database

RATIO_MIN = 0.15
LARGE_FLEET_MIN = 0.5
POLL_S = 0.05
PUBLISHED_AT_ONCE = 5_000


class AllProjectionsSizes(NamedTuple):
    """How many agents told how many events, and how many agents of a large fleet tell as many; each has eight cards."""

    agents: int = 12_500
    events: int = 100_000
    many_agents: int = 100_000


class Pace(NamedTuple):
    """Events a second, events in a second of the process's own processor time, and the ceiling of the same run."""

    by_clock: float
    by_processor: float
    parsed: float


FULL = AllProjectionsSizes()
QUICK = AllProjectionsSizes(200, 2_000, 1_000)


async def all_at_once(database_url: str, sizes: AllProjectionsSizes = FULL) -> list[Figure]:
    """Events a second until the slowest projection has committed the last one; then the same of a large fleet."""
    few = await _pace(database_url, sizes)
    with fresh_database(database_url) as another_url:
        migrate(another_url)
        many = await _pace(another_url, sizes._replace(agents=sizes.many_agents))
    name, ceiling = f"{len(all_projections())} projections in one process", "the log read and parsed once"
    few_name, many_name = f"{name}, {sizes.agents:,} sources", f"{name}, {sizes.many_agents:,} sources"
    processor = "in a second of its processor time"
    return [
        Figure(few_name, few.by_clock, "events/s", ceiling, few.parsed, RATIO_MIN),
        Figure(f"{few_name}, {processor}", few.by_processor, "events/s", ceiling, few.parsed, None),
        Figure(many_name, many.by_clock, "events/s", f"{sizes.agents:,} sources", few.by_clock, LARGE_FLEET_MIN),
        Figure(
            f"{many_name}, {processor}",
            many.by_processor,
            "events/s",
            f"{sizes.agents:,} sources",
            few.by_processor,
            LARGE_FLEET_MIN,
        ),
    ]


async def _pace(database_url: str, sizes: AllProjectionsSizes) -> Pace:
    with unsynced_nats() as server:
        async with connect_ledger(server.url, name="bench", puts_in_order=True) as ledger:
            last = await publish(ledger, sizes.agents, sizes.events)
            parsed_per_s = await read_once(ledger, sizes.events)
            began_s = process_time()
            took_s = await project(ledger, database_url, last)
            return Pace(sizes.events / took_s, sizes.events / (process_time() - began_s), parsed_per_s)


async def publish(ledger: JetStreamLedger, agents: int, events: int) -> Offset:
    """Record the events of agents, all partitions side by side, each in the order of its agents'; returns the head."""
    messages = list(recorded(agents, events))
    for start in range(0, len(messages), PUBLISHED_AT_ONCE):
        by_partition: dict[int, list[Outgoing]] = defaultdict(list)
        for message in messages[start : start + PUBLISHED_AT_ONCE]:
            by_partition[partition_of(message.subject, ledger.partitions)].append(message)
        await asyncio.gather(*(ledger.publish_many(some) for some in by_partition.values()))
    return await ledger.head()


async def read_once(ledger: Ledger, events: int) -> float:
    """Events a second that one process reads and parses."""
    began = perf_counter()
    async for messages in ledger.history():
        for message in messages:
            parse(message.data)
    return events / (perf_counter() - began)


async def project(ledger: Ledger, database_url: str, last: Offset) -> float:
    """Seconds until all projections of one process have committed the last event."""
    supervision = Supervision(all_projections(), ledger, database_url)
    began = perf_counter()
    running = [asyncio.ensure_future(one) for one in supervision.work()]
    try:
        while not _are_at(supervision, last):  # noqa: ASYNC110 - nobody notifies
            await asyncio.sleep(POLL_S)
        return perf_counter() - began
    finally:
        for task in running:
            task.cancel()
        for task in running:
            with suppress(asyncio.CancelledError):
                await task


def _are_at(supervision: Supervision, last: Offset) -> bool:
    positions = [one.position for one in supervision.health().values()]
    return all(position is not None and is_at_or_after(position, last) for position in positions)
