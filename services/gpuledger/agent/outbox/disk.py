"""The outbox's files: the SQLite database, damaged ones that were moved aside, and the mark of a clean end.

The mark is a file that exists from the clean end of a run to the start of the next. Removing a file needs no free
space, so that a run on a full disk, whose events are lost with its process, cannot leave the mark behind. This module
knows nothing of the tables.
"""

import os
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import datetime
from pathlib import Path
from typing import Final

from gpuledger.agent.outbox.errors import DiskError, FolderTakenError, OutboxError, SpoolUnreadableError

LOCK_WAIT_S: Final = 5.0
"""How long an ending agent may still hold the file."""

WAL_PAGES_MAX: Final = 256
"""SQLite moves its log into the database after so many pages (of 4 KiB)."""

WAL_BYTES_KEPT_MAX: Final = 4 << 20
CACHE_KIB: Final = 512

ASIDE_MAX: Final = 3
"""How many of the files that were moved aside are kept; the latest."""

_UNREADABLE: Final = frozenset(
    {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_ERROR, sqlite3.SQLITE_CONSTRAINT}
)
_PRIMARY: Final = 0xFF

_FULL_SYNC = "PRAGMA synchronous = FULL"
_RELAXED_SYNC = "PRAGMA synchronous = NORMAL"


def connect(path: Path, *, lock_wait_s: float = LOCK_WAIT_S) -> sqlite3.Connection:
    """Open the database at `path` for this process alone, check it for damage, or create it.

    Raises:
        FolderTakenError: another process uses it.
        DiskError: it can be neither read nor created.
        SpoolUnreadableError: it is damaged.
    """
    with translated_errors(path):
        connection = sqlite3.connect(path, timeout=lock_wait_s, isolation_level=None)
    try:
        with translated_errors(path):
            _prepare(connection)
    except BaseException:
        connection.close()
        raise
    return connection


def _prepare(connection: sqlite3.Connection) -> None:
    # Taken before the log is first touched, the lock needs no shared memory, and nobody else gets in.
    for setting in (
        "locking_mode = EXCLUSIVE",
        "journal_mode = WAL",
        "synchronous = FULL",
        f"wal_autocheckpoint = {WAL_PAGES_MAX}",
        f"journal_size_limit = {WAL_BYTES_KEPT_MAX}",
        f"cache_size = -{CACHE_KIB}",
        "temp_store = MEMORY",
    ):
        connection.execute(f"PRAGMA {setting}")
    connection.execute("BEGIN IMMEDIATE")
    connection.execute("ROLLBACK")
    (found,) = connection.execute("PRAGMA quick_check(1)").fetchone()
    if found != "ok":
        raise SpoolUnreadableError(f"SQLite found damage in it: {found}.")


@contextmanager
def transaction(connection: sqlite3.Connection, path: Path) -> Iterator[None]:
    """Everything in the block is on disk when it ends, or nothing is."""
    with translated_errors(path):
        connection.execute("BEGIN IMMEDIATE")
        try:
            yield
            connection.execute("COMMIT")
        except BaseException:
            if connection.in_transaction:
                with suppress(sqlite3.Error):
                    connection.execute("ROLLBACK")
            raise


@contextmanager
def relaxed_sync(connection: sqlite3.Connection) -> Iterator[None]:
    """Commits in the block survive the process without waiting for the disk; a power failure may undo them."""
    connection.execute(_RELAXED_SYNC)
    try:
        yield
    finally:
        connection.execute(_FULL_SYNC)


@contextmanager
def translated_errors(path: Path) -> Iterator[None]:
    """Turns SQLite's errors into those of the outbox; programming errors stay as they are."""
    try:
        yield
    except sqlite3.Error as error:
        # Text that is none is found by Python's own layer, which gives no code.
        unknown = sqlite3.SQLITE_CORRUPT if isinstance(error, sqlite3.OperationalError) else None
        code = getattr(error, "sqlite_errorcode", unknown)
        if code is None:
            raise
        raise _translated(error, path, code) from error


def _translated(error: sqlite3.Error, path: Path, code: int) -> OutboxError:
    primary = code & _PRIMARY
    if primary == sqlite3.SQLITE_BUSY:
        return FolderTakenError(f"Another agent uses {path.parent}. End it, or give this one another folder.")
    if primary in _UNREADABLE:
        return SpoolUnreadableError(f"{path} is unusable: {error}.")
    return DiskError(f"The disk under {path} fails ({error}). Free some room on it, or repair it.")


def move_aside(path: Path, now: datetime) -> Path:
    """Rename a damaged file and its log to a name with the time, and return it; only the latest of such files are kept.

    Raises:
        DiskError: it cannot be renamed.
    """
    aside = path.with_name(f"{path.name}.unreadable-{now:%Y%m%dT%H%M%S.%fZ}")
    try:
        # Without its log the file may be a usable older one, whose numbers would be given out twice.
        path.rename(aside)
        if _log_of(path).exists():
            _log_of(path).rename(_log_of(aside))
        earlier = sorted(one for one in path.parent.glob(f"{path.name}.unreadable-*Z") if one != aside)
        for one in earlier[: max(0, len(earlier) + 1 - ASIDE_MAX)]:
            one.unlink()
            _log_of(one).unlink(missing_ok=True)
    except OSError as error:
        raise DiskError(f"{path} is damaged and cannot be moved aside ({error}).") from error
    return aside


def _log_of(path: Path) -> Path:
    return path.with_name(f"{path.name}-wal")


FILE: Final = "ended"


def mark_clean_end(folder: Path) -> None:
    """Mark that a run ended with everything on disk.

    Raises:
        DiskError: the mark cannot be written.
    """
    try:
        (folder / FILE).touch(mode=0o600)
        _sync(folder)
    except OSError as error:
        raise DiskError(f"The end cannot be marked in {folder} ({error}).") from error


def take_clean_end(folder: Path) -> bool:
    """Remove the mark and return whether there was one; a mark that cannot be removed does not count."""
    try:
        (folder / FILE).unlink()
        _sync(folder)
    except OSError:
        return False
    return True


def _sync(folder: Path) -> None:
    number = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(number)
    finally:
        os.close(number)
