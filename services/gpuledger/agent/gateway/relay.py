"""The public socket: identifies who connects, and relays each connection to the gRPC server.

gRPC's server does not show who is at the other end of a unix socket. So connections are accepted here, and each is
relayed from a socket that is bound to a random abstract name, which the server shows as the peer's address. Whoever
connects to the server by another way has no such name. The relay must not read what it relays.
"""

import asyncio
import os
import socket
import stat
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

import structlog

from gpuledger.agent.errors import SocketError
from gpuledger.agent.gateway.decide import Peer, Share
from gpuledger.agent.kubelet.sockets import PATH_BYTES_MAX, FileIdentity, identity_of, remove
from gpuledger.runtime.clock import NewId
from gpuledger.runtime.tasks import end

CONNECTIONS_MAX: Final = 128
"""How many connections are open at a time; more are closed at once."""

CHUNK_BYTES: Final = 64 * 1024

IDENTIFY_TIMEOUT_S: Final = 5.0

SOCKET_MODE: Final = 0o666
"""Anybody may connect: who may report is decided by the peer and not by its user."""

log = structlog.get_logger("gpuledger.agent")

Identify = Callable[[socket.socket], Awaitable[Peer]]
"""Who is at the other end of a connection; raises OSError where it is gone."""


class Relay:
    """Relays connections from a socket's path to a server on an abstract address; `peers` has who they are of."""

    def __init__(
        self, path: Path, server: str, identify: Identify, shares_of: Callable[[Peer], Sequence[Share]], new_id: NewId
    ) -> None:
        self.peers: dict[str, Peer] = {}
        """The peers of open connections, by the address that the server shows."""
        self.refused = 0
        """How many connections were too many."""
        self._path = path
        self._server = server
        self._identify = identify
        self._shares_of = shares_of
        self._new_id = new_id
        self._listener: asyncio.Server | None = None
        self._own: FileIdentity | None = None
        self._connections: set[asyncio.Task[None]] = set()
        self._per_holder: Counter[object] = Counter()
        self._reason = ""

    async def ensure_listening(self) -> None:
        """Listen on the path, anew where the own socket is gone.

        Raises:
            SocketError: the path cannot be listened on, or is somebody else's.
        """
        if self._own is not None and identity_of(self._path) == self._own:
            return
        await self._stop_listening()
        bound = await self._bound()
        self._listener = await asyncio.start_unix_server(self._on_client, sock=bound, limit=CHUNK_BYTES)
        self._own = identity_of(self._path)
        log.info("health monitors can report", socket=str(self._path))

    async def close(self) -> None:
        """Close every connection, and remove the own socket.

        Raises:
            SocketError: it stays.
        """
        try:
            await self._stop_listening()
        finally:
            await end(self._connections)

    async def _stop_listening(self) -> None:
        listener, self._listener = self._listener, None
        own, self._own = self._own, None
        if listener is not None:
            listener.close()
        if own is not None and identity_of(self._path) == own:
            remove(self._path)

    async def _bound(self) -> socket.socket:
        """A socket bound to the path, in place of one that an agent left behind."""
        if len(os.fsencode(self._path)) > PATH_BYTES_MAX:
            raise SocketError(f"{self._path} is longer than the {PATH_BYTES_MAX} bytes of a socket's path.")
        await self._remove_leftover()
        bound = socket.socket(socket.AF_UNIX)
        try:
            bound.bind(str(self._path))
            self._path.chmod(SOCKET_MODE)
        except OSError as error:
            bound.close()
            raise SocketError(
                f"{self._path} cannot be listened on: {error.strerror}. Is its folder mounted and writable?"
            ) from error
        return bound

    async def _remove_leftover(self) -> None:
        """Remove a socket of this user's that nobody listens on.

        Raises:
            SocketError: something else is there.
        """
        try:
            found = self._path.lstat()
        except OSError:
            return  # nothing is there, or binding says why
        if not stat.S_ISSOCK(found.st_mode) or found.st_uid != os.geteuid():
            raise SocketError(f"{self._path} is there and no socket of this agent's; remove it, or name another path.")
        try:
            _, writer = await asyncio.open_unix_connection(self._path)
        except OSError:
            remove(self._path)
            return
        writer.close()
        raise SocketError(f"Another process listens on {self._path}; end it, or name another path.")

    def _on_client(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.create_task(self._on_connection(reader, writer))
        self._connections.add(task)
        task.add_done_callback(self._connections.discard)

    async def _on_connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            with suppress(OSError, TimeoutError):
                await self._serve(reader, writer)
        finally:
            writer.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if len(self._connections) > CONNECTIONS_MAX:
            self._refuse("too many are open")
            return
        async with asyncio.timeout(IDENTIFY_TIMEOUT_S):
            peer = await self._identify(writer.get_extra_info("socket"))
        shares = self._shares_of(peer)
        full = next((one.holder for one in shares if self._per_holder[one.holder] >= one.connections_max), None)
        if full is not None:
            self._refuse(f"too many are of {full}")
            return
        holders = Counter(one.holder for one in shares)
        self._per_holder += holders
        try:
            await self._relay(peer, reader, writer)
        finally:
            self._per_holder -= holders  # which forgets who has none left

    def _refuse(self, reason: str) -> None:
        self.refused += 1
        if reason != self._reason:
            log.warning("connections of health monitors are closed", reason=reason)
        self._reason = reason

    async def _relay(self, peer: Peer, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        name = f"gpuledger-peer-{self._new_id()}"
        address = f"unix-abstract:{name}"
        self.peers[address] = peer
        try:
            server_reader, server_writer = await self._connected(name)
            try:
                await _pump_both((reader, server_writer), (server_reader, writer))
            finally:
                server_writer.close()
        finally:
            del self.peers[address]

    async def _connected(self, name: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        client = socket.socket(socket.AF_UNIX)
        try:
            client.setblocking(False)
            client.bind(f"\0{name}")
            await asyncio.get_running_loop().sock_connect(client, f"\0{self._server}")
            return await asyncio.open_unix_connection(sock=client, limit=CHUNK_BYTES)
        except BaseException:
            client.close()
            raise


async def _pump_both(*ways: tuple[asyncio.StreamReader, asyncio.StreamWriter]) -> None:
    """Copy each reader to its writer until one of them ends."""
    tasks = [asyncio.create_task(_pump(reader, writer)) for reader, writer in ways]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        await end(tasks)


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(OSError):
        while data := await reader.read(CHUNK_BYTES):
            writer.write(data)
            await writer.drain()
