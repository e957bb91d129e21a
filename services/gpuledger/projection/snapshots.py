"""Reads the last snapshot at a start, and writes the next ones while a service goes on.

A snapshot that does not follow this log is passed over with a word in the service's log, and so is a database that
does not answer for a while: the start then reads the log from its first event, which takes longer and is as right.
Nothing here ever makes a state stale: the event that a snapshot ends at is confirmed to be in the log before its use.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field

import psycopg
import structlog

from gpuledger.db.engine import DATABASE_TRANSIENT, connect
from gpuledger.db.errors import DatabaseError
from gpuledger.events.position import ORIGIN, Offset
from gpuledger.ledger.api import Ledger
from gpuledger.ledger.errors import LogChangedError
from gpuledger.projection.snapshot import Layout, Snapshot
from gpuledger.projection.snapshot_store import Header, SnapshotDamagedError, SnapshotStore
from gpuledger.runtime.backoff import Backoff, Retries
from gpuledger.runtime.garbage import seldom_collected

log = structlog.get_logger("gpuledger.snapshots")


@dataclass(frozen=True, slots=True)
class SnapshotSettings:
    """How much of the log a start may have to fold again, and how long it waits for PostgreSQL.

    A snapshot is due after `events_min` events, and after one event for each `rows_per_event` rows that it would have,
    so that writing it costs no more than that many rows an event. `load_timeout_s` is how long a start waits for its
    snapshot, or for the next piece of it, and `load_max_s` how long for all of it, before it does without.
    """

    events_min: int = 20_000
    rows_per_event: int = 8
    load_timeout_s: float = 15.0
    load_max_s: float = 120.0
    write_timeout_s: float = 120.0
    backoff: Backoff = field(default_factory=lambda: Backoff(first_s=0.5, max_s=30.0))


class Snapshots:
    """The snapshots of one name and layout in one log: reads the last one, and writes another when it is due."""

    def __init__(
        self, layout: Layout, ledger: Ledger, database_url: str | None, settings: SnapshotSettings | None = None
    ) -> None:
        """Without a database there are none."""
        self._layout = layout
        self._ledger = ledger
        self._database_url = database_url
        self._settings = settings or SnapshotSettings()
        self._refused: Header | None = None
        self._last: Offset = ORIGIN
        self._next: Snapshot | None = None
        self._offered = asyncio.Event()

    async def load(self) -> Snapshot | None:
        """The last snapshot that is part of this log; None where there is none, or it cannot be had in time.

        Raises:
            LedgerUnavailableError: the server does not answer.
        """
        self._last, self._next = ORIGIN, None
        if self._database_url is None:
            return None
        try:
            found = await self._read_in_time(self._database_url)
        except TimeoutError:
            log.warning("snapshot.unavailable", name=self._layout.name, waited_s=self._settings.load_timeout_s)
            return None
        if found is not None:
            self._last = found.anchor.sequence
            log.info("snapshot.loaded", name=self._layout.name, position=str(found.at), rows=found.size)
        return found

    @property
    def last(self) -> Offset:
        """Where the last snapshot stands that was loaded or offered."""
        return self._last

    def is_due(self, events: int, rows: int) -> bool:
        """Whether so many events since the last snapshot are worth another one of so many rows."""
        settings = self._settings
        events_min = max(settings.events_min, rows // settings.rows_per_event)
        return self._database_url is not None and self._next is None and events >= events_min

    @property
    def offered(self) -> Snapshot | None:
        """What waits to be written, if anything does."""
        return self._next

    def offer(self, snapshot: Snapshot) -> None:
        """Have `run` write this one."""
        self._next, self._last = snapshot, snapshot.anchor.sequence
        self._offered.set()

    async def run(self) -> None:
        """Write what is offered, until cancelled; while the database is away, the last one waits for it."""
        retries = Retries(self._settings.backoff)
        while True:
            await self._offered.wait()
            self._offered.clear()
            while (snapshot := self._next) is not None:
                if await self.write(snapshot):
                    self._next = None if self._next is snapshot else self._next
                    retries.reset()
                else:
                    await asyncio.sleep(retries.pause_s())

    async def write(self, snapshot: Snapshot) -> bool:
        """Write a snapshot now, unless another replica has written a later one; False where the database is away."""
        assert self._database_url is not None, "nothing is due without a database"
        name = f"gpuledger {self._layout.name} snapshot"
        try:
            async with (
                asyncio.timeout(self._settings.write_timeout_s),
                connect(self._database_url, application_name=name) as connection,
            ):
                with seldom_collected():
                    is_written = await SnapshotStore(connection, self._layout).write(snapshot, self._refused)
        except (DatabaseError, psycopg.Error, TimeoutError) as error:
            log.warning("snapshot.not-written", name=self._layout.name, reason=str(error).strip())
            return False
        if is_written:
            self._refused = None
            log.info("snapshot.written", name=self._layout.name, position=str(snapshot.at), rows=snapshot.size)
        return True

    async def _read_in_time(self, database_url: str) -> Snapshot | None:
        """A large snapshot takes its time; a database that sends nothing more is not waited for."""
        settings, now = self._settings, asyncio.get_running_loop().time
        ends_s = now() + settings.load_max_s
        async with asyncio.timeout(settings.load_timeout_s) as until:
            return await self._read_patiently(
                database_url, lambda: until.reschedule(min(ends_s, now() + settings.load_timeout_s))
            )

    async def _read_patiently(self, database_url: str, on_piece: Callable[[], None]) -> Snapshot | None:
        retries = Retries(self._settings.backoff)
        while True:
            try:
                return await self._read(database_url, on_piece)
            except SnapshotDamagedError as error:
                log.error("snapshot.damaged", name=self._layout.name, reason=str(error))
                return None
            except DATABASE_TRANSIENT as error:
                pause_s = retries.pause_s()
                reason = str(error).strip()
                log.warning("snapshot.unavailable", name=self._layout.name, reason=reason, retry_s=pause_s)
                await asyncio.sleep(pause_s)
            except (DatabaseError, psycopg.Error) as error:  # waiting mends no missing table or right
                log.warning("snapshot.unavailable", name=self._layout.name, reason=str(error).strip())
                return None

    async def _read(self, database_url: str, on_piece: Callable[[], None]) -> Snapshot | None:
        name = f"gpuledger {self._layout.name} start"
        async with connect(database_url, application_name=name) as connection:
            store, found = SnapshotStore(connection, self._layout), None
            while found is None:
                header = await store.header()
                if header is None or not await self._is_part_of_log(header):
                    return None
                self._refused = header  # until it is found whole
                with seldom_collected():
                    found = await store.load(header, on_piece)
            self._refused = None
        return found

    async def _is_part_of_log(self, header: Header) -> bool:
        reason = await refusal_of(header, self._ledger)
        if reason is not None:
            self._refused = header
            log.warning("snapshot.refused", name=self._layout.name, reason=reason)
        return reason is None


async def refusal_of(header: Header, ledger: Ledger) -> str | None:
    """Why nobody may begin at a snapshot of this log; None where that is right."""
    if not header.is_followed_by(ledger.identity.ledger_id, ledger.generations):
        return f"It follows generation {header.generation} of the ledger {header.ledger_id}."
    try:
        await ledger.confirm(header.anchor)
    except LogChangedError as error:
        return str(error)
    return None
