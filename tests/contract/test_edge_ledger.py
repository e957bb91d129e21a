"""What an agent's connection to the ledger does, in memory and on NATS alike, and what real servers do to it."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager

import nats
import pytest
from nats.js import JetStreamContext

from gpuledger.events.position import Offset
from gpuledger.ledger.api import LedgerQueries, LedgerWriter, Outgoing
from gpuledger.ledger.connect import connected
from gpuledger.ledger.edge import EdgeLedger, connect_edge
from gpuledger.ledger.errors import LedgerUnavailableError
from gpuledger.ledger.jetstream import JetStreamLedger
from gpuledger.ledger.memory import MemoryLedger
from gpuledger.ledger.permissions import desired_devices_subject
from gpuledger.ledger.restoring import begin_generation
from gpuledger.ledger.stream import stream_config
from gpuledger.local.servers.nats import NatsServer
from support.edges import MemoryEdge
from support.ledgers import DEADLINE_S, everything, jetstream_ledger, numbers_of, outgoing

NODE = "gpu-01.example.com"
WANTED = desired_devices_subject(NODE)
SHORT_S = 0.5


def edge_of(url: str, **settings: float) -> AbstractAsyncContextManager[EdgeLedger]:
    return connect_edge(url, name="test", node=NODE, **settings)  # type: ignore[arg-type]


def orders_of(number: int, node: str = NODE) -> Outgoing:
    return Outgoing(desired_devices_subject(node), f"w-{node}-{number}", str(number).encode())


async def has_come(event: asyncio.Event) -> None:
    async with asyncio.timeout(DEADLINE_S):
        await event.wait()


@pytest.fixture
async def ledger(clean_nats_url: str) -> AsyncIterator[JetStreamLedger]:
    async with jetstream_ledger(clean_nats_url) as opened:
        yield opened


@pytest.fixture(params=["memory", "jetstream", "partitions"])
async def edge(request: pytest.FixtureRequest) -> AsyncIterator[MemoryEdge | EdgeLedger]:
    if request.param == "memory":
        yield MemoryEdge(MemoryLedger())
        return
    url = request.getfixturevalue("clean_nats_url")
    partitions = 4 if request.param == "partitions" else 1
    opening = jetstream_ledger(url, partitions=partitions, puts_in_order=True)
    async with opening, edge_of(url) as opened:
        yield opened


async def test_an_edge_ledger_serves_publishing_and_queries(edge: MemoryEdge | EdgeLedger) -> None:
    publishing: LedgerWriter = edge
    asking: LedgerQueries = edge
    assert publishing.generation == asking.generation == 1


async def test_nothing_is_newest_where_nothing_was_published(edge: MemoryEdge | EdgeLedger) -> None:
    await edge.publish(orders_of(1, "another"))
    assert await edge.newest(WANTED) is None


async def test_the_newest_is_the_last_of_its_subject(edge: MemoryEdge | EdgeLedger) -> None:
    await edge.publish_many([orders_of(1), orders_of(2), orders_of(3, "another")])
    newest = await edge.newest(WANTED)
    assert newest is not None
    assert (newest.subject, newest.data, newest.sequence) == (WANTED, b"2", 2)
    assert newest.recorded_ns > 0


async def test_what_is_published_has_its_order_and_counts_once(edge: MemoryEdge | EdgeLedger) -> None:
    events = [outgoing(number) for number in range(2_500)]
    assert [receipt.sequence for receipt in await edge.publish_many(events)] == list(range(1, 2_501))
    assert await edge.publish(events[7]) == (8, True)
    assert (await edge.publish(outgoing(9_999))).sequence == 2_501


async def test_a_poke_comes_with_each_event_of_the_subject(edge: MemoryEdge | EdgeLedger) -> None:
    poke = asyncio.Event()
    async with edge.notified(WANTED, poke.set):
        await edge.publish(orders_of(1, "another"))
        assert not poke.is_set()
        for number in (1, 2):
            await edge.publish(orders_of(number))
            await has_come(poke)
            poke.clear()
    await edge.publish(orders_of(3))
    assert not poke.is_set()


async def test_the_newest_is_as_readers_have_it(ledger: JetStreamLedger, clean_nats_url: str) -> None:
    await ledger.publish(orders_of(1))
    async with edge_of(clean_nats_url) as edge:
        assert [await edge.newest(WANTED)] == await everything(ledger)


async def test_a_missing_ledger_is_an_error_and_none_is_made(clean_nats_url: str) -> None:
    with pytest.raises(LedgerUnavailableError, match="There is no ledger on this server yet"):
        async with edge_of(clean_nats_url, stream_timeout_s=SHORT_S):
            pass
    async with connected(clean_nats_url, name="test") as connection:
        assert await connection.jetstream.streams_info() == []


async def test_a_ledger_that_comes_late_is_waited_for(clean_nats_url: str) -> None:
    async def publish() -> Offset:
        async with edge_of(clean_nats_url, stream_timeout_s=DEADLINE_S) as edge:
            return (await edge.publish(orders_of(1))).sequence

    publishing = asyncio.create_task(publish())
    async with connected(clean_nats_url, name="test") as connection:
        await connection.jetstream.add_stream(name="OTHER", subjects=["other.>"])
    async with jetstream_ledger(clean_nats_url), asyncio.timeout(DEADLINE_S):
        assert await publishing == 1


async def test_another_generation_is_found_by_the_next_connection(ledger: JetStreamLedger, clean_nats_url: str) -> None:
    await ledger.publish(orders_of(1))
    async with edge_of(clean_nats_url) as writing, edge_of(clean_nats_url) as asking:
        async with connected(clean_nats_url, name="test") as connection:
            await begin_generation(connection)
        for use in (writing.publish_many([outgoing(number) for number in range(20)]), asking.newest(WANTED)):
            with pytest.raises(LedgerUnavailableError, match="The ledger goes on in"):
                await use
        assert (writing.is_usable, asking.is_usable) == (False, False)
        with pytest.raises(LedgerUnavailableError, match="The ledger goes on in"):
            await writing.publish(outgoing(1))
    async with edge_of(clean_nats_url) as edge, jetstream_ledger(clean_nats_url) as successor:
        assert edge.generation == 2
        assert await edge.newest(WANTED) is None
        receipts = await edge.publish_many([outgoing(number) for number in range(30)])
        assert [receipt.sequence for receipt in receipts] == list(range(1, 31))
        assert numbers_of(await everything(successor)) == list(range(30))


async def test_a_stream_without_direct_gets_is_reported(clean_nats_url: str) -> None:
    client = await nats.connect(clean_nats_url)
    jetstream: JetStreamContext = client.jetstream()
    await jetstream.add_stream(stream_config(1).evolve(allow_direct=False))
    async with edge_of(clean_nats_url, query_timeout_s=SHORT_S) as edge:
        await edge.publish(orders_of(1))
        with pytest.raises(LedgerUnavailableError, match="nats stream edit LEDGER_1 --allow-direct"):
            await edge.newest(WANTED)
    await client.close()


async def test_it_outlives_the_server(fresh_nats: NatsServer) -> None:
    poke = asyncio.Event()
    url = fresh_nats.url
    async with jetstream_ledger(url), edge_of(url, query_timeout_s=3.0) as edge, edge.notified(WANTED, poke.set):
        await edge.publish(orders_of(1))
        await has_come(poke)
        poke.clear()
        fresh_nats.kill()
        await has_come(poke)
        with pytest.raises(LedgerUnavailableError):
            await edge.newest(WANTED)
        await asyncio.to_thread(fresh_nats.start)
        assert (await edge.publish(orders_of(2))).sequence == 2
        poke.clear()
        await edge.publish_many([outgoing(number) for number in range(100)])
        assert (await edge.publish(orders_of(3))).sequence == 103
        await has_come(poke)
        newest = await edge.newest(WANTED)
        assert newest is not None
        assert newest.data == b"3"


async def test_a_connection_that_was_closed_is_no_longer_usable(ledger: JetStreamLedger, clean_nats_url: str) -> None:
    async with edge_of(clean_nats_url) as edge:
        assert edge.is_usable
    assert not edge.is_usable
    with pytest.raises(LedgerUnavailableError):
        await edge.newest(WANTED)
