"""What waits for the ledger, on disk: numbered events, their numbering, what was dropped, and small values by name.

One SQLite file in the node's state folder, used by one thread of one process. Whatever a transaction took is there
after a crash and after a power failure, so that a number that was sent is never given out again.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Final

from gpuledger.agent.outbox import database
from gpuledger.agent.outbox.drop import NEVER
from gpuledger.agent.outbox.entry import Bounds, Drops, Entry, Held, Numbering, fitting, merged
from gpuledger.agent.outbox.errors import DiskError, SpoolUnreadableError
from gpuledger.agent.outbox.queue import Book
from gpuledger.ledger.api import Outgoing

FILE: Final = "outbox.db"

SCHEMA: Final = 1
"""Another one is another build's: its file is moved aside, because its numbering cannot be gone on with."""

_TABLES: Final = (
    """CREATE TABLE run (
        one INTEGER PRIMARY KEY CHECK (one = 1), source TEXT NOT NULL, epoch TEXT, next_number INTEGER, last_time TEXT,
        clean INTEGER NOT NULL
    ) STRICT""",
    """CREATE TABLE event (
        position INTEGER PRIMARY KEY, epoch TEXT NOT NULL, number INTEGER NOT NULL, priority INTEGER NOT NULL,
        time TEXT NOT NULL, subject TEXT NOT NULL, id TEXT NOT NULL, data BLOB NOT NULL
    ) STRICT""",
    "CREATE INDEX event_by_priority ON event (priority, position)",
    """CREATE TABLE dropped (
        epoch TEXT NOT NULL, reason TEXT NOT NULL, count INTEGER NOT NULL, first INTEGER NOT NULL,
        last INTEGER NOT NULL, PRIMARY KEY (epoch, reason)
    ) STRICT, WITHOUT ROWID""",
    "CREATE TABLE kept (name TEXT PRIMARY KEY, value BLOB NOT NULL) STRICT, WITHOUT ROWID",
)


class Spool:
    """The file of one source in a folder; it is made where there is none.

    `clean` says that the last run ended by itself. Every call may raise DiskError and SpoolUnreadableError, unless it
    says otherwise.

    Raises:
        FolderTakenError: another process uses it.
        DiskError: it can be neither read nor made.
        SpoolUnreadableError: it is damaged, of another build or of another source.
    """

    def __init__(self, folder: Path, source: str, *, lock_wait_s: float = database.LOCK_WAIT_S) -> None:
        self.path = folder / FILE
        self.book = Book()
        self.clean = False
        self._source = source
        self._done_to = 0
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise DiskError(f"The state folder {folder} cannot be made ({error}).") from error
        self._connection = database.connect(self.path, lock_wait_s=lock_wait_s)
        try:
            self._load()
        except BaseException:
            self._connection.close()
            raise

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """See `gpuledger.agent.outbox.queue.Queue.transaction`."""
        before = self.book
        try:
            with database.transaction(self._connection, self.path):
                self._sweep()
                yield
        except BaseException:
            self.book = before
            raise

    def add(self, entries: Sequence[Entry]) -> None:
        """See `Queue.add`."""
        rows = (
            (entry.position, entry.epoch, entry.number, entry.priority, entry.time.isoformat(), *entry.message)
            for entry in entries
        )
        self._connection.executemany("INSERT INTO event VALUES (?, ?, ?, ?, ?, ?, ?, ?)", rows)
        self.book = self.book.with_added(entries)

    def number(self, numbering: Numbering) -> None:
        """See `Queue.number`."""
        last = numbering.last_time and numbering.last_time.isoformat()
        self._connection.execute(
            "UPDATE run SET epoch = ?, next_number = ?, last_time = ?", (numbering.epoch, numbering.next_number, last)
        )
        self.book = self.book._replace(numbering=numbering)

    def droppable(self, batch: Bounds) -> Iterator[Held]:
        """See `Queue.droppable`."""
        found = self._connection.execute(
            "SELECT position, epoch, number, priority, length(data) FROM event"
            " WHERE priority < ? AND position > ? ORDER BY priority, position",
            (NEVER, self._end_of(batch)),
        )
        return map(Held._make, found)

    def drop(self, held: Sequence[Held]) -> None:
        """See `Queue.drop`."""
        self._connection.executemany("DELETE FROM event WHERE position = ?", ((one.position,) for one in held))
        self.book = self.book.without(held)

    def note(self, drops: Iterable[Drops]) -> None:
        """See `Queue.note`."""
        self.book = self.book._replace(drops=merged([*self.book.drops, *drops]))
        self._connection.executemany("INSERT OR REPLACE INTO dropped VALUES (?, ?, ?, ?, ?)", self.book.drops)

    def forget_drops(self) -> None:
        """See `Queue.forget_drops`."""
        self._connection.execute("DELETE FROM dropped")
        self.book = self.book._replace(drops=())

    def head(self, batch: Bounds) -> list[Entry]:
        """See `Queue.head`."""
        if not self.book.events:
            return []
        with database.translated(self.path):
            found = self._connection.execute(
                "SELECT * FROM event WHERE position BETWEEN ? AND ? ORDER BY position",
                (self._done_to + 1, self._end_of(batch)),
            )
            return [_entry(row) for row in found]

    def pass_over(self, entries: Sequence[Entry]) -> None:
        """See `Queue.pass_over`; the next transaction takes them off the disk."""
        self._done_to = entries[-1].position if entries else self._done_to
        self.book = self.book.without(entries)

    def sweep(self) -> None:
        """Take what was passed over off the disk, without waiting for it."""
        with database.translated(self.path), database.passing(self._connection):
            self._sweep()

    def oldest(self) -> datetime | None:
        """See `Queue.oldest`."""
        if not self.book.events:
            return None
        with database.translated(self.path):
            row = self._connection.execute(
                "SELECT time FROM event WHERE position > ? ORDER BY position LIMIT 1", (self._done_to,)
            ).fetchone()
        return row and datetime.fromisoformat(row[0])

    def mark(self, *, clean: bool) -> None:
        """Note whether the run ended by itself; within a transaction."""
        self._connection.execute("UPDATE run SET clean = ?", (int(clean),))

    def values(self) -> dict[str, bytes]:
        """All values that are kept, by name."""
        with database.translated(self.path):
            return dict(self._connection.execute("SELECT name, value FROM kept"))

    def keep(self, values: Mapping[str, bytes]) -> None:
        """Replace some of them; within a transaction."""
        self._connection.executemany("INSERT OR REPLACE INTO kept VALUES (?, ?)", values.items())

    def close(self) -> None:
        """Let go of the file; raises nothing."""
        self._connection.close()

    def _sweep(self) -> None:
        self._connection.execute("DELETE FROM event WHERE position <= ?", (self._done_to,))

    def _end_of(self, batch: Bounds) -> int:
        """The position of the last event of the first `batch`."""
        rows = self._connection.execute(
            "SELECT position, length(data) FROM event WHERE position > ? ORDER BY position LIMIT ?",
            (self._done_to, batch.events),
        ).fetchall()
        count = fitting((size for _, size in rows), batch)
        return int(rows[count - 1][0]) if count else self._done_to

    def _load(self) -> None:
        with database.translated(self.path):
            self._create()
            source, epoch, next_number, last_time, clean = self._connection.execute(
                "SELECT source, epoch, next_number, last_time, clean FROM run"
            ).fetchone()
        if source != self._source:
            raise SpoolUnreadableError(f"{self.path} is the outbox of {source}, and not of {self._source}.")
        self.clean = bool(clean)
        with database.translated(self.path):
            self.book = self._read_book()
        if epoch is not None:
            last = last_time and datetime.fromisoformat(last_time)
            self.book = self.book._replace(numbering=Numbering(epoch, next_number, last))

    def _create(self) -> None:
        (schema,) = self._connection.execute("PRAGMA user_version").fetchone()
        tables = self._connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()[0]
        if schema == SCHEMA:
            return
        if schema or tables:
            raise SpoolUnreadableError(f"{self.path} is of another build (schema {schema}, not {SCHEMA}).")
        with database.transaction(self._connection, self.path):
            for table in _TABLES:
                self._connection.execute(table)
            self._connection.execute("INSERT INTO run VALUES (1, ?, NULL, NULL, NULL, 0)", (self._source,))
            self._connection.execute(f"PRAGMA user_version = {SCHEMA}")

    def _read_book(self) -> Book:
        held = self._connection.execute(
            "SELECT epoch, '', count(*), min(number), max(number) FROM event GROUP BY epoch ORDER BY min(position)"
        )
        size, last = self._connection.execute(
            "SELECT coalesce(sum(length(data)), 0), coalesce(max(position), 0) FROM event"
        ).fetchone()
        drops = self._connection.execute("SELECT epoch, reason, count, first, last FROM dropped")
        spans = tuple(map(Drops._make, held))
        return Book(sum(one.events for one in spans), size, last + 1, None, spans, tuple(map(Drops._make, drops)))


def _entry(row: tuple[int, str, int, int, str, str, str, bytes]) -> Entry:
    position, epoch, number, priority, time, subject, event_id, data = row
    return Entry(position, epoch, number, priority, datetime.fromisoformat(time), Outgoing(subject, event_id, data))


def open_spool(folder: Path, source: str, now: datetime) -> tuple[Spool, Path | None]:
    """The folder's spool, and where what could not be gone on with was moved to, if something had to be.

    Raises:
        FolderTakenError: another process uses it.
        DiskError: it can be neither read nor made.
    """
    try:
        return Spool(folder, source), None
    except SpoolUnreadableError:
        aside = database.move_aside(folder / FILE, now)
        return Spool(folder, source), aside
