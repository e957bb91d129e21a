"""Ends TLS before PostgreSQL: the build of it in our wheel has none, and listens on a socket in its container alone.

Every byte of a session passes through here, decrypted on one side only. Nothing is let through without TLS but the
request to cancel a query, which carries a secret of its own and which clients send unencrypted. The front never reads
passwords: the server asks for them, by SCRAM.
"""

import asyncio
import socket
import ssl
import struct
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path
from typing import Final

import structlog

from gpuledger.db.engine import KEEPALIVE_COUNT, KEEPALIVE_IDLE_S, KEEPALIVE_INTERVAL_S, UNACKNOWLEDGED_MAX_S
from gpuledger.local.servers.errors import ServerStartError
from gpuledger.runtime.tasks import end

SESSIONS_MAX: Final = 256
"""More than the server lets in: what is beyond is closed at once."""

HELLO_MAX_S: Final = 10.0
"""How long a client may take to ask for TLS and to finish the handshake."""

CLOSE_MAX_S: Final = 2.0
"""How long the end of a session may take to reach a peer."""

ACCEPT_AGAIN_S: Final = 1.0
"""The pause after the system gave no socket for a client, as where too many files are open."""

CHUNK_BYTES: Final = 128 * 1024

_SSL_REQUEST: Final = 80877103
_GSS_REQUEST: Final = 80877104
_CANCEL_REQUEST: Final = 80877102
_REQUEST: Final = struct.Struct("!II")
_CANCEL_BYTES_MAX: Final = 268
"""The longest request to cancel: its head, a process, and a secret of at most 256 bytes."""

_PLAIN: Final = "no connection without TLS is accepted: set sslmode to require, or better verify-full"

log = structlog.get_logger("gpuledger.serve")


class TlsFront:
    """Listens for clients, and passes their sessions on to the server's socket."""

    def __init__(self, secret: Path, server_socket: Path, port: int, host: str = "0.0.0.0") -> None:  # noqa: S104
        self._secret = secret
        self._server_socket = server_socket
        self._address = (host, port)
        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._context.minimum_version = ssl.TLSVersion.TLSv1_2
        self._sessions: set[asyncio.Task[None]] = set()

    def load(self) -> None:
        """Show the certificate that the Secret has now; sessions that are open stay."""
        self._context.load_cert_chain(self._secret / "tls.crt", self._secret / "tls.key")

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[None]:
        """Listen until the block ends, which ends all sessions.

        Raises:
            ServerStartError: the port is taken.
        """
        self.load()
        try:
            listening = socket.create_server(self._address, backlog=SESSIONS_MAX)
        except OSError as error:
            raise ServerStartError(f"Nothing can listen on port {self._address[1]}: {error.strerror}.") from error
        listening.setblocking(False)
        accepting = asyncio.create_task(self._accept(listening))
        try:
            yield
        finally:
            await end([accepting])
            await end(self._sessions.copy())
            listening.close()

    async def _accept(self, listening: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                client, _ = await loop.sock_accept(listening)
            except OSError as error:
                log.warning("serve.not-accepted", reason=error.strerror, retry_s=ACCEPT_AGAIN_S)
                await asyncio.sleep(ACCEPT_AGAIN_S)
                continue
            if len(self._sessions) >= SESSIONS_MAX:
                client.close()
                continue
            session = asyncio.create_task(self._session(client))
            self._sessions.add(session)
            session.add_done_callback(self._sessions.discard)

    async def _session(self, client: socket.socket) -> None:
        with client, suppress(OSError, TimeoutError, asyncio.IncompleteReadError):
            client.setblocking(False)
            _give_up_vanished(client)
            async with asyncio.timeout(HELLO_MAX_S):
                first = await _hello(client)
            if first is None:
                return
            context = None if first else self._context
            async with AsyncExitStack() as stack:
                from_client, to_client = await stack.enter_async_context(_streams(client, context))
                server = socket.socket(socket.AF_UNIX)
                stack.enter_context(server)
                server.setblocking(False)
                await asyncio.get_running_loop().sock_connect(server, str(self._server_socket))
                from_server, to_server = await stack.enter_async_context(_streams(server, None))
                to_server.write(first)
                await _both_ways((from_client, to_server), (from_server, to_client))


async def _hello(client: socket.socket) -> bytes | None:
    """What to send to the server first: nothing once the client asked for TLS; None where the session ends here.

    It reads not one byte more than the request, so nothing that was sent in the clear gets into the encrypted session.
    """
    loop = asyncio.get_running_loop()
    request = await _exactly(client, _REQUEST.size)
    size, code = _REQUEST.unpack(request)
    if code == _GSS_REQUEST:
        await loop.sock_sendall(client, b"N")
        request = await _exactly(client, _REQUEST.size)
        size, code = _REQUEST.unpack(request)
    if code == _CANCEL_REQUEST and _REQUEST.size < size <= _CANCEL_BYTES_MAX:
        return request + await _exactly(client, size - _REQUEST.size)
    if code == _SSL_REQUEST:
        await loop.sock_sendall(client, b"S")
        return b""
    await loop.sock_sendall(client, _refusal(_PLAIN))
    return None


async def _exactly(client: socket.socket, size: int) -> bytes:
    received = b""
    while len(received) < size:
        part = await asyncio.get_running_loop().sock_recv(client, size - len(received))
        if not part:
            raise asyncio.IncompleteReadError(received, size)
        received += part
    return received


@asynccontextmanager
async def _streams(
    connected: socket.socket, context: ssl.SSLContext | None
) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    """A socket's streams; what was written is sent before they end, if the peer takes it in time."""
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader(limit=CHUNK_BYTES)
    protocol = asyncio.StreamReaderProtocol(reader)
    timeout_s = None if context is None else HELLO_MAX_S
    transport, _ = await loop.connect_accepted_socket(
        lambda: protocol, connected, ssl=context, ssl_handshake_timeout=timeout_s
    )
    writer = asyncio.StreamWriter(transport, protocol, reader, loop)
    try:
        yield reader, writer
    finally:
        writer.close()
        try:
            async with asyncio.timeout(CLOSE_MAX_S):
                await writer.wait_closed()
        except TimeoutError:
            transport.abort()
        except OSError:
            pass  # the peer has ended it, which is what this does


async def _both_ways(*ways: tuple[asyncio.StreamReader, asyncio.StreamWriter]) -> None:
    """Pass on what comes from either side, until one has ended."""
    tasks = [asyncio.create_task(_pass_on(reader, writer)) for reader, writer in ways]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        await end(tasks)
        for task in tasks:
            if not task.cancelled():
                task.exception()


async def _pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(CHUNK_BYTES):
        writer.write(data)
        await writer.drain()


def _give_up_vanished(client: socket.socket) -> None:
    """End a session whose machine is gone, so that the locks it held are free for others; as the engine asks of TCP."""
    client.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    client.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, KEEPALIVE_IDLE_S)
    client.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, KEEPALIVE_INTERVAL_S)
    client.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, KEEPALIVE_COUNT)
    client.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, UNACKNOWLEDGED_MAX_S * 1000)
    client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)


def _refusal(text: str) -> bytes:
    """An error as PostgreSQL words it: severity, code (invalid authorisation), message."""
    fields = b"".join(kind + value.encode() + b"\0" for kind, value in ((b"S", "FATAL"), (b"C", "28000"), (b"M", text)))
    return b"E" + struct.pack("!I", len(fields) + 5) + fields + b"\0"
