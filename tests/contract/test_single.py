"""What is asked of the server once and of no stream's readers: lists of streams."""

import asyncio

import pytest
from nats.js.api import StreamInfo

from gpuledger.ledger import single
from gpuledger.ledger.connect import Connection, connected
from gpuledger.ledger.single import all_streams
from support.ledgers import DEADLINE_S


async def test_a_list_of_streams_ends_though_another_one_is_made_meanwhile(
    clean_nats_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server lists by name: the new one comes first, and moves the other one to the next page."""
    really = single._page

    async def made_meanwhile(connection: Connection, offset: int) -> list[StreamInfo]:
        page = await really(connection, offset)
        if offset == 0:
            await connection.jetstream.add_stream(name="A", subjects=["a"])
        return page

    monkeypatch.setattr(single, "_page", made_meanwhile)
    async with connected(clean_nats_url, name="test") as connection:
        await connection.jetstream.add_stream(name="B", subjects=["b"])
        async with asyncio.timeout(DEADLINE_S):
            assert "B" in await all_streams(connection)
