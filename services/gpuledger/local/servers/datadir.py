"""The data directory of the embedded mode: its layout, its owner, and where its servers listen.

    gpuledger.json   marks the directory as gpuledger's and names its format
    lock             held by the one process whose servers run in it
    run.json         their addresses, while they run (private: it holds passwords)
    nats/ postgres/  their data

It must never touch a directory that it did not create. Who starts servers in one is `embedded`.
"""

import json
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path

from gpuledger.local.servers.errors import (
    DataDirBusyError,
    DataDirFormatError,
    DataDirUnusableError,
    ForeignDataDirError,
)
from gpuledger.local.servers.files import write_private
from gpuledger.local.servers.lock import DirectoryLock

FORMAT = 1
UP = "up"
STREAMS = "jetstream/jetstream/*/streams/*"
"""Where the NATS server of a data directory keeps its streams, by account; the only ones are the ledger's."""

_FOREIGN_SHOWN = 3
# Files that a file system, a desktop or an interrupted first start may leave there.
_IGNORED_FILES = frozenset({"lock", "lost+found", ".DS_Store", ".gpuledger.json.tmp"})


@dataclass(frozen=True, slots=True)
class ServerUrls:
    """The servers' addresses. Both hold passwords: show them only to the owner of the directory."""

    nats_url: str = field(repr=False)
    database_url: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class RunningServers:
    """The process whose servers run in a directory: its `gpuledger` command, pid, and since when (RFC 3339)."""

    command: str
    pid: int
    started_at: str
    endpoints: ServerUrls


class DataDir:
    """The layout of one data directory."""

    def __init__(self, path: Path) -> None:
        self.path = path.expanduser().resolve()
        self.nats = self.path / "nats"
        self.postgres = self.path / "postgres"
        self.run_file = self.path / "run.json"
        self.marker = self.path / "gpuledger.json"
        self.lock = DirectoryLock(self.path / "lock")

    def check(self) -> None:
        """Create the directory if there is none, and refuse one that belongs to somebody else.

        Raises:
            DataDirUnusableError: it is a file, or cannot be created or read.
            ForeignDataDirError: it holds files and lacks gpuledger's mark.
            DataDirFormatError: a newer gpuledger wrote it, or the mark is damaged.
        """
        try:
            self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
            names = sorted(entry.name for entry in self.path.iterdir())
        except OSError as error:
            raise self._unusable(error) from error
        if self.marker.name in names:
            self._check_format()
        elif foreign := [name for name in names if name not in _IGNORED_FILES]:
            raise self._foreign(foreign)

    def mark(self) -> None:
        """Mark the directory as gpuledger's; call it only under its lock."""
        if not self.marker.exists():
            self._write(self.marker, {"format": FORMAT})

    def has_ledger(self) -> bool:
        """Whether a ledger was ever made here, or is being made: its NATS server keeps a stream, or `up` runs."""
        running = self.running()
        return any(self.nats.glob(STREAMS)) or (running is not None and running.command == UP)

    def running(self) -> RunningServers | None:
        """The process whose servers run here; None if nobody holds the directory or they are still starting."""
        if not self.lock.held():
            return None
        import psutil  # noqa: PLC0415 - commands ask of directories in which nothing runs

        with suppress(OSError, ValueError, TypeError, KeyError):
            content = json.loads(self.run_file.read_text(encoding="utf-8"))
            running = RunningServers(**(content | {"endpoints": ServerUrls(**content["endpoints"])}))
            holder = self.lock.holder()
            # The file of a crashed process says nothing about the one that is just taking its place.
            if holder is not None and holder.pid == running.pid and psutil.pid_exists(running.pid):
                return running
        return None

    def publish(self, running: RunningServers) -> None:
        """Write the file by which other processes find the servers."""
        self._write(self.run_file, asdict(running))

    def withdraw(self) -> None:
        """Undo `publish`; does nothing if nothing was published."""
        self.run_file.unlink(missing_ok=True)

    def busy(self) -> DataDirBusyError:
        """The error that names the process holding the directory."""
        holder = self.lock.holder()
        if holder is None:
            who, end = "another gpuledger command", "Wait until it ends"
        else:
            who = f"`gpuledger {holder.command}` (pid {holder.pid}, since {holder.since.partition('T')[2]})"
            stop = f"Stop it with Ctrl-C or `kill {holder.pid}`"
            end = stop if holder.command == UP else f"Wait until it ends, {stop[0].lower()}{stop[1:]}"
        return DataDirBusyError(f"Data directory {self.path} is in use by {who}. {end}, or choose another --data-dir.")

    def _write(self, file: Path, content: dict[str, object]) -> None:
        try:
            write_private(file, json.dumps(content, indent=2) + "\n")
        except OSError as error:
            raise self._unusable(error) from error

    def _check_format(self) -> None:
        try:
            found = json.loads(self.marker.read_text(encoding="utf-8"))["format"]
        except OSError as error:
            raise self._unusable(error) from error
        except (ValueError, KeyError, TypeError) as error:
            raise DataDirFormatError(
                f"{self.marker} is damaged. Restore it from a backup, or choose another --data-dir."
            ) from error
        if found != FORMAT:
            raise DataDirFormatError(
                f"Data directory {self.path} has format {found}, and this gpuledger knows format {FORMAT}. "
                "Use the gpuledger that wrote it, or choose another --data-dir."
            )

    def _foreign(self, names: list[str]) -> ForeignDataDirError:
        shown = ", ".join(names[:_FOREIGN_SHOWN]) + (", ..." if len(names) > _FOREIGN_SHOWN else "")
        return ForeignDataDirError(
            f"Directory {self.path} is not a data directory of gpuledger: it holds {shown}. "
            "Choose an empty or new --data-dir."
        )

    def _unusable(self, error: OSError) -> DataDirUnusableError:
        return DataDirUnusableError(
            f"Data directory {self.path} cannot be used ({error.strerror}). "
            "Choose a --data-dir that is a directory you can write to."
        )


def read_running(path: Path) -> RunningServers | None:
    """The process whose servers run in a data directory, and their addresses; None if there is none."""
    return DataDir(path).running()
