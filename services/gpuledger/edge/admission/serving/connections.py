"""Accepts connections, and no more than a number at once: who comes beyond is hung up on, and counted.

A connection counts from its first byte on, before its TLS handshake, which costs most and is the easiest to leave
unfinished. It must never wait for one client before it accepts the next.
"""

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing, suppress

import structlog
from aiohttp import web

from gpuledger.edge.admission.metrics import CONNECTIONS_REFUSED
from gpuledger.edge.admission.settings import AdmissionSettings
from gpuledger.runtime.tasks import end
from gpuledger.runtime.telemetry_http import ListenError

BACKLOG = 128
"""Connections that the system keeps until they are accepted."""

ACCEPT_PAUSE_S = 1.0
"""How long nobody is accepted after the system could not, as where there are no file descriptors left."""

log = structlog.get_logger("gpuledger.admission")


@asynccontextmanager
async def listening(
    server: web.Server, host: str, port: int, context: ssl.SSLContext | None, settings: AdmissionSettings
) -> AsyncIterator[tuple[str, int]]:
    """Lead connections to the server for the length of the block; gives the address, whose port may have been 0.

    Raises:
        ListenError: nobody can listen there.
    """
    with closing(_bound(host, port)) as door:
        accepting = asyncio.create_task(_Accepting(server, door, context, settings).run())
        try:
            name, number = door.getsockname()[:2]
            yield name, number
        finally:
            await end([accepting])


def _bound(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        door = socket.create_server((host, port), family=family, backlog=BACKLOG)
    except OSError as error:
        raise ListenError(f"Cannot listen on {host}:{port}: {error.strerror}. Choose another address.") from error
    door.setblocking(False)
    return door


class _Accepting:
    """Who is let in, and who is still shaking hands."""

    def __init__(
        self, server: web.Server, door: socket.socket, context: ssl.SSLContext | None, settings: AdmissionSettings
    ) -> None:
        self._server = server
        self._door = door
        self._context = context
        self._settings = settings
        self._greeted: set[asyncio.Task[None]] = set()

    async def run(self) -> None:
        """Accept for ever."""
        try:
            while True:
                try:
                    client, _ = await asyncio.get_running_loop().sock_accept(self._door)
                except ConnectionAbortedError:
                    continue
                except OSError as error:
                    log.warning("admission.not-accepting", reason=str(error), retry_s=ACCEPT_PAUSE_S)
                    await asyncio.sleep(ACCEPT_PAUSE_S)
                else:
                    self._let_in(client)
        finally:
            await end(self._greeted)

    def _let_in(self, client: socket.socket) -> None:
        if len(self._server.connections) + len(self._greeted) >= self._settings.connections_max:
            CONNECTIONS_REFUSED.inc()
            client.close()
            return
        greeted = asyncio.create_task(self._greet(client))
        self._greeted.add(greeted)
        greeted.add_done_callback(self._greeted.discard)

    async def _greet(self, client: socket.socket) -> None:
        """Shake hands; from then on the connection is the server's. Who does it badly is hung up on."""
        timeout_s = self._settings.handshake_timeout_s if self._context else None
        with suppress(OSError):
            await asyncio.get_running_loop().connect_accepted_socket(
                self._server, client, ssl=self._context, ssl_handshake_timeout=timeout_s
            )
