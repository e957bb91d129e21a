"""Ledgers for tests: one to fill, and what is handy to fill it with."""

import asyncio
import json
import os
import socket
from collections.abc import AsyncIterator, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import urlsplit

from gpuledger.events.subjects import ALL
from gpuledger.ledger import partition_streams
from gpuledger.ledger.api import Ledger, Message, Outgoing, Reader
from gpuledger.ledger.connect import connected
from gpuledger.ledger.errors import NoLedgerError
from gpuledger.ledger.generation_publish import StreamPublisher
from gpuledger.ledger.jetstream import JetStreamLedger, connect_ledger
from gpuledger.ledger.memory import MemoryLedger
from gpuledger.ledger.partitions import in_partition, partition_of
from gpuledger.ledger.publish import Publisher
from gpuledger.ledger.stream import open_current
from gpuledger.runtime.clock import random_id
from gpuledger.runtime.settings import ANONYMOUS, PARTITIONS, NatsIdentity

DEADLINE_S = 60.0
HEARTBEAT_S = 0.1
"""The shortest that the server allows."""

SEVERAL_PARTITIONS = 4
"""Of ledgers of tests about partitions."""


def run_partitions() -> int:
    """How many partitions the ledgers of this run have where a test does not say (see `--partitions` of pytest)."""
    return int(os.environ.get(PARTITIONS, "1"))


@asynccontextmanager
async def memory_ledger() -> AsyncIterator[MemoryLedger]:
    """An empty ledger in memory."""
    yield MemoryLedger()


@asynccontextmanager
async def jetstream_ledger(url: str, **settings: Any) -> AsyncIterator[JetStreamLedger]:
    """The ledger of a NATS server, made where there is none, and quick to notice that the server is gone."""
    async with new_ledger(url, heartbeat_s=HEARTBEAT_S, **settings) as ledger:
        yield ledger


@asynccontextmanager
async def new_ledger(url: str, partitions: int | None = None, **settings: Any) -> AsyncIterator[JetStreamLedger]:
    """The ledger of a NATS server, made where there is none; `partitions` as of `make_ledger`."""
    await make_ledger(url, settings.get("identity", ANONYMOUS), partitions)
    async with connect_ledger(url, **{"name": "test", **settings}) as ledger:
        yield ledger


def publisher_of(ledger: JetStreamLedger) -> Publisher:
    """What publishes single messages of a ledger of one partition."""
    publisher = ledger._publishing._publisher
    assert isinstance(publisher, StreamPublisher)
    return publisher._publisher.one_by_one


@asynccontextmanager
async def sequencing(url: str) -> AsyncIterator[None]:
    """The ledger is made where there is none; meanwhile what its partitions record comes into the log, as with `up`."""
    async with jetstream_ledger(url, puts_in_order=True) as ledger:
        if ledger.partitions > 1:
            yield
            return
    yield


def make_ledger_blocking(url: str) -> None:
    """`make_ledger`, also within an event loop."""
    with ThreadPoolExecutor(1) as thread:
        thread.submit(asyncio.run, make_ledger(url)).result()


async def make_ledger(url: str, identity: NatsIdentity = ANONYMOUS, partitions: int | None = None) -> None:
    """See to it that there is a ledger, as `gpuledger migrate` does; without `partitions` it has the run's number."""
    async with connected(url, name="test", timeout_s=DEADLINE_S, identity=identity) as connection:
        try:
            await open_current(connection)
        except NoLedgerError:
            await partition_streams.make_ledger(connection, random_id(), partitions=partitions or run_partitions())


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


def publish_raw(nats_url: str, subject: bytes, data: bytes, partitions: int | None = None) -> None:
    """Publish what no library of ours would, as whoever holds a connection can, into the log of such a subject.

    Without `partitions` the ledger has the run's number.
    """
    stored, partitions = subject.decode(errors="surrogateescape"), partitions or run_partitions()
    subject = in_partition(stored, partition_of(stored, partitions), partitions).encode(errors="surrogateescape")
    address = urlsplit(nats_url)
    words = {"verbose": False, "pedantic": False, "user": address.username, "pass": address.password}
    with socket.create_connection((address.hostname, address.port)) as connection:
        connection.recv(4096)
        publication = b"PUB %b %d\r\n%b\r\nPING\r\n" % (subject, len(data), data)
        connection.sendall(b"CONNECT %b\r\n%b" % (json.dumps(words).encode(), publication))
        connection.recv(4096)
