"""Listening ends with every connection closed, whichever step of being accepted one was at."""

import asyncio
import socket
from contextlib import suppress

import pytest
from aiohttp import web

from gpuledger.local.kubeapi.listening import TURNS_OF_ACCEPTING, listening

HOST = "127.0.0.1"
ANSWER_MAX_S = 10.0


@pytest.mark.parametrize("turns", range(2 * TURNS_OF_ACCEPTING))
async def test_a_connection_that_is_being_accepted_is_closed(turns: int) -> None:
    runner = web.AppRunner(web.Application(), shutdown_timeout=0.1)
    await runner.setup()
    with socket.socket() as client:
        async with listening(runner, HOST, 0) as port:
            client.connect((HOST, port))
            for _ in range(turns):
                await asyncio.sleep(0)
        await runner.cleanup()
        client.setblocking(False)
        async with asyncio.timeout(ANSWER_MAX_S):
            with suppress(ConnectionResetError):  # what was never accepted
                assert await asyncio.get_running_loop().sock_recv(client, 1) == b""
