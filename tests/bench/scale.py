"""The costs that docs/scale.md counts with: those of a small fleet's day, which foretell those of a larger one's."""

from itertools import islice
from time import perf_counter
from typing import NamedTuple

import psutil
import psycopg

from bench.all_projections import project, read_once
from bench.fleet_day import day
from bench.raw import client
from bench.report import Figure
from bench.scale_model import DAYS_PER_YEAR, SECONDS_PER_DAY, Costs, Load, capacity
from bench.servers import unsynced_nats
from gpuledger.db.migrate import migrate
from gpuledger.ledger.api import Ledger
from gpuledger.ledger.jetstream import connect_ledger
from gpuledger.ledger.stream import stream_name
from gpuledger.local.servers.nats import NatsServer
from gpuledger.projection.rebuild import rebuild
from gpuledger.tools.queries.backend import all_projections
from support.servers import fresh_database

PER_PUBLISH = 5_000
LOAD = Load("as measured", 20)


class ScaleSizes(NamedTuple):
    """How many cards the fleet has whose day gives the costs, and the one whose day they foretell."""

    cards: int = 500
    more_cards: int = 2_000


FULL = ScaleSizes()
QUICK = ScaleSizes(8, 16)


class Day(NamedTuple):
    """What a day took. `slowest_s` is the rebuild of the projection that took longest."""

    events: int
    subjects: int
    message_bytes: int
    log_bytes: int
    nats_bytes: int
    table_bytes: int
    read_s: float
    projected_s: float
    slowest_s: float

    def costs(self) -> Costs:
        """The same for each event."""
        return Costs(
            log_bytes=self.log_bytes / self.events,
            table_bytes=self.table_bytes / self.events,
            subjects_per_event=self.subjects / self.events,
            subject_bytes=self.nats_bytes / self.subjects,
            projected_per_s=self.events / self.projected_s,
            rebuilt_per_s=self.events / self.slowest_s,
        )


async def scale(database_url: str, sizes: ScaleSizes = FULL) -> list[Figure]:
    """What an event costs, and how a larger fleet's day compares with what these costs foretell."""
    small = await _day(database_url, sizes.cards)
    with fresh_database(database_url) as another_url:
        migrate(another_url)
        large = await _day(another_url, sizes.more_cards)
    costs = small.costs()
    foretold = capacity(sizes.more_cards, 1 / DAYS_PER_YEAR, LOAD, costs)
    name, model = f"a day of {sizes.more_cards:,} cards", f"the model, by the costs of {sizes.cards:,} cards"
    return [
        Figure(
            "an event in the log", costs.log_bytes, "bytes", "its message", small.message_bytes / small.events, None
        ),
        Figure("an event in PostgreSQL", costs.table_bytes, "bytes", "in the log", costs.log_bytes, None),
        Figure("new subjects of an event", costs.subjects_per_event, "", "one each", 1, None),
        Figure("a subject in NATS", costs.subject_bytes, "bytes", "an event in the log", costs.log_bytes, None),
        Figure("projected", costs.projected_per_s, "events/s", "read and parsed", small.events / small.read_s, None),
        Figure("slowest rebuild", costs.rebuilt_per_s, "events/s", "all at once", costs.projected_per_s, None),
        Figure(f"{name}, log", large.log_bytes / 1e6, "MB", model, foretold.log_bytes / 1e6, None),
        Figure(f"{name}, tables", large.table_bytes / 1e6, "MB", model, foretold.table_bytes / 1e6, None),
        Figure(f"{name}, NATS", large.nats_bytes / 1e6, "MB", model, foretold.nats_bytes / 1e6, None),
        Figure(f"{name}, projecting", large.projected_s, "s", model, foretold.busy * SECONDS_PER_DAY, None),
        Figure(f"{name}, slowest rebuild", large.slowest_s, "s", model, foretold.rebuild_s, None),
    ]


async def _day(database_url: str, cards: int) -> Day:
    with unsynced_nats() as server:
        before = _resident_bytes(server)
        async with connect_ledger(server.url, name="bench") as ledger:
            recorded = await _record(ledger, cards)
            nats_bytes = max(_resident_bytes(server) - before, 1)
            log_bytes = await _stream_bytes(server)
            read_s = recorded.events / await read_once(ledger, recorded.events)
            empty_bytes = _database_bytes(database_url)
            projected_s = await project(ledger, database_url, await ledger.head())
            table_bytes = _database_bytes(database_url) - empty_bytes
            slowest_s = await _slowest_rebuild_s(ledger, database_url)
    return Day(*recorded, log_bytes, nats_bytes, table_bytes, read_s, projected_s, slowest_s)


class _Recorded(NamedTuple):
    events: int
    subjects: int
    message_bytes: int


async def _record(ledger: Ledger, cards: int) -> _Recorded:
    subjects, events, size = set[str](), 0, 0
    left = day(cards, LOAD.pods_per_card_day)
    while chunk := list(islice(left, PER_PUBLISH)):
        await ledger.publish_many(chunk)
        subjects.update(one.subject for one in chunk)
        events += len(chunk)
        size += sum(len(one.data) for one in chunk)
    return _Recorded(events, len(subjects), size)


async def _slowest_rebuild_s(ledger: Ledger, database_url: str) -> float:
    took_s = []
    for projection in all_projections():
        began = perf_counter()
        await rebuild(projection, ledger, database_url)
        took_s.append(perf_counter() - began)
    return max(took_s)


async def _stream_bytes(server: NatsServer) -> int:
    async with client(server.url) as connection:
        info = await connection.jetstream().stream_info(stream_name(1))
    return int(info.state.bytes)


def _resident_bytes(server: NatsServer) -> int:
    assert server.pid is not None, "it runs"
    return int(psutil.Process(server.pid).memory_info().rss)


def _database_bytes(database_url: str) -> int:
    with psycopg.connect(database_url, autocommit=True) as connection:
        row = connection.execute("SELECT pg_database_size(current_database())").fetchone()
    assert row is not None, "it answers"
    return int(row[0])
