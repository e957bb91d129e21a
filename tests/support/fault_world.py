"""What a story of faults happens to: two servers behind networks, competing processes, an agent and a publisher.

Every wait is for something to come about; nothing here waits for a time to pass.
"""

import asyncio
import shutil
import subprocess
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import psycopg

from gpuledger.events.position import ORIGIN, Offset, lag
from gpuledger.ledger.api import Outgoing
from gpuledger.ledger.errors import LedgerUnavailableError, LogRestoredError, PublishError
from gpuledger.ledger.jetstream import JetStreamLedger
from gpuledger.local.servers.nats import NatsServer
from gpuledger.local.servers.postgres import PostgresServer
from gpuledger.local.servers.server import EmbeddedServer
from gpuledger.projection.continuity import confirm_checkpoint
from gpuledger.projection.definition import Projection
from gpuledger.projection.errors import AnotherLeaderError, DecisionLostError, RebuildBusyError
from gpuledger.projection.rebuild import rebuild
from support.fault_agent import Agent
from support.fault_disks import full, may_mount, shrink, small_disk, widen
from support.fault_runners import Runners, Stop, projections
from support.ledgers import jetstream_ledger
from support.postgres_proxies import LossyProxy
from support.projections import checkpoint, execute
from support.waiting import eventually

CHUNK = 5
PUBLISH_TIMEOUT_S = 2.0
ROOM_BYTES = 4_096
"""How much a full disk still takes."""

PLENTY_BYTES = 1 << 40

FACTS_ON_FULL_DISK = 20

Deed = Callable[[], Awaitable[None]]

ON_THEIR_WAY = "FROM gpuledger.outbox WHERE strpos(projection, '@') = 0"
"""Decisions that have not come back; the outboxes of other editions wait for nothing."""

LIVE = "FROM gpuledger.projection WHERE edition = 'live' AND name = ANY(%s)"

GO_ON = "go on"


class TightNats(NatsServer):
    """A NATS server whose disk has an end, for a while."""

    disk_bytes: int | None = None

    def _configuration(self, port: int) -> dict[str, object]:
        basics = super()._configuration(port)
        if self.disk_bytes is None:
            return basics
        store = basics["jetstream"]
        assert isinstance(store, dict)
        return basics | {"jetstream": store | {"max_file_store": self.disk_bytes}}


class Publisher:
    """Publishes the events as far as allowed, going on with the same ones whatever happens, until it is stopped."""

    def __init__(self, ledger: JetStreamLedger, events: Iterator[Outgoing]) -> None:
        self.drawn: list[Outgoing] = []
        self.acknowledged = 0
        self.allowed = 0
        self.failures = 0
        self.enough = asyncio.Event()
        self._ledger = ledger
        self._events = events

    async def run(self) -> None:
        while not self.enough.is_set():
            if self.acknowledged >= self.allowed:
                await asyncio.sleep(0.001)
                continue
            chunk = list(islice(self._events, CHUNK))
            self.drawn += chunk
            while not await self._publish(chunk):
                pass
            self.acknowledged = len(self.drawn)

    async def _publish(self, chunk: Sequence[Outgoing]) -> bool:
        try:
            await self._ledger.publish_many(chunk)
        except (PublishError, LedgerUnavailableError):
            self.failures += 1
            return False
        return True

    async def advance(self, events: int) -> None:
        """Return when so many more events are recorded; it goes on with a few more."""
        target = self.acknowledged + events
        self.allowed = target + CHUNK

        async def reached() -> bool:
            return self.acknowledged >= target

        await eventually(reached, interval_s=0.002)


class Copy(NamedTuple):
    """A server's files, how far the log has come at most, and how many events were acknowledged by then at least."""

    folder: Path
    head: Offset
    acknowledged: int


class Rows:
    """The database, asked over one connection for as long as that lasts."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._connection: psycopg.Connection[Any] | None = None

    def ask(self, query: str, *arguments: object) -> list[tuple[Any, ...]]:
        """What a query finds."""
        if self._connection is None or self._connection.closed:
            self._connection = psycopg.connect(self._url, autocommit=True)
        return self._connection.execute(query.encode(), arguments).fetchall()

    def close(self) -> None:
        """End the connection."""
        if self._connection is not None:
            self._connection.close()


class World:
    """The servers, the networks before them, the processes and the publisher. The publisher is beside its server."""

    def __init__(
        self, nats: TightNats, postgres: PostgresServer, url: str, networks: Sequence[LossyProxy], publisher: Publisher,
        ledger: JetStreamLedger, folder: Path,
    ) -> None:  # fmt: skip
        self.nats, self.postgres, self.url, self.ledger = nats, postgres, url, ledger
        self.nats_network, self.postgres_network = networks
        self.publisher = publisher
        self.runners = [
            Runners(self.nats_network.url, self.postgres_network.url, folder / f"runners-{number}.log")
            for number in range(2)
        ]
        self.agent = Agent(folder / "agent", self.nats_network.url, folder / "agent.log")
        self.processes: tuple[Runners | Agent, ...] = (*self.runners, self.agent)
        self.lost: set[str] = set()
        """The ids of acknowledged events that a copy of the log may lack."""
        self.log_was_restored = False
        self.stops: list[Stop] = []
        self._rows = Rows(url)
        self._folder = folder
        self._copies: dict[str, Copy] = {}

    def close(self) -> None:
        """Leave the database alone."""
        self._rows.close()

    @contextmanager
    def down(self, server: EmbeddedServer) -> Iterator[Path]:
        """The folder of a server's files, while it is killed."""
        server.kill()
        yield server.directory / ("jetstream" if server is self.nats else "data")
        server.start()  # in this very thread, with which a server ends

    async def kill(self, server: EmbeddedServer) -> None:
        """Kill a server, and start it again."""
        with self.down(server):
            pass

    async def copy(self, server: EmbeddedServer) -> None:
        """Keep a copy of a server's files."""
        acknowledged = self.publisher.acknowledged
        folder = self._folder / server.name
        with self.down(server) as files:
            _copy(files, folder)
        self._copies[server.name] = Copy(folder, await self.ledger.head(), acknowledged)

    async def restore_nats(self) -> None:
        """Put the copy of the log back: who has read on behind it stops, until the loss is accepted."""
        copy = self._copies[self.nats.name]
        with self.down(self.nats) as files:
            _copy(copy.folder, files)
        self.lost |= {one.id for one in self.publisher.drawn[copy.acknowledged :]}
        self.log_was_restored = True
        ahead = {one.name for one in projections() if lag(copy.head, await self._position(one.name)) > CHUNK}

        def stopped() -> set[str]:
            return {stop.projection for one in self.runners for stop in one.stops if _is(stop, LogRestoredError)}

        async def noticed() -> bool:
            return ahead <= stopped()

        try:
            await eventually(noticed)
        except TimeoutError as error:
            stops = [stop for one in self.runners for stop in one.stops]
            missing = f"{ahead - stopped()} did not notice; {copy}, {stops}, {await self._standing()}"
            raise AssertionError(missing) from error
        await self.go_on()

    async def restore_postgres(self) -> None:
        """Put the copy of the database back, as a replica that lags would be."""
        with self.down(self.postgres) as files:
            _copy(self._copies[self.postgres.name].folder, files)

    async def fill_disk(self) -> None:
        """Give the log next to no room, until it takes nothing more; then plenty."""
        with self.down(self.nats) as files:
            self.nats.disk_bytes = ROOM_BYTES + sum(one.stat().st_size for one in files.rglob("*") if one.is_file())
        await self._publish_in_vain()
        with self.down(self.nats):
            self.nats.disk_bytes = None

    async def _publish_in_vain(self) -> None:
        """Publish until it fails."""
        before = self.publisher.failures
        self.publisher.allowed += 10**6

        async def is_full() -> bool:
            return self.publisher.failures > before + 1

        await eventually(is_full)
        self.publisher.allowed = 0

    async def exhaust_disk(self) -> None:
        """Give the log a disk of its own with next to no room, until it takes nothing more; then plenty."""
        if not may_mount():
            await self.fill_disk()
            return
        with self.down(self.nats) as files:
            shrink(files, ROOM_BYTES)
            self.nats.disk_bytes = PLENTY_BYTES  # or the server would take three quarters of the room
        try:
            await self._publish_in_vain()
        finally:
            with self.down(self.nats) as files:
                widen(files)
                self.nats.disk_bytes = None

    async def fill_spool(self, meanwhile: Deed) -> None:
        """Give the agent no room while it records, and something else happens."""
        with full(self.agent.folder, self.agent.pid):
            self.agent.record(FACTS_ON_FULL_DISK)
            await eventually(self.agent.has_answered)
            await meanwhile()

    async def restart_agent(self) -> None:
        """Kill the agent, and start it again."""
        await self.agent.kill()
        await self.agent.start()

    async def cut(self, network: LossyProxy, events: int, meanwhile: Deed) -> None:
        """Swallow what is sent while so many events are published; the connections do not survive it."""
        network.swallow()
        await meanwhile()
        await self.publisher.advance(events)
        network.come_back()

    async def hold(self, network: LossyProxy, events: int, meanwhile: Deed) -> None:
        """Keep back what is sent while so many events are published."""
        network.hold()
        await meanwhile()
        await self.publisher.advance(events)
        network.release()

    async def set_clocks(self, which: int, ahead_s: float) -> None:
        """Set the clock of one process."""
        self.runners[which].say(f"ahead {ahead_s}")

    async def restart_runners(self, which: int) -> None:
        """Kill one process, and start it again."""
        self.stops += self.runners[which].stops
        self.runners[which].stops.clear()
        await self.runners[which].kill()
        await self.runners[which].start()

    async def go_on(self) -> None:
        """Do what the stops advise, where they are what the faults explain, and have everything try again."""
        found = [stop for one in self.runners for stop in one.stops]
        for one in self.runners:
            one.stops.clear()
        self.stops += found
        for stop in found:
            await self._mend(stop)
        for one in self.runners:
            one.say(GO_ON)

    async def follows(self) -> None:
        """Return when all rows are those of the head of the log, and every decision has come back."""

        async def is_there() -> bool:
            if any(one.stops for one in self.runners):
                await self.go_on()
            return await self._follows()

        try:
            await eventually(is_there, interval_s=0.05)
        except TimeoutError as error:
            raise AssertionError(f"the rows do not follow the log: {await self._standing()}") from error

    async def _standing(self) -> str:
        positions = {one.name: await self._position(one.name) for one in projections()}
        waiting = execute(self.url, f"SELECT projection, status, number, sequence {ON_THEIR_WAY}")
        sessions = execute(
            self.url,
            "SELECT application_name, state, left(query, 60) FROM pg_stat_activity WHERE datname = current_database()",
        )
        head = await self.ledger.head()
        return f"head {head}, {positions}, outbox {waiting}, stops {self.stops}, sessions {sessions}"

    async def _follows(self) -> bool:
        names = [one.name for one in projections()]
        query = f"SELECT position, (SELECT count(*) {ON_THEIR_WAY}) {LIVE}"
        try:
            found = self._rows.ask(query, names)
            return len(found) == len(names) and set(found) == {(await self.ledger.head(), 0)}
        except (psycopg.OperationalError, LedgerUnavailableError):
            return False

    async def _position(self, name: str) -> Offset:
        found = await checkpoint(self.url, name)
        return found.position if found else ORIGIN

    async def _mend(self, stop: Stop) -> None:
        if _is(stop, AnotherLeaderError):
            return  # starting again is the advice
        assert _is(stop, LogRestoredError) or _is(stop, DecisionLostError), stop
        assert self.log_was_restored, stop
        projection = next(one for one in projections() if one.name == stop.projection)
        rows = await checkpoint(self.url, projection.name)
        if rows is not None and _is(stop, LogRestoredError):
            try:
                await confirm_checkpoint(projection, self.ledger, rows)
            except LogRestoredError:
                await self._rebuild(projection)
            return
        await self._rebuild(projection)

    async def _rebuild(self, projection: Projection) -> None:
        with suppress(RebuildBusyError):  # a process began it in between and builds the same rows: wait for it
            await rebuild(projection, self.ledger, self.url, accept_loss=True)


def _is(stop: Stop, error: type[Exception]) -> bool:
    return stop.error == error.__name__


def _copy(files: Path, folder: Path) -> None:
    """Put a copy of a folder, with owners and rights, in the place of one that a killed process may still write to."""
    aside = Path(tempfile.mkdtemp(prefix="old-", dir=folder.parent))
    if folder.exists():
        folder.rename(aside / folder.name)
    subprocess.run(["cp", "-a", str(files), str(folder)], check=True)
    shutil.rmtree(aside, ignore_errors=True)


@asynccontextmanager
async def a_world(
    nats: TightNats, postgres: PostgresServer, url: str, events: Iterator[Outgoing], folder: Path
) -> AsyncIterator[World]:
    """Everything started, and stopped again."""
    with LossyProxy(nats.url) as nats_network, LossyProxy(url) as postgres_network, small_disk(folder / "agent"):
        async with jetstream_ledger(nats.url, publish_timeout_s=PUBLISH_TIMEOUT_S) as ledger:
            publisher = Publisher(ledger, events)
            networks = (nats_network, postgres_network)
            world = World(nats, postgres, url, networks, publisher, ledger, folder)
            for one in world.processes:
                await one.start()
            task = asyncio.create_task(publisher.run())
            try:
                yield world
                publisher.enough.set()
                await task
            finally:
                task.cancel()
                world.close()
                for one in world.processes:
                    await one.kill()
