"""The data directory of the embedded mode: its layout, its owner, and the servers that run in it.

    gpuledger.json   marks the directory as gpuledger's and names its format
    lock             held by the one process whose servers run in it
    run.json         their addresses, while they run (private: it holds passwords)
    nats/ postgres/  their data

It must never touch a directory that it did not create, nor start servers beside others in one directory.
"""

import asyncio
import json
import threading
from collections.abc import AsyncIterator, Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, suppress
from dataclasses import asdict, dataclass, field
from datetime import datetime
from pathlib import Path

import psutil

from gpuledger.local.servers.errors import (
    DataDirBusyError,
    DataDirFormatError,
    DataDirUnusableError,
    ForeignDataDirError,
)
from gpuledger.local.servers.files import write_private
from gpuledger.local.servers.lock import DirectoryLock, LockHolder
from gpuledger.local.servers.nats import NatsServer
from gpuledger.local.servers.postgres import PostgresServer
from gpuledger.local.servers.server import EmbeddedServer

FORMAT = 1
UP = "up"
STREAMS = "jetstream/jetstream/*/streams/*"
"""Where the NATS server of a data directory keeps its streams, by account; the only ones are the ledger's."""

PROBE_GRACE_S = 0.3
_LOCK_POLL_S = 0.05
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


@dataclass(frozen=True, slots=True)
class EmbeddedServers:
    """Both servers, running."""

    nats: NatsServer
    postgres: PostgresServer
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


@asynccontextmanager
async def embedded_servers(
    path: Path, *, command: str, now: datetime, wait_s: float = 0.0
) -> AsyncIterator[EmbeddedServers]:
    """Run both servers in a data directory for the length of the block.

    `command` is the command after `gpuledger`. It waits up to `wait_s` seconds for another holder, unless that is `up`.
    It stops the servers in an orderly way however the block ends, cancellation included; stopping blocks the event
    loop, because nothing may interrupt it.

    Raises:
        DataDirBusyError: another process uses the directory.
        DataDirError: it cannot be used for another reason.
        ServerStartError: a server did not come up.
        ServerBinaryMissingError: a server is not installed.
        PrivilegesError: PostgreSQL cannot run as root here.
    """
    directory = DataDir(path)
    directory.check()
    await _acquire(directory, LockHolder.ourselves(command, now), wait_s)
    try:
        directory.withdraw()
        directory.mark()
        async with _started(NatsServer(directory.nats), PostgresServer(directory.postgres)) as servers:
            directory.publish(_describe(servers.endpoints, LockHolder.ourselves(command, now)))
            yield servers
    finally:
        directory.withdraw()
        directory.lock.release()


async def _acquire(directory: DataDir, holder: LockHolder, wait_s: float) -> None:
    loop = asyncio.get_running_loop()
    begun = loop.time()
    while not directory.lock.acquire(holder):
        found = directory.lock.holder()
        # Even `up` gets a moment, because checking the lock takes it shared for an instant.
        limit_s = PROBE_GRACE_S if found is not None and found.command == UP else max(wait_s, PROBE_GRACE_S)
        if loop.time() - begun > limit_s:
            raise directory.busy()
        await asyncio.sleep(_LOCK_POLL_S)


@asynccontextmanager
async def _started(nats: NatsServer, postgres: PostgresServer) -> AsyncIterator[EmbeddedServers]:
    servers: tuple[EmbeddedServer, ...] = (nats, postgres)
    abort = threading.Event()
    # The threads that start the servers live until these are stopped, as `ServerProcess` requires.
    threads = ThreadPoolExecutor(len(servers), thread_name_prefix="embedded")
    loop = asyncio.get_running_loop()
    try:
        await asyncio.gather(*(loop.run_in_executor(threads, server.start, abort) for server in servers))
        yield EmbeddedServers(nats, postgres, ServerUrls(nats.url, postgres.url))
    finally:
        abort.set()
        _run_all(threads, [server.stop for server in servers])
        threads.shutdown(wait=True)


def _run_all(threads: ThreadPoolExecutor, calls: Iterable[Callable[[], None]]) -> None:
    """Run the calls side by side and wait for all of them; then raise the first failure."""
    futures = [threads.submit(call) for call in calls]
    for future in futures:
        future.exception()
    for future in futures:
        future.result()


def _describe(endpoints: ServerUrls, holder: LockHolder) -> RunningServers:
    return RunningServers(holder.command, holder.pid, holder.since, endpoints)
