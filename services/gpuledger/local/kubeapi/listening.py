"""Listens for HTTP so that no connection stays open when it ends, however many clients connect again meanwhile."""

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from aiohttp import web

TURNS_OF_ACCEPTING = 3
"""The turns of the event loop after which an accepted connection has its handler."""


@asynccontextmanager
async def listening(
    runner: web.AppRunner, host: str, port: int, tls: ssl.SSLContext | None = None
) -> AsyncIterator[int]:
    """Listen until the block ends; gives the port.

    A connection that asyncio has accepted but not yet handed over would never be closed, so the end waits for these.
    """
    loop = asyncio.get_running_loop()
    assert runner.server is not None, "the runner is set up"
    server = await loop.create_server(runner.server, host, port, ssl=tls)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        for listener in server.sockets:
            loop.remove_reader(listener.fileno())
        for _ in range(TURNS_OF_ACCEPTING):
            await asyncio.sleep(0)
        server.close()
