"""How many connections the webhooks' server bears, and how long it waits for what a client does not say."""

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

import aiohttp
import pytest
from prometheus_client import REGISTRY

from gpuledger.edge.admission.server import WebhookServer
from gpuledger.edge.admission.settings import AdmissionSettings
from gpuledger.runtime.telemetry_http import parse_address
from support.waiting import eventually

DEADLINE_S = 60.0
NEVER_S = 600.0
NO_CERTIFICATE = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
"""Enough for clients that begin no handshake."""

Connection = tuple[asyncio.StreamReader, asyncio.StreamWriter]


@asynccontextmanager
async def server(context: ssl.SSLContext | None = None, **bounds: Any) -> AsyncIterator[str]:
    bounds = {"idle_timeout_s": NEVER_S, "handshake_timeout_s": NEVER_S, "shutdown_timeout_s": 0.1} | bounds
    settings = AdmissionSettings(listen="127.0.0.1:0", **bounds)
    async with WebhookServer(lambda _: None, settings).serving(context) as url:
        yield url


@asynccontextmanager
async def connected(url: str) -> AsyncIterator[Connection]:
    reader, writer = await asyncio.open_connection(*parse_address(url.partition("//")[2]))
    try:
        yield reader, writer
    finally:
        writer.close()
        with suppress(ConnectionError):
            await writer.wait_closed()


async def is_hung_up_on(connection: Connection) -> bool:
    """Whether the server ends a connection, sooner or later, without a word."""
    async with asyncio.timeout(DEADLINE_S):
        try:
            return await connection[0].read() == b""
        except ConnectionResetError:
            return True


def refused() -> float:
    return REGISTRY.get_sample_value("gpuledger_admission_connections_refused_total") or 0.0


@pytest.mark.parametrize("context", [None, NO_CERTIFICATE], ids=["idle", "no handshake"])
async def test_connections_beyond_the_bound_are_closed_and_counted(context: ssl.SSLContext | None) -> None:
    before = refused()
    async with server(context, connections_max=2) as url, connected(url), connected(url), connected(url) as third:
        assert await is_hung_up_on(third)
        assert refused() == before + 1


async def test_a_closed_connection_makes_room() -> None:
    async def is_served() -> bool:
        try:
            async with aiohttp.ClientSession(url) as session, session.get("/") as response:
                return response.status == 404
        except aiohttp.ClientConnectionError:
            return False

    async with server(connections_max=1) as url:
        async with connected(url):
            assert not await is_served()
        await eventually(is_served)


@pytest.mark.parametrize("sent", [b"", b"POST /validate HTTP/1.1\r\nHost: x\r\n"], ids=["nothing", "half a head"])
async def test_a_connection_without_a_whole_request_is_closed(sent: bytes) -> None:
    async with server(idle_timeout_s=0.05) as url, connected(url) as connection:
        connection[1].write(sent)
        assert await is_hung_up_on(connection)


async def test_a_connection_without_a_handshake_is_closed() -> None:
    async with server(NO_CERTIFICATE, handshake_timeout_s=0.05) as url, connected(url) as connection:
        assert await is_hung_up_on(connection)
