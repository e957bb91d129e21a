"""Ledgers for tests: one to fill, and what is handy to fill it with."""

import asyncio
from collections.abc import AsyncIterator, Iterable
from contextlib import AbstractAsyncContextManager, asynccontextmanager

from gpuledger.events.subjects import ALL
from gpuledger.ledger.api import Ledger, Message, Outgoing, Reader
from gpuledger.ledger.jetstream import JetStreamLedger, connect_ledger
from gpuledger.ledger.memory import MemoryLedger

DEADLINE_S = 60.0
HEARTBEAT_S = 0.1
"""The shortest that the server allows."""


@asynccontextmanager
async def memory_ledger() -> AsyncIterator[MemoryLedger]:
    """An empty ledger in memory."""
    yield MemoryLedger()


def jetstream_ledger(url: str, **settings: float | None) -> AbstractAsyncContextManager[JetStreamLedger]:
    """The ledger of a NATS server, quick to notice that it is gone."""
    return connect_ledger(url, name="test", heartbeat_s=HEARTBEAT_S, **settings)  # type: ignore[arg-type]


def outgoing(number: int, *, aggregate: str = "device", aggregate_id: str = "d", id_prefix: str = "e") -> Outgoing:
    """A message that carries its number."""
    subject = f"ledger.svc.test.{aggregate}.{aggregate_id}.happened"
    return Outgoing(subject, f"{id_prefix}-{number}", str(number).encode())


def numbers_of(messages: Iterable[Message]) -> list[int]:
    """The numbers that `outgoing` put in."""
    return [int(message.data) for message in messages]


async def everything(
    ledger: Ledger, after: int = 0, until: int | None = None, subject_filter: str = ALL
) -> list[Message]:
    """The history as one list."""
    return [message async for batch in ledger.history(after, until, subject_filter) for message in batch]


async def read_count(reader: Reader, count: int) -> list[Message]:
    """The reader's next `count` messages, at least."""
    messages: list[Message] = []
    async with asyncio.timeout(DEADLINE_S):
        while len(messages) < count:
            messages += await reader.next_batch()
    return messages
