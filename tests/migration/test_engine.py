"""Connections against a real server."""

import asyncio
import gc

import psycopg
import pytest

from gpuledger.db.engine import AsyncConnection, connect

TURNS_MAX = 100_000


async def test_cancelled_connecting_leaves_no_connection_open(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[AsyncConnection] = []
    plain = psycopg.AsyncConnection.execute

    async def noted(connection: AsyncConnection, query: str) -> object:
        opened.append(connection)
        return await plain(connection, query.encode())

    monkeypatch.setattr(psycopg.AsyncConnection, "execute", noted)
    for turns in range(3):
        trying = asyncio.create_task(_connect(database_url))
        for _ in range(TURNS_MAX):
            if len(opened) > turns:
                break
            await asyncio.sleep(0)
        for _ in range(turns):
            await asyncio.sleep(0)
        trying.cancel()
        with pytest.raises(asyncio.CancelledError):
            await trying
    gc.collect()
    assert [connection.closed for connection in opened] == [True] * 3


async def _connect(database_url: str) -> None:
    async with connect(database_url, application_name="stopped"):
        await asyncio.Event().wait()
