"""The queue on disk: an SQLite file with numbered events, their numbering, drops, and the values of the state store.

One thread of one process uses the file, in the node's state folder. A committed transaction survives a crash and a
power failure, so that a number that was published is never given out again. A disk that breaks that promise, or is
restored to an earlier state, implies a new boot of the node, and each boot begins an epoch. Two cases go undetected. A
folder that is put back to an earlier state on a running node gives out numbers twice, and readers take the second
events for repeats. A commit whose sync failed may have reached the disk after all: if the process is killed before the
disk works again, the next run publishes its events a second time, under other numbers than they had in memory.
"""

import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from datetime import datetime
from pathlib import Path
from typing import Final

from gpuledger.agent.outbox import disk
from gpuledger.agent.outbox.drop import UNREADABLE
from gpuledger.agent.outbox.entry import (
    Drops,
    Entry,
    EpochEnd,
    EventNumbering,
    QueueBounds,
    QueuedEvent,
    merged,
    prefix_length,
)
from gpuledger.agent.outbox.errors import DiskError, SpoolUnreadableError
from gpuledger.agent.outbox.queue import QueueState
from gpuledger.events.publishing import DropClass
from gpuledger.ledger.api import Outgoing

FILE: Final = "outbox.db"

SCHEMA: Final = 1
"""A file with another schema is another build's; it is moved aside, because its numbering cannot be continued."""

_TABLES: Final = (
    """CREATE TABLE run (
        one INTEGER PRIMARY KEY CHECK (one = 1), source TEXT NOT NULL, epoch TEXT, next_number INTEGER, last_time TEXT,
        boot TEXT
    ) STRICT""",
    """CREATE TABLE event (
        position INTEGER PRIMARY KEY, epoch TEXT NOT NULL, number INTEGER NOT NULL CHECK (number > 0),
        priority INTEGER NOT NULL,
        time TEXT NOT NULL, subject TEXT NOT NULL, id TEXT NOT NULL, data BLOB NOT NULL
    ) STRICT""",
    "CREATE INDEX event_by_priority ON event (priority, position)",
    """CREATE TABLE dropped (
        epoch TEXT NOT NULL, reason TEXT NOT NULL, count INTEGER NOT NULL CHECK (count > 0),
        first INTEGER NOT NULL CHECK (first > 0), last INTEGER NOT NULL, PRIMARY KEY (epoch, reason)
    ) STRICT, WITHOUT ROWID""",
    "CREATE TABLE kept (name TEXT PRIMARY KEY, value BLOB NOT NULL) STRICT, WITHOUT ROWID",
)

_ENDED: Final = """CREATE TABLE IF NOT EXISTS ended (
    place INTEGER PRIMARY KEY, epoch TEXT NOT NULL, last INTEGER NOT NULL CHECK (last >= 0)
) STRICT"""
"""Earlier builds of this schema neither need nor mind this table."""

_HELD: Final = "SELECT epoch, '', count(*), min(number), max(number) FROM event GROUP BY epoch ORDER BY min(position)"
_DROPPED: Final = "SELECT epoch, reason, count, first, last FROM dropped"


class Spool:
    """The file of one source in a folder, created if need be.

    `boot` is the id of the boot in which the last run was. Every method may raise DiskError and SpoolUnreadableError,
    unless it says otherwise.

    Raises:
        FolderTakenError: another process uses it.
        DiskError: it can be neither read nor created.
        SpoolUnreadableError: it is damaged, of another build or of another source.
    """

    def __init__(self, folder: Path, source: str, *, lock_wait_s: float = disk.LOCK_WAIT_S) -> None:
        self.path = folder / FILE
        self.state = QueueState()
        self.boot: str | None = None
        self._source = source
        self._skipped_to = 0
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise DiskError(f"The state folder {folder} cannot be created ({error}).") from error
        self._connection = disk.connect(self.path, lock_wait_s=lock_wait_s)
        try:
            self._load()
        except BaseException:
            self._connection.close()
            raise

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """See `gpuledger.agent.outbox.queue.EventQueue.transaction`."""
        before = self.state
        try:
            with disk.transaction(self._connection, self.path):
                self._delete_skipped()
                yield
        except BaseException:
            self.state = before
            raise

    def add(self, entries: Sequence[Entry]) -> None:
        """See `EventQueue.add`."""
        rows = (
            (entry.position, entry.epoch, entry.number, entry.priority, entry.time.isoformat(), *entry.message)
            for entry in entries
        )
        self._connection.executemany("INSERT INTO event VALUES (?, ?, ?, ?, ?, ?, ?, ?)", rows)
        self.state = self.state.with_added(entries)

    def number(self, numbering: EventNumbering) -> None:
        """See `EventQueue.number`."""
        last = numbering.last_time and numbering.last_time.isoformat()
        self._connection.execute(
            "UPDATE run SET epoch = ?, next_number = ?, last_time = ?", (numbering.epoch, numbering.next_number, last)
        )
        if self.state.numbering is None or numbering.ended != self.state.numbering.ended:
            self._connection.execute("DELETE FROM ended")
            self._connection.executemany("INSERT INTO ended (epoch, last) VALUES (?, ?)", numbering.ended)
        self.state = self.state._replace(numbering=numbering)

    def droppable(self, batch: QueueBounds) -> Iterator[QueuedEvent]:
        """See `EventQueue.droppable`."""
        found = self._connection.execute(
            "SELECT position, epoch, number, priority, length(data) FROM event"
            " WHERE priority < ? AND position > ? ORDER BY priority, position",
            (DropClass.NEVER, self._end_of(batch)),
        )
        return map(QueuedEvent._make, found)

    def drop(self, queued: Sequence[QueuedEvent]) -> None:
        """See `EventQueue.drop`."""
        self._connection.executemany("DELETE FROM event WHERE position = ?", ((one.position,) for one in queued))
        self.state = self.state.without(queued)

    def note(self, drops: Iterable[Drops]) -> None:
        """See `EventQueue.note`."""
        self.state = self.state._replace(drops=merged([*self.state.drops, *drops]))
        self._connection.executemany("INSERT OR REPLACE INTO dropped VALUES (?, ?, ?, ?, ?)", self.state.drops)

    def forget_drops(self) -> None:
        """See `EventQueue.forget_drops`."""
        self._connection.execute("DELETE FROM dropped")
        self.state = self.state._replace(drops=())

    def head(self, batch: QueueBounds) -> list[Entry]:
        """See `EventQueue.head`."""
        if not self.state.events:
            return []
        with disk.translated_errors(self.path):
            found = self._connection.execute(
                "SELECT * FROM event WHERE position BETWEEN ? AND ? ORDER BY position",
                (self._skipped_to + 1, self._end_of(batch)),
            )
            rows = found.fetchall()
        with self._decoding():
            return [_entry(row) for row in rows]

    def skip(self, entries: Sequence[Entry]) -> None:
        """See `EventQueue.skip`; the next transaction deletes the entries."""
        self._skipped_to = entries[-1].position if entries else self._skipped_to
        self.state = self.state.without(entries)

    def delete_skipped(self) -> None:
        """Delete the skipped events without waiting for the disk."""
        with disk.translated_errors(self.path), disk.relaxed_sync(self._connection):
            self._delete_skipped()

    def oldest(self) -> datetime | None:
        """See `EventQueue.oldest`."""
        if not self.state.events:
            return None
        with disk.translated_errors(self.path):
            row = self._connection.execute(
                "SELECT time FROM event WHERE position > ? ORDER BY position LIMIT 1", (self._skipped_to,)
            ).fetchone()
        with self._decoding():
            return row and _time_of(row[0])

    def set_boot(self, boot: str) -> None:
        """Store the boot in which the run is; in a transaction."""
        self._connection.execute("UPDATE run SET boot = ?", (boot,))

    def values(self) -> dict[str, bytes]:
        """All values of the state store, by name."""
        with disk.translated_errors(self.path):
            return dict(self._connection.execute("SELECT name, value FROM kept"))

    def save_values(self, values: Mapping[str, bytes]) -> None:
        """Replace some values; in a transaction."""
        self._connection.executemany("INSERT OR REPLACE INTO kept VALUES (?, ?)", values.items())

    def close(self) -> None:
        """Close the file; raises nothing."""
        self._connection.close()

    def _delete_skipped(self) -> None:
        self._connection.execute("DELETE FROM event WHERE position <= ?", (self._skipped_to,))

    def _end_of(self, batch: QueueBounds) -> int:
        """The position of the last event of the first `batch`."""
        rows = self._connection.execute(
            "SELECT position, length(data) FROM event WHERE position > ? ORDER BY position LIMIT ?",
            (self._skipped_to, batch.events),
        ).fetchall()
        count = prefix_length((size for _, size in rows), batch)
        return int(rows[count - 1][0]) if count else self._skipped_to

    def _load(self) -> None:
        with disk.translated_errors(self.path), self._decoding():
            self._create()
            source, epoch, next_number, last_time, self.boot = self._connection.execute(
                "SELECT source, epoch, next_number, last_time, boot FROM run"
            ).fetchone()
            if source != self._source:
                raise SpoolUnreadableError(f"{self.path} is the outbox of {source}, and not of {self._source}.")
            self.state = self._read_state()
            if epoch is not None:
                found = self._connection.execute("SELECT epoch, last FROM ended ORDER BY place").fetchall()
                ended = tuple(EpochEnd(name, int(last)) for name, last in found)
                numbering = EventNumbering(epoch, int(next_number), last_time and _time_of(last_time), ended)
                self.state = self.state._replace(numbering=numbering)

    @contextmanager
    def _decoding(self) -> Iterator[None]:
        """A value that SQLite reads without complaint may still be damaged."""
        try:
            yield
        except (TypeError, ValueError) as error:
            raise SpoolUnreadableError(f"{self.path} holds an invalid value: {error}.") from error

    def _create(self) -> None:
        (schema,) = self._connection.execute("PRAGMA user_version").fetchone()
        tables = self._connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()[0]
        if schema == SCHEMA:
            self._connection.execute(_ENDED)
            return
        if schema or tables:
            raise SpoolUnreadableError(f"{self.path} was written by another build (schema {schema}, not {SCHEMA}).")
        with disk.transaction(self._connection, self.path):
            for table in (*_TABLES, _ENDED):
                self._connection.execute(table)
            self._connection.execute("INSERT INTO run VALUES (1, ?, NULL, NULL, NULL, NULL)", (self._source,))
            self._connection.execute(f"PRAGMA user_version = {SCHEMA}")

    def _read_state(self) -> QueueState:
        # A statement that is not read to its end would hold the file, and its lock, after the connection was closed.
        spans = tuple(map(Drops._make, self._connection.execute(_HELD).fetchall()))
        drops = tuple(map(Drops._make, self._connection.execute(_DROPPED).fetchall()))
        size, last = self._connection.execute(
            "SELECT coalesce(sum(length(data)), 0), coalesce(max(position), 0) FROM event"
        ).fetchone()
        return QueueState(sum(one.events for one in spans), size, last + 1, None, spans, drops)


def _entry(row: tuple[int, str, int, int, str, str, str, bytes]) -> Entry:
    position, epoch, number, priority, time, subject, event_id, data = row
    return Entry(position, epoch, number, priority, _time_of(time), Outgoing(subject, event_id, data))


def _time_of(text: str) -> datetime:
    time = datetime.fromisoformat(text)
    if time.tzinfo is None:
        raise ValueError(f"the time {text!r} is in no zone")
    return time


def open_spool(folder: Path, source: str, now: datetime) -> tuple[Spool, Path | None]:
    """The folder's spool, and where an unusable file was moved to, if there was one.

    Raises:
        FolderTakenError: another process uses it.
        DiskError: it can be neither read nor created.
    """
    try:
        return Spool(folder, source), None
    except SpoolUnreadableError:
        lost = _lost(folder / FILE, source)
        aside = disk.move_aside(folder / FILE, now)
    spool = Spool(folder, source)
    try:
        with spool.transaction():
            spool.note(lost)
    except BaseException:
        spool.close()
        raise
    return spool, aside


def _lost(path: Path, source: str) -> tuple[Drops, ...]:
    """The waiting events of an unusable file and its drops, as far as they can still be read."""
    found: list[Drops] = []
    with suppress(sqlite3.Error, TypeError, ValueError), closing(sqlite3.connect(path, isolation_level=None)) as old:
        if old.execute("SELECT source FROM run").fetchone() == (source,):
            found += map(Drops._make, old.execute(_DROPPED))
            found += (drops._replace(reason=UNREADABLE) for drops in map(Drops._make, old.execute(_HELD)))
    return merged(drops for drops in found if 0 < drops.first <= drops.last and drops.events > 0)
