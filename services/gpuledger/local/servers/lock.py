"""The lock on a data directory: one process holds it at a time, and it ends with that process.

The lock file also names the holder, for messages; only the lock itself decides.
"""

import fcntl
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from datetime import datetime
from pathlib import Path
from typing import Self

from gpuledger.local.servers.errors import DataDirUnusableError

LOCK_MODE = 0o600


@dataclass(frozen=True, slots=True)
class LockHolder:
    """The process that holds a data directory: its `gpuledger` command, pid, and since when (RFC 3339)."""

    command: str
    pid: int
    since: str

    @classmethod
    def ourselves(cls, command: str, now: datetime) -> Self:
        """This process."""
        return cls(command, os.getpid(), now.isoformat(timespec="seconds").replace("+00:00", "Z"))


class DirectoryLock:
    """An exclusive lock on one file, held from a successful `acquire` until `release`."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._descriptor: int | None = None

    def acquire(self, holder: LockHolder) -> bool:
        """Take the lock without waiting; False if another process holds it.

        Raises:
            DataDirUnusableError: the file cannot be written, or its file system does not support locks.
        """
        descriptor = _open(self._path)
        if not _lock(descriptor, fcntl.LOCK_EX, self._path):
            os.close(descriptor)
            return False
        self._descriptor = descriptor
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, json.dumps(asdict(holder)).encode(), 0)
        return True

    def release(self) -> None:
        """Release the lock; does nothing if it is not held."""
        if self._descriptor is not None:
            os.ftruncate(self._descriptor, 0)
            os.close(self._descriptor)
            self._descriptor = None

    def holder(self) -> LockHolder | None:
        """The holder that the file names, which may be outdated; None if it names none."""
        with suppress(OSError, ValueError, TypeError):
            return LockHolder(**json.loads(self._path.read_text(encoding="utf-8")))
        return None

    def held(self) -> bool:
        """Whether anybody holds the lock now. Checking takes a shared lock for a moment."""
        with _reading(self._path) as descriptor:
            return descriptor is not None and not _lock(descriptor, fcntl.LOCK_SH, self._path)


@contextmanager
def _reading(path: Path) -> Iterator[int | None]:
    try:
        descriptor = os.open(path, os.O_RDONLY)
    except OSError:
        yield None
        return
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _open(path: Path) -> int:
    try:
        return os.open(path, os.O_RDWR | os.O_CREAT, LOCK_MODE)
    except OSError as error:
        raise _unusable(path, error) from error


def _lock(descriptor: int, kind: int, path: Path) -> bool:
    try:
        fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as error:
        raise _unusable(path, error) from error
    return True


def _unusable(path: Path, error: OSError) -> DataDirUnusableError:
    return DataDirUnusableError(
        f"Data directory {path.parent} cannot be locked ({error.strerror}). "
        "Make it writable, or choose another --data-dir on a local disk."
    )
