"""An API server with scripted answers, for failures that a working one does not show."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import orjson
from aiohttp import web
from kubernetes.aio.client.configuration import Configuration

from gpuledger.edge.kube.client import ClientSettings, KubeClient

Answer = Callable[[web.Request], Awaitable[web.StreamResponse]]

OVER = "the script is over"


class ScriptedApi:
    """Gives the answers one after another to any request, and remembers the requests."""

    def __init__(self, *answers: Answer) -> None:
        self.requests: list[web.Request] = []
        self._answers = list(answers)

    @asynccontextmanager
    async def serving(self, **settings: Any) -> AsyncIterator[KubeClient]:
        """Serve on a free port; gives a client of it."""
        app = web.Application()
        app.router.add_route("*", "/{path:.*}", self._answer)
        runner = web.AppRunner(app, shutdown_timeout=0.1, access_log=None, handler_cancellation=True)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        configuration = Configuration(host=f"http://127.0.0.1:{runner.addresses[0][1]}")
        client = KubeClient(configuration, ClientSettings(**settings))
        try:
            yield client
        finally:
            await client.close()
            await runner.cleanup()

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        await request.read()
        self.requests.append(request)
        answer = self._answers.pop(0) if self._answers else refuse(503, message=OVER)
        return await answer(request)


def answer(body: Any, status: int = 200, **headers: str) -> Answer:
    """An object, or text where it is a string."""

    async def give(_request: web.Request) -> web.Response:
        raw = body.encode() if isinstance(body, str) else orjson.dumps(body)
        return web.Response(body=raw, status=status, headers=headers)

    return give


def refuse(
    code: int, reason: str = "", message: str = "no", headers: dict[str, str] | None = None, **more: Any
) -> Answer:
    """A `Status`."""
    return answer(failure(code, reason, message, **more), code, **(headers or {}))


def failure(code: int, reason: str = "", message: str = "no", **details: Any) -> dict[str, Any]:
    """The body of a refusal."""
    body = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "reason": reason}
    return body | {"message": message, "details": details}


def listing(*objects: dict[str, Any], version: str, more: str = "") -> Answer:
    """A list, or a page of one."""
    return answer({"metadata": {"resourceVersion": version, "continue": more}, "items": list(objects)})


def node(name: str, version: str = "1") -> dict[str, Any]:
    """A Node, as far as tests need it."""
    return {"metadata": {"name": name, "resourceVersion": version}}


def event(kind: str, obj: dict[str, Any]) -> bytes:
    """A line of a watch."""
    return orjson.dumps({"type": kind, "object": obj}) + b"\n"


def stream(*chunks: bytes, broken: bool = False, silent: bool = False) -> Answer:
    """A watch that sends these chunks, and then ends, breaks off, or falls silent."""

    async def give(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        for chunk in chunks:
            await response.write(chunk)
            await asyncio.sleep(0)
        if silent:
            await asyncio.Event().wait()
        if broken and request.transport:
            request.transport.close()
        return response

    return give
