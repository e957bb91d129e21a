"""The costs that docs/scale.md counts with: those of a small fleet's day, which foretell those of a larger one's."""

from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import NamedTuple

from bench.all_projections import project, read_once
from bench.checked_pods import checked_pods
from bench.fleet_day import day
from bench.report import Figure
from bench.scale_model import DAYS_PER_YEAR, SECONDS_PER_DAY, Costs, Load, capacity
from bench.servers import unsynced_nats
from bench.sizes import database_bytes, stream_bytes
from gpuledger.db.migrate import migrate
from gpuledger.events.publishing import RULE_VERSIONS, Rule
from gpuledger.events.rule import RuleEnforced
from gpuledger.ledger.api import Ledger
from gpuledger.ledger.jetstream import connect_ledger
from gpuledger.projection.rebuild import rebuild
from gpuledger.projection.subject_form import SubjectForm
from gpuledger.tools.archive.store import open_archive
from gpuledger.tools.archive.write import write_generation
from gpuledger.tools.queries.backend import all_projections
from gpuledger.tools.reporting import SILENT
from support.events import event, outgoing
from support.servers import fresh_database

PER_PUBLISH = 5_000
LOAD = Load("as measured", 20)


class ScaleSizes(NamedTuple):
    """How many cards the fleet has whose day gives the costs, and the one whose day they foretell.

    `gangs` go through preflight checks, apart from these.
    """

    cards: int = 500
    more_cards: int = 2_000
    gangs: int = 400


FULL = ScaleSizes()
QUICK = ScaleSizes(8, 16, 2)


class Day(NamedTuple):
    """What a day took. `slowest_s` is the rebuild of the projection that took longest."""

    events: int
    message_bytes: int
    log_bytes: int
    archive_bytes: int
    table_bytes: int
    read_s: float
    projected_s: float
    slowest_s: float

    def costs(self) -> Costs:
        """The same for each event."""
        return Costs(
            log_bytes=self.log_bytes / self.events,
            archive_bytes=self.archive_bytes / self.events,
            table_bytes=self.table_bytes / self.events,
            projected_per_s=self.events / self.projected_s,
            rebuilt_per_s=self.events / self.slowest_s,
        )


async def scale(database_url: str, sizes: ScaleSizes = FULL) -> list[Figure]:
    """What an event costs, and how a larger fleet's day compares with what these costs foretell."""
    small = await _day(database_url, sizes.cards)
    with fresh_database(database_url) as another_url:
        migrate(another_url)
        large = await _day(another_url, sizes.more_cards)
    with fresh_database(database_url) as another_url:
        migrate(another_url)
        of_checks = await checked_pods(another_url, sizes.gangs)
    costs = small.costs()
    foretold = capacity(sizes.more_cards, 1 / DAYS_PER_YEAR, LOAD, costs)
    name, model = f"a day of {sizes.more_cards:,} cards", f"the model, by the costs of {sizes.cards:,} cards"
    return [
        Figure(
            "an event in the log", costs.log_bytes, "bytes", "its message", small.message_bytes / small.events, None
        ),
        Figure("an event in an archive", costs.archive_bytes, "bytes", "in the log", costs.log_bytes, None),
        Figure("an event in PostgreSQL", costs.table_bytes, "bytes", "in the log", costs.log_bytes, None),
        Figure("projected", costs.projected_per_s, "events/s", "read and parsed", small.events / small.read_s, None),
        Figure("slowest rebuild", costs.rebuilt_per_s, "events/s", "all at once", costs.projected_per_s, None),
        Figure(f"{name}, log", large.log_bytes / 1e6, "MB", model, foretold.log_bytes / 1e6, None),
        Figure(f"{name}, archive", large.archive_bytes / 1e6, "MB", model, foretold.archive_bytes / 1e6, None),
        Figure(f"{name}, tables", large.table_bytes / 1e6, "MB", model, foretold.table_bytes / 1e6, None),
        Figure(f"{name}, projecting", large.projected_s, "s", model, foretold.busy * SECONDS_PER_DAY, None),
        Figure(f"{name}, slowest rebuild", large.slowest_s, "s", model, foretold.rebuild_s, None),
        *of_checks,
    ]


async def _day(database_url: str, cards: int) -> Day:
    with unsynced_nats() as server:
        async with connect_ledger(server.url, name="bench") as ledger:
            recorded = await _record(ledger, cards)
            log_bytes = await stream_bytes(server)
            archive_bytes = await _archive_bytes(ledger)
            read_s = recorded.events / await read_once(ledger, recorded.events)
            empty_bytes = database_bytes(database_url)
            projected_s = await project(ledger, database_url, await ledger.head())
            table_bytes = database_bytes(database_url) - empty_bytes
            slowest_s = await _slowest_rebuild_s(ledger, database_url)
    return Day(*recorded, log_bytes, archive_bytes, table_bytes, read_s, projected_s, slowest_s)


class _Recorded(NamedTuple):
    events: int
    message_bytes: int


async def _record(ledger: Ledger, cards: int) -> _Recorded:
    rule = RuleEnforced(version=RULE_VERSIONS[Rule.SHARED_SUBJECTS])
    await ledger.publish(outgoing(event(rule, Rule.SHARED_SUBJECTS, source="/services/sources")))
    form, events, size = SubjectForm(ledger), 0, 0
    left = day(cards, LOAD.pods_per_card_day)
    while chunk := list(islice(left, PER_PUBLISH)):
        await ledger.publish_many(await form.of(chunk))
        events += len(chunk)
        size += sum(len(one.data) for one in chunk)
    return _Recorded(events, size)


async def _archive_bytes(ledger: Ledger) -> int:
    with TemporaryDirectory(prefix="gl-archive-") as folder:
        await write_generation(open_archive(folder), ledger, SILENT)
        return _size_of(Path(folder))


def _size_of(folder: Path) -> int:
    return sum(one.stat().st_size for one in folder.rglob("*") if one.is_file())


async def _slowest_rebuild_s(ledger: Ledger, database_url: str) -> float:
    took_s = []
    for projection in all_projections():
        began = perf_counter()
        await rebuild(projection, ledger, database_url)
        took_s.append(perf_counter() - began)
    return max(took_s)
