"""What waits for the ledger, on disk: numbered events, their numbering, what was dropped, and small values by name.

One SQLite file in the node's state folder, used by one thread of one process. Whatever a transaction took is there
after a crash and after a power failure, so that a number that was sent is never given out again. Where a disk does not
keep that promise, or an earlier state of it was restored, the node has booted since, and a boot begins an epoch. A
folder that is put back to an earlier state while the node goes on running gives numbers out a second time: what is told
under them is taken for repeats, and nobody can see it from here. Neither can it be seen that a commit of which the
sync failed got to the disk after all: should the process be killed before the disk works again, the next run finds that
commit, and what it holds is told a second time, under other numbers than it had in memory.
"""

import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from datetime import datetime
from pathlib import Path
from typing import Final

from gpuledger.agent.outbox import disk
from gpuledger.agent.outbox.drop import UNREADABLE
from gpuledger.agent.outbox.entry import Drops, Entry, EventNumbering, QueueBounds, QueuedEvent, fitting, merged
from gpuledger.agent.outbox.errors import DiskError, SpoolUnreadableError
from gpuledger.agent.outbox.queue import QueueState
from gpuledger.events.publishing import DropClass
from gpuledger.ledger.api import Outgoing

FILE: Final = "outbox.db"

SCHEMA: Final = 1
"""Another one is another build's: its file is moved aside, because its numbering cannot be gone on with."""

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

_HELD: Final = "SELECT epoch, '', count(*), min(number), max(number) FROM event GROUP BY epoch ORDER BY min(position)"
_DROPPED: Final = "SELECT epoch, reason, count, first, last FROM dropped"


class Spool:
    """The file of one source in a folder; it is made where there is none.

    `boot` says in which of the node's boots the last run was. Every call may raise DiskError and SpoolUnreadableError,
    unless it says otherwise.

    Raises:
        FolderTakenError: another process uses it.
        DiskError: it can be neither read nor made.
        SpoolUnreadableError: it is damaged, of another build or of another source.
    """

    def __init__(self, folder: Path, source: str, *, lock_wait_s: float = disk.LOCK_WAIT_S) -> None:
        self.path = folder / FILE
        self.state = QueueState()
        self.boot: str | None = None
        self._source = source
        self._done_to = 0
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise DiskError(f"The state folder {folder} cannot be made ({error}).") from error
        self._connection = disk.connect(self.path, lock_wait_s=lock_wait_s)
        try:
            self._load()
        except BaseException:
            self._connection.close()
            raise

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """See `gpuledger.agent.outbox.queue.Queue.transaction`."""
        before = self.state
        try:
            with disk.transaction(self._connection, self.path):
                self._sweep()
                yield
        except BaseException:
            self.state = before
            raise

    def add(self, entries: Sequence[Entry]) -> None:
        """See `Queue.add`."""
        rows = (
            (entry.position, entry.epoch, entry.number, entry.priority, entry.time.isoformat(), *entry.message)
            for entry in entries
        )
        self._connection.executemany("INSERT INTO event VALUES (?, ?, ?, ?, ?, ?, ?, ?)", rows)
        self.state = self.state.with_added(entries)

    def number(self, numbering: EventNumbering) -> None:
        """See `Queue.number`."""
        last = numbering.last_time and numbering.last_time.isoformat()
        self._connection.execute(
            "UPDATE run SET epoch = ?, next_number = ?, last_time = ?", (numbering.epoch, numbering.next_number, last)
        )
        self.state = self.state._replace(numbering=numbering)

    def droppable(self, batch: QueueBounds) -> Iterator[QueuedEvent]:
        """See `Queue.droppable`."""
        found = self._connection.execute(
            "SELECT position, epoch, number, priority, length(data) FROM event"
            " WHERE priority < ? AND position > ? ORDER BY priority, position",
            (DropClass.NEVER, self._end_of(batch)),
        )
        return map(QueuedEvent._make, found)

    def drop(self, held: Sequence[QueuedEvent]) -> None:
        """See `Queue.drop`."""
        self._connection.executemany("DELETE FROM event WHERE position = ?", ((one.position,) for one in held))
        self.state = self.state.without(held)

    def note(self, drops: Iterable[Drops]) -> None:
        """See `Queue.note`."""
        self.state = self.state._replace(drops=merged([*self.state.drops, *drops]))
        self._connection.executemany("INSERT OR REPLACE INTO dropped VALUES (?, ?, ?, ?, ?)", self.state.drops)

    def forget_drops(self) -> None:
        """See `Queue.forget_drops`."""
        self._connection.execute("DELETE FROM dropped")
        self.state = self.state._replace(drops=())

    def head(self, batch: QueueBounds) -> list[Entry]:
        """See `Queue.head`."""
        if not self.state.events:
            return []
        with disk.translated_errors(self.path):
            found = self._connection.execute(
                "SELECT * FROM event WHERE position BETWEEN ? AND ? ORDER BY position",
                (self._done_to + 1, self._end_of(batch)),
            )
            rows = found.fetchall()
        with self._meaningful():
            return [_entry(row) for row in rows]

    def pass_over(self, entries: Sequence[Entry]) -> None:
        """See `Queue.pass_over`; the next transaction takes them off the disk."""
        self._done_to = entries[-1].position if entries else self._done_to
        self.state = self.state.without(entries)

    def sweep(self) -> None:
        """Take what was passed over off the disk, without waiting for it."""
        with disk.translated_errors(self.path), disk.relaxed_sync(self._connection):
            self._sweep()

    def oldest(self) -> datetime | None:
        """See `Queue.oldest`."""
        if not self.state.events:
            return None
        with disk.translated_errors(self.path):
            row = self._connection.execute(
                "SELECT time FROM event WHERE position > ? ORDER BY position LIMIT 1", (self._done_to,)
            ).fetchone()
        with self._meaningful():
            return row and _time_of(row[0])

    def mark(self, boot: str) -> None:
        """Note in which boot the run is; within a transaction."""
        self._connection.execute("UPDATE run SET boot = ?", (boot,))

    def values(self) -> dict[str, bytes]:
        """All values that are kept, by name."""
        with disk.translated_errors(self.path):
            return dict(self._connection.execute("SELECT name, value FROM kept"))

    def keep(self, values: Mapping[str, bytes]) -> None:
        """Replace some of them; within a transaction."""
        self._connection.executemany("INSERT OR REPLACE INTO kept VALUES (?, ?)", values.items())

    def close(self) -> None:
        """Let go of the file; raises nothing."""
        self._connection.close()

    def _sweep(self) -> None:
        self._connection.execute("DELETE FROM event WHERE position <= ?", (self._done_to,))

    def _end_of(self, batch: QueueBounds) -> int:
        """The position of the last event of the first `batch`."""
        rows = self._connection.execute(
            "SELECT position, length(data) FROM event WHERE position > ? ORDER BY position LIMIT ?",
            (self._done_to, batch.events),
        ).fetchall()
        count = fitting((size for _, size in rows), batch)
        return int(rows[count - 1][0]) if count else self._done_to

    def _load(self) -> None:
        with disk.translated_errors(self.path), self._meaningful():
            self._create()
            source, epoch, next_number, last_time, self.boot = self._connection.execute(
                "SELECT source, epoch, next_number, last_time, boot FROM run"
            ).fetchone()
            if source != self._source:
                raise SpoolUnreadableError(f"{self.path} is the outbox of {source}, and not of {self._source}.")
            self.state = self._read_book()
            if epoch is not None:
                numbering = EventNumbering(epoch, int(next_number), last_time and _time_of(last_time))
                self.state = self.state._replace(numbering=numbering)

    @contextmanager
    def _meaningful(self) -> Iterator[None]:
        """What SQLite reads without complaint may be damaged all the same."""
        try:
            yield
        except (TypeError, ValueError) as error:
            raise SpoolUnreadableError(f"{self.path} holds something that makes no sense: {error}.") from error

    def _create(self) -> None:
        (schema,) = self._connection.execute("PRAGMA user_version").fetchone()
        tables = self._connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()[0]
        if schema == SCHEMA:
            return
        if schema or tables:
            raise SpoolUnreadableError(f"{self.path} is of another build (schema {schema}, not {SCHEMA}).")
        with disk.transaction(self._connection, self.path):
            for table in _TABLES:
                self._connection.execute(table)
            self._connection.execute("INSERT INTO run VALUES (1, ?, NULL, NULL, NULL, NULL)", (self._source,))
            self._connection.execute(f"PRAGMA user_version = {SCHEMA}")

    def _read_book(self) -> QueueState:
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
    """The folder's spool, and where what could not be gone on with was moved to, if something had to be.

    Raises:
        FolderTakenError: another process uses it.
        DiskError: it can be neither read nor made.
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
    """What waited in a file that cannot be gone on with, as far as it can still be read, and drops that it knew of."""
    found: list[Drops] = []
    with suppress(sqlite3.Error, TypeError, ValueError), closing(sqlite3.connect(path, isolation_level=None)) as old:
        if old.execute("SELECT source FROM run").fetchone() == (source,):
            found += map(Drops._make, old.execute(_DROPPED))
            found += (drops._replace(reason=UNREADABLE) for drops in map(Drops._make, old.execute(_HELD)))
    return merged(drops for drops in found if 0 < drops.first <= drops.last and drops.events > 0)
