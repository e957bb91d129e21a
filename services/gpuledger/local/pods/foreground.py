"""Runs a server as the one process of a container: its output is the container's log, its end is the container's end.

Secrets that are renewed in their folder take effect without a restart where the server can reload them. It must never
restart a server that ended by itself: that is the kubelet's, which counts it and waits longer each time.

As a container's first process it inherits what its server leaves behind. Who waits for such a process to be gone, as
Patroni does for a PostgreSQL server, would wait for ever if it stayed as a zombie.
"""

import asyncio
import hashlib
import os
import signal
from abc import ABC, abstractmethod
from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from pathlib import Path
from typing import Final

import structlog

from gpuledger.local.servers.errors import ServerStartError
from gpuledger.local.servers.privileges import Launch
from gpuledger.runtime.tasks import end

CHECK_INTERVAL_S: Final = 5.0
"""How often the folder of the Secret is read again; the kubelet renews it within about a minute."""

REAP_INTERVAL_S: Final = 0.5
"""How often the first process of a container looks for inherited processes that have ended."""

FIRST: Final = 1
"""The number of a container's first process."""

log = structlog.get_logger("gpuledger.serve")


class PodServer(ABC):
    """What a server needs to run in a pod."""

    name: str
    stop_signal: signal.Signals

    def __init__(self, secret: Path) -> None:
        self.secret = secret

    @abstractmethod
    def prepare(self) -> Launch:
        """Put everything that the server needs into its folders; returns the user that it runs as."""

    @abstractmethod
    def command(self) -> Sequence[str]:
        """The command line of the server."""

    def beside(self) -> AbstractAsyncContextManager[None]:
        """What this process does while the server runs."""
        return nullcontext()

    @abstractmethod
    def renew(self) -> bool:
        """Take over what was renewed in the Secret; returns whether the server has to be started again for it."""


async def serve(server: PodServer, *, check_interval_s: float = CHECK_INTERVAL_S) -> None:
    """Run the server until it ends, which is an error, or until cancelled, which stops it in an orderly way.

    Raises:
        EmbeddedError: it could not start, or ended by itself.
    """
    while True:
        seen = fingerprint(server.secret)
        launch = await asyncio.to_thread(server.prepare)
        async with server.beside():
            await _run(server, launch, seen, check_interval_s)


async def _run(server: PodServer, launch: Launch, seen: str, check_interval_s: float) -> None:
    """Run the server once; returns when it has to be started again."""
    child = await asyncio.create_subprocess_exec(
        *launch.prefix,
        *server.command(),
        cwd="/",
        user=launch.user,
        group=launch.group,
        extra_groups=launch.extra_groups,
        env=launch.environment,
    )
    reaping = asyncio.create_task(_reap(child.pid))
    try:
        await _until_restart(server, child, seen, check_interval_s)
    finally:
        await _stop(child, server.stop_signal)
        await end([reaping])


async def _until_restart(
    server: PodServer, child: asyncio.subprocess.Process, seen: str, check_interval_s: float
) -> None:
    """Return when the server has to be started again with other secrets; reload it where that is enough."""
    ended = asyncio.create_task(child.wait())
    try:
        while not (await asyncio.wait([ended], timeout=check_interval_s))[0]:
            now = fingerprint(server.secret)
            if now == seen:
                continue
            seen = now
            log.info("serve.secret-renewed", server=server.name)
            if await asyncio.to_thread(server.renew):
                return
            child.send_signal(signal.SIGHUP)
    finally:
        ended.cancel()
    raise ServerStartError(f"{server.name} ended by itself with code {child.returncode}. Its log above says why.")


async def _stop(child: asyncio.subprocess.Process, stop_signal: signal.Signals) -> None:
    if child.returncode is None:
        child.send_signal(stop_signal)
        await child.wait()  # the kubelet bounds it by the pod's terminationGracePeriodSeconds


async def _reap(own: int) -> None:
    while os.getpid() == FIRST:
        reap_orphans(own)
        await asyncio.sleep(REAP_INTERVAL_S)


def reap_orphans(own: int) -> int:
    """Let ended processes go, all but the server's own, for which somebody else waits; returns how many they were."""
    reaped = 0
    try:
        while found := os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT):
            if found.si_pid == own:
                break
            os.waitpid(found.si_pid, 0)
            reaped += 1
    except ChildProcessError:
        pass  # there are none
    return reaped


def fingerprint(folder: Path) -> str:
    """A digest of all files of a Secret's folder; one that is being replaced has that of no file."""
    digest = hashlib.sha256()
    for path in sorted(folder.iterdir()):
        if path.is_file():
            digest.update(path.name.encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()
