"""The long log that `bench.past` asks: servers, rows and snapshots, made once, and kept where a folder is given."""

from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, asynccontextmanager, contextmanager
from pathlib import Path
from random import Random
from typing import Final, NamedTuple

from bench import fleet
from bench.commands import took_s
from bench.copying import copying
from bench.report import Figure
from bench.servers import UnsyncedNats
from bench.throughput import fill
from gpuledger.db.migrate import migrate
from gpuledger.events.envelope import decode
from gpuledger.events.position import events_up_to, number_of
from gpuledger.ledger.jetstream import JetStreamLedger
from gpuledger.local.servers.nats import NatsServer
from gpuledger.local.servers.postgres import PostgresServer
from gpuledger.projection.fold_snapshots.writer import FoldSnapshotSettings
from gpuledger.projection.rebuild import rebuild
from gpuledger.readmodels.projections import DevicesProjection, EventIndexProjection
from gpuledger.tools import snapshots
from gpuledger.tools.queries.backend import Backend
from support.ledgers import make_ledger_blocking, new_ledger
from support.servers import short_directory

BEHIND_MAX: Final = FoldSnapshotSettings().events_min
"""A moment as recorded is at most so many events behind a snapshot, as where every snapshot that is due was taken."""

SNAPSHOTS: Final = 20
"""So many are taken of the whole log: each takes room, and of all only the nearest one is used."""

REBUILD_S_MAX: Final = 60.0

PROJECTION: Final = DevicesProjection.name


class PastSizes(NamedTuple):
    """How many events the log has, of how many devices, how often each command runs, and where the data is kept."""

    events: int = 1_000_000
    devices: int = 100_000
    rounds: int = 25
    folder: Path | None = None

    @property
    def label(self) -> str:
        """For the names of figures."""
        return f"{self.devices:,} devices, {self.events:,} events"


class Past(NamedTuple):
    """The log with its rows and snapshots, and the server that has it."""

    backend: Backend
    nats: NatsServer
    sizes: PastSizes

    async def times(self) -> list[str]:
        """When events happened that are picked at random, as `--at` takes it."""
        ledger, found = self.backend.ledger, []
        for number in self._random().sample(range(1, self.sizes.events), self.sizes.rounds):
            async for messages in ledger.history(after=number - 1, until=number):
                found += [decode(message.data).time.isoformat() for message in messages]
        return found

    async def positions(self) -> list[str]:
        """Positions at random behind snapshots at random, as `--as-recorded` takes them."""
        chosen, taken = self._random(), await snapshots.stored(self.backend, [PROJECTION])
        places = [number_of(one.at.sequence) for one in taken]
        picked = [chosen.choice(places) + chosen.randrange(BEHIND_MAX) for _ in range(self.sizes.rounds)]
        return [str(min(one, self.sizes.events)) for one in picked]

    def devices(self) -> list[str]:
        """Serial numbers at random."""
        numbers = self._random().sample(range(self.sizes.devices), self.sizes.rounds)
        return [fleet.serial(one) for one in numbers]

    def _random(self) -> Random:
        return Random(fleet.SEED)


@asynccontextmanager
async def open_past(sizes: PastSizes) -> AsyncIterator[tuple[Past, list[Figure]]]:
    """The log and its snapshots, made as far as they are not there, and rows; with what these took."""
    with _servers(sizes) as (nats, postgres, folder):
        async with new_ledger(nats.url, name="bench") as ledger:
            await _fill(ledger, sizes)
            migrate(postgres.url)
            objects = (folder / "objects").as_uri()
            backend = Backend(ledger, postgres.url, nats.url, None, objects_url=objects)
            figures = [*await _take(backend, sizes), await _rebuild(backend, sizes), await _index(backend, sizes)]
            figures.append(await copying(backend, DevicesProjection(), sizes.label))
            yield Past(backend, nats, sizes), figures


@contextmanager
def _servers(sizes: PastSizes) -> Iterator[tuple[NatsServer, PostgresServer, Path]]:
    with ExitStack() as stack:
        folder = sizes.folder or stack.enter_context(short_directory())
        nats = stack.enter_context(UnsyncedNats(folder / "nats"))
        make_ledger_blocking(nats.url)
        yield nats, stack.enter_context(PostgresServer(folder / "postgres")), folder


async def _fill(ledger: JetStreamLedger, sizes: PastSizes) -> None:
    if not events_up_to(await ledger.head()):
        await fill(ledger, fleet.history_of(sizes.devices, sizes.events, pace=fleet.LONG), "years")
    found = events_up_to(await ledger.head())
    assert found == sizes.events, f"the folder is of {found:,} events"


async def _take(backend: Backend, sizes: PastSizes) -> list[Figure]:
    if await snapshots.stored(backend, [PROJECTION]):
        return []
    settings = FoldSnapshotSettings(events_min=sizes.events // SNAPSHOTS)
    took = await took_s(snapshots.take(backend, [PROJECTION], also_last=True, settings=settings))
    name = f"{SNAPSHOTS} snapshots, {sizes.label}"
    return [Figure(name, sizes.events / took.wall_s, "events/s", "by processor time", sizes.events / took.busy_s, None)]


async def _rebuild(backend: Backend, sizes: PastSizes) -> Figure:
    """From the snapshot at the end of the log; where it is due at times, up to `BEHIND_MAX` events come on top."""
    took = await took_s(rebuild(DevicesProjection(), backend.ledger, backend.database_url, snapshots=backend.snapshots))
    name = f"rebuild of devices from a snapshot, {sizes.label}"
    return Figure(name, took.wall_s, "s", "processor time", took.busy_s, REBUILD_S_MAX, is_ratio=False)


async def _index(backend: Backend, sizes: PastSizes) -> Figure:
    """Where the events about each device are, from the first event, as `timeline` asks for them."""
    took = await took_s(rebuild(EventIndexProjection(), backend.ledger, backend.database_url))
    name = f"rebuild of the index from nothing, {sizes.label}"
    return Figure(name, sizes.events / took.wall_s, "events/s", "by processor time", sizes.events / took.busy_s, None)
