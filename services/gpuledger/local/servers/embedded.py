"""Runs both servers in a data directory. It must never start servers beside others in one directory."""

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from gpuledger.local.servers.datadir import UP, DataDir, RunningServers, ServerUrls
from gpuledger.local.servers.lock import LockHolder
from gpuledger.local.servers.nats import NatsServer
from gpuledger.local.servers.postgres import PostgresServer
from gpuledger.local.servers.server import EmbeddedServer

PROBE_GRACE_S = 0.3
_LOCK_POLL_S = 0.05


@dataclass(frozen=True, slots=True)
class EmbeddedServers:
    """Both servers, running."""

    nats: NatsServer
    postgres: PostgresServer
    endpoints: ServerUrls


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
