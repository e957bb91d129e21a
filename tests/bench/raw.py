"""The ceilings: nats-py used by hand, without anything that makes a log of messages a ledger of events."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from time import perf_counter

import nats
from nats.aio.client import Client
from nats.aio.msg import Msg

from gpuledger.events.subjects import ALL
from gpuledger.ledger.api import Outgoing

PENDING_MAX = 4_000
"""The library's own default for publishing asynchronously."""


@asynccontextmanager
async def client(url: str) -> AsyncIterator[Client]:
    """A connection of one's own."""
    connection = await nats.connect(url)
    try:
        yield connection
    finally:
        await connection.close()


async def publish(url: str, messages: Sequence[Outgoing]) -> float:
    """Messages per second of `publish_async`, up to the last acknowledgement."""
    async with client(url) as connection:
        jetstream = connection.jetstream(publish_async_max_pending=PENDING_MAX)
        began = perf_counter()
        acknowledgements = [
            await jetstream.publish_async(message.subject, message.data, headers={"Nats-Msg-Id": message.id})
            for message in messages
        ]
        await asyncio.gather(*acknowledgements)
        return len(messages) / (perf_counter() - began)


async def read(url: str, count: int) -> float:
    """Messages per second of an ordered push consumer whose callback only counts."""
    left, done = count, asyncio.Event()

    async def on_message(_message: Msg) -> None:
        nonlocal left
        left -= 1
        if left == 0:
            done.set()

    async with client(url) as connection:
        began = perf_counter()
        await connection.jetstream().subscribe(ALL, cb=on_message, ordered_consumer=True)
        await done.wait()
        return count / (perf_counter() - began)
