"""Publishing, folding and rebuilding, per second."""

import asyncio
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from time import perf_counter

from bench import fleet, raw
from bench.fleet import Happening
from bench.library import LibraryPeer
from bench.report import Figure
from bench.rounds import medians
from bench.servers import unsynced_nats
from gpuledger.ledger.api import Ledger, Outgoing
from gpuledger.projection.rebuild import rebuild
from gpuledger.projection.replay import fold_until
from gpuledger.readmodels.projections import DevicesProjection
from gpuledger.tools.importers.run import EVENTS_PER_PUBLISH
from support import servers
from support.ledgers import new_ledger

PUBLISHING, FOLDING, REBUILDING = 0.6, 0.4, 0.25
LIBRARY = 10.0


async def publishing(synced: int, unsynced: int, rounds: int) -> list[Figure]:
    """Publishing beside nats-py's own asynchronous publishing of the same bytes."""
    with servers.nats_server() as server:
        first = await _publishing("publishing", server.url, synced, rounds, PUBLISHING)
    with unsynced_nats() as server:
        second = await _publishing("publishing, without sync", server.url, unsynced, rounds, PUBLISHING)
    return [first, second]


async def projecting(database_url: str, events: int, library_events: int, rounds: int) -> list[Figure]:
    """The in-memory fold and the rebuild beside raw reading, and the rebuild beside the library."""
    with unsynced_nats() as server:
        async with new_ledger(server.url, name="bench") as ledger:
            await fill(ledger, fleet.history(events))
            with LibraryPeer(database_url, list(fleet.history(library_events))) as library:
                found = await medians(
                    {
                        "raw": lambda _: raw.read(server.url, events),
                        "fold": lambda _: _fold(ledger),
                        "rebuild": lambda _: _rebuild(ledger, database_url),
                        "library": lambda _: asyncio.to_thread(library.project),
                    },
                    rounds,
                )
    reading = "nats-py ordered push reading"
    return [
        Figure("fold in memory", found["fold"], "events/s", reading, found["raw"], FOLDING),
        Figure("rebuild into PostgreSQL", found["rebuild"], "events/s", reading, found["raw"], REBUILDING),
        Figure("rebuild into PostgreSQL", found["rebuild"], "events/s", "eventsourcing", found["library"], LIBRARY),
    ]


async def fill(ledger: Ledger, history: Iterable[Happening], epoch: str = "filled") -> float:
    """Publish as an importer does; events per second."""
    began, first = perf_counter(), 1
    for chunk in _chunks(history):
        await ledger.publish_many(list(fleet.published(chunk, fleet.epoch(epoch), first)))
        first += len(chunk)
    return (first - 1) / (perf_counter() - began)


async def _publishing(name: str, url: str, events: int, rounds: int, target: float) -> Figure:
    history = list(fleet.history(events))
    async with new_ledger(url, name="bench") as ledger:
        found = await medians(
            {
                "ours": lambda number: fill(ledger, history, f"ours {number}"),
                "raw": lambda number: raw.publish(url, _encoded(history, f"raw {number}")),
            },
            rounds,
        )
    return Figure(name, found["ours"], "events/s", "nats-py publish_async", found["raw"], target)


def _encoded(history: Sequence[Happening], epoch: str) -> list[Outgoing]:
    return list(fleet.published(history, fleet.epoch(epoch)))


async def _fold(ledger: Ledger) -> float:
    began = perf_counter()
    fold = await fold_until(DevicesProjection(), ledger)
    return fold.events / (perf_counter() - began)


async def _rebuild(ledger: Ledger, database_url: str) -> float:
    began = perf_counter()
    result = await rebuild(DevicesProjection(), ledger, database_url)
    return result.events / (perf_counter() - began)


def _chunks(history: Iterable[Happening]) -> Iterator[list[Happening]]:
    happenings = iter(history)
    while chunk := list(islice(happenings, EVENTS_PER_PUBLISH)):
        yield chunk
