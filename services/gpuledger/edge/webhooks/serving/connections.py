"""Accepts connections, up to a maximum; it closes and counts those beyond.

A connection counts from its first byte, before its TLS handshake, which is the most expensive part and the easiest to
leave unfinished. Accepting must never wait for one client before the next.
"""

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing, suppress

import structlog
from aiohttp import web
from prometheus_client import Counter

from gpuledger.edge.webhooks.settings import ServingSettings
from gpuledger.runtime.tasks import end
from gpuledger.runtime.telemetry_http import ListenError, parse_address

BACKLOG = 128
"""Connections that the system keeps until they are accepted."""

ACCEPT_PAUSE_S = 1.0
"""How long the server waits after the system could not accept, for example for lack of file descriptors."""

log = structlog.get_logger("gpuledger.webhooks")


@asynccontextmanager
async def accepting(
    server: web.Server, context: ssl.SSLContext | None, settings: ServingSettings, refused: Counter
) -> AsyncIterator[tuple[str, int]]:
    """Give connections to the server for the length of the block; gives the address, whose port may have been 0.

    `refused` counts those that were closed because there were too many.

    Raises:
        ListenError: the address cannot be listened on.
    """
    with closing(_listener(*parse_address(settings.listen))) as listener:
        running = asyncio.create_task(_Acceptor(server, listener, context, settings, refused).run())
        try:
            name, number = listener.getsockname()[:2]
            yield name, number
        finally:
            await end([running])


def _listener(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        listener = socket.create_server((host, port), family=family, backlog=BACKLOG)
    except OSError as error:
        raise ListenError(f"Cannot listen on {host}:{port}: {error.strerror}. Choose another address.") from error
    listener.setblocking(False)
    return listener


class _Acceptor:
    """Accepts connections, and does their TLS handshakes side by side."""

    def __init__(
        self,
        server: web.Server,
        listener: socket.socket,
        context: ssl.SSLContext | None,
        settings: ServingSettings,
        refused: Counter,
    ) -> None:
        self._server = server
        self._listener = listener
        self._context = context
        self._settings = settings
        self._refused = refused
        self._handshakes: set[asyncio.Task[None]] = set()

    async def run(self) -> None:
        """Accept until cancelled."""
        try:
            while True:
                try:
                    client, _ = await asyncio.get_running_loop().sock_accept(self._listener)
                except ConnectionAbortedError:
                    continue
                except OSError as error:
                    log.warning("webhooks.not-accepting", reason=str(error), retry_s=ACCEPT_PAUSE_S)
                    await asyncio.sleep(ACCEPT_PAUSE_S)
                else:
                    self._admit(client)
        finally:
            await end(self._handshakes)

    def _admit(self, client: socket.socket) -> None:
        if len(self._server.connections) + len(self._handshakes) >= self._settings.connections_max:
            self._refused.inc()
            client.close()
            return
        handshake = asyncio.create_task(self._shake_hands(client))
        self._handshakes.add(handshake)
        handshake.add_done_callback(self._handshakes.discard)

    async def _shake_hands(self, client: socket.socket) -> None:
        """Do the TLS handshake; from then on the connection is the server's. A failed handshake closes it."""
        timeout_s = self._settings.handshake_timeout_s if self._context else None
        with suppress(OSError):
            await asyncio.get_running_loop().connect_accepted_socket(
                self._server, client, ssl=self._context, ssl_handshake_timeout=timeout_s
            )
