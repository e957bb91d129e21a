"""An HTTP server on this machine that takes CloudEvents, and answers as a test says."""

import ssl
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any, NamedTuple

import orjson
from aiohttp import web

from gpuledger.edge.kube.pki import Issued, certificate_pem, key_pem, new_authority, new_serving
from gpuledger.runtime.clock import system_clock

HOST = "127.0.0.1"
LIFE = timedelta(days=1)


class Received(NamedTuple):
    """A request that came in: its headers, and its events."""

    content_type: str
    authorization: str | None
    events: list[dict[str, Any]]


class Reply(NamedTuple):
    """What to answer."""

    status: int = 204
    headers: dict[str, str] = {}
    text: str = ""


@dataclass
class Receiver:
    """The server. `replies` are given first, in their order; then `decide` says what to answer."""

    url: str = ""
    requests: list[Received] = field(default_factory=list)
    replies: deque[Reply] = field(default_factory=deque)
    decide: Callable[[Received], Reply] = lambda _: Reply()
    before: Callable[[], Awaitable[None]] | None = None
    accepted: list[dict[str, Any]] = field(default_factory=list)

    @property
    def ids(self) -> list[str]:
        """The ids of the events that were accepted, in their order, repeats among them."""
        return [one["id"] for one in self.accepted]

    async def handle(self, request: web.Request) -> web.Response:
        """Take a request."""
        found = orjson.loads(await request.read())
        events = found if isinstance(found, list) else [found]
        received = Received(request.headers["Content-Type"], request.headers.get("Authorization"), events)
        self.requests.append(received)
        reply = self.replies.popleft() if self.replies else self.decide(received)
        if reply.status < 300:
            self.accepted += events
        if self.before is not None:
            await self.before()
        return web.Response(status=reply.status, headers=reply.headers, text=reply.text or None)


@asynccontextmanager
async def receiving(context: ssl.SSLContext | None = None, port: int = 0) -> AsyncIterator[Receiver]:
    """The server, for the length of the block."""
    receiver = Receiver()
    app = web.Application(client_max_size=64 * 1024 * 1024)
    app.router.add_post("/events", receiver.handle)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    try:
        await web.TCPSite(runner, HOST, port, ssl_context=context).start()
        bound = runner.addresses[0][1]
        receiver.url = f"{'https' if context else 'http'}://{HOST}:{bound}/events"
        yield receiver
    finally:
        await runner.cleanup()


class TlsFiles(NamedTuple):
    """An authority, and a certificate that it signed, as files."""

    ca: Path
    certificate: Path
    key: Path

    def server(self, *, asks_clients: bool = False) -> ssl.SSLContext:
        """The context of a server with them."""
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=self.ca)
        context.load_cert_chain(self.certificate, self.key)
        if asks_clients:
            context.verify_mode = ssl.CERT_REQUIRED
        return context


def tls_files(folder: Path, name: str = "receiver") -> TlsFiles:
    """A new authority and a certificate for this machine, in a folder."""
    now = system_clock()
    authority = new_authority(f"{name} authority", now, LIFE)
    issued: Issued = new_serving(name, [HOST], authority, now, LIFE, is_peer=True)
    files = TlsFiles(*(folder / f"{name}-{kind}" for kind in ("ca.crt", "tls.crt", "tls.key")))
    files.ca.write_bytes(certificate_pem(authority.certificate))
    files.certificate.write_bytes(certificate_pem(issued.certificate))
    files.key.write_bytes(key_pem(issued.key))
    return files
