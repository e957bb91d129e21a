"""Stands between a client and an API server: remembers requests, and fails on command.

So outages and refusals are the same for every kind of server. It serves plain HTTP and adds the administrator's
credentials on the way. It keeps no answers, and streams watches as they come.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

import aiohttp
from aiohttp import web
from yarl import URL

from gpuledger.local.kubeapi.kubeconfig import kubeconfig, write_kubeconfig
from gpuledger.local.kubeapi.listening import listening
from support.kube_http import session_of
from support.kube_server import HOST, KubeServer
from support.ports import free_ports
from support.scripted_api import Answer

HOP_BY_HOP = frozenset({"connection", "keep-alive", "te", "trailer", "transfer-encoding", "upgrade", "host", "date"})
SHUTDOWN_S = 0.1
WRITING = frozenset({"POST", "PUT", "PATCH", "DELETE"})
ANY_SIZE = 0
AS_IT_IS: dict[str, Any] = {"auto_decompress": False, "skip_auto_headers": ("Accept", "Accept-Encoding", "User-Agent")}


Fault = Callable[[web.Request], Awaitable[web.StreamResponse | None]]
"""What is answered instead of the server; None lets the request pass."""


class ProxiedRequest(NamedTuple):
    """A request that arrived."""

    method: str
    path: str
    query: str

    @property
    def writes(self) -> bool:
        """Whether it would change something."""
        return self.method in WRITING


class KubeProxy:
    """One address before one server at a time.

    `requests` has every request in order; clear it to count anew. While `fault` is set it answers instead of
    the server (`scripted_api.refuse`, or `hang` and `drop` of this module, narrowed by `only`).
    """

    def __init__(self, server: KubeServer, directory: Path) -> None:
        (self._port,) = free_ports(1)
        self.url = f"http://{HOST}:{self._port}"
        self.kubeconfig = directory / "proxy" / "kubeconfig"
        self.requests: list[ProxiedRequest] = []
        self.fault: Fault | None = None
        self._server = server
        self._serving = AsyncExitStack()
        write_kubeconfig(self.kubeconfig, kubeconfig(self.url, None))

    async def back(self) -> None:
        """Accept connections."""
        self._upstream = await self._serving.enter_async_context(session_of(self._server, **AS_IT_IS))
        app = web.Application(client_max_size=ANY_SIZE)
        app.router.add_route("*", "/{path:.*}", self._answer)
        runner = web.AppRunner(app, shutdown_timeout=SHUTDOWN_S, access_log=None, handler_cancellation=True)
        self._serving.push_async_callback(runner.cleanup)
        await runner.setup()
        await self._serving.enter_async_context(listening(runner, HOST, self._port))

    async def away(self) -> None:
        """Refuse connections, and break off those that are open. The server runs on."""
        await self._serving.aclose()

    async def lead_to(self, server: KubeServer) -> None:
        """From now on be the address of another server."""
        await self.away()
        self._server = server
        await self.back()

    @property
    def written(self) -> list[ProxiedRequest]:
        """What would have changed something."""
        return [one for one in self.requests if one.writes]

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        path, _, query = request.raw_path.partition("?")
        self.requests.append(ProxiedRequest(request.method, path, query))
        if self.fault is not None and (failed := await self.fault(request)) is not None:
            return failed
        try:
            return await self._passed_on(request)
        except aiohttp.ClientError:
            return await drop(request)

    async def _passed_on(self, request: web.Request) -> web.StreamResponse:
        url = URL(self._server.url + request.raw_path, encoded=True)
        headers = [(name, value) for name, value in request.headers.items() if name.lower() not in HOP_BY_HOP]
        body = await request.read() if request.can_read_body else None
        async with self._upstream.request(
            request.method, url, headers=headers, data=body, allow_redirects=False
        ) as answer:
            kept = [(name, value) for name, value in answer.headers.items() if name.lower() not in HOP_BY_HOP]
            response = web.StreamResponse(status=answer.status, reason=answer.reason)
            response.headers.extend(kept)
            await response.prepare(request)
            async for chunk in answer.content.iter_any():
                await response.write(chunk)
            await response.write_eof()
            return response


@asynccontextmanager
async def kube_proxy(server: KubeServer, directory: Path) -> AsyncIterator[KubeProxy]:
    """A proxy before a server, until the block ends."""
    proxy = KubeProxy(server, directory)
    try:
        await proxy.back()
        yield proxy
    finally:
        await proxy.away()


def only(part: str, fault: Answer) -> Fault:
    """A fault of those requests whose path has this part."""

    async def answer(request: web.Request) -> web.StreamResponse | None:
        return await fault(request) if part in request.path else None

    return answer


async def drop(request: web.Request) -> web.StreamResponse:
    """Break the connection off without an answer."""
    if request.transport is not None:
        request.transport.abort()
    return web.Response()


async def hang(_request: web.Request) -> web.StreamResponse:
    """Never answer."""
    await asyncio.Event().wait()
    raise AssertionError("nobody wakes it")
