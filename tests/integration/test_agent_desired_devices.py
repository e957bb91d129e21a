"""An agent's desired devices from a real server that confines it, over the connection that its outbox shares."""

import asyncio
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime

import pytest

from gpuledger.agent.board import Board
from gpuledger.agent.desired_devices import DesiredDevices
from gpuledger.agent.part import AgentFact
from gpuledger.agent.shared_connection import SharedConnection
from gpuledger.events.node import NodeDevicesWanted, WantedDevice
from gpuledger.ledger.api import Outgoing
from gpuledger.ledger.connect import connected
from gpuledger.ledger.edge import EdgeLedger, connect_edge
from gpuledger.ledger.errors import LedgerUnavailableError
from gpuledger.ledger.restoring import begin_generation
from support.edges import LAYOUTS, ConfinedServer, confined_server
from support.events import SERVICE, event, outgoing
from support.ledgers import jetstream_ledger
from support.waiting import eventually

NODE = "gpu-01.example.com"
AT = datetime(2026, 1, 1, tzinfo=UTC)
NEVER_S = 3600.0


def order(number: int, *devices: str) -> Outgoing:
    desired = (
        WantedDevice(device=name, pool="p", resource="gpu.deckhouse.io/p", unit="Card", asked_at=AT) for name in devices
    )
    return outgoing(event(NodeDevicesWanted(devices=tuple(desired)), NODE, number=number, source=SERVICE))


class Kept(dict[str, bytes]):
    """What is kept, in memory."""

    async def put(self, name: str, value: bytes) -> None:
        self[name] = value


async def record_nothing(facts: Sequence[AgentFact]) -> None:
    raise AssertionError("there is nothing to tell")


async def wants(board: Board, *devices: str) -> None:
    async def holds() -> bool:
        desired = board.state.desired
        return desired is not None and [one.device for one in desired] == list(devices)

    await eventually(holds)


@pytest.fixture(params=LAYOUTS)
def server(request: pytest.FixtureRequest) -> Iterator[ConfinedServer]:
    with confined_server(request.param, [NODE]) as server:
        yield server


@pytest.fixture
def link(server: ConfinedServer) -> SharedConnection[EdgeLedger]:
    url = server.agent_url(NODE)
    return SharedConnection(
        lambda: connect_edge(url, name="agent", node=NODE, stream_timeout_s=0.2, connect_timeout_s=2.0)
    )


@asynccontextmanager
async def following(link: SharedConnection[EdgeLedger], store: Kept) -> AsyncIterator[Board]:
    """Orders at work, which look only when they are poked or connect anew."""
    board = Board()

    async def sleep(_seconds: float) -> None:
        await asyncio.sleep(0.01)

    part = DesiredDevices(NODE, board, store, link.connect, sleep=sleep, refresh_s=NEVER_S)
    task = asyncio.create_task(part.run(record_nothing))
    try:
        yield board
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


async def test_desired_devices_come_as_they_are_published_alone_or_among_many(
    server: ConfinedServer, link: SharedConnection[EdgeLedger]
) -> None:
    async with following(link, Kept()) as board, jetstream_ledger(server.url) as ledger:
        await wants(board)
        await ledger.publish(order(1, "a"))
        await wants(board, "a")
        await ledger.publish_many([order(number, str(number)) for number in range(2, 500)])
        await wants(board, "499")
        async with link.connect() as edge:
            fact = Outgoing("ledger.node.gpu-01%2Eexample%2Ecom.device.d.seen", "f", b"{}")
            assert (await edge.publish(fact)).sequence == (500 if ledger.partitions == 1 else 1)


async def test_desired_devices_outlive_the_server_the_agent_and_the_generation(
    server: ConfinedServer, link: SharedConnection[EdgeLedger]
) -> None:
    store = Kept()
    async with jetstream_ledger(server.url) as ledger:
        await ledger.publish(order(1, "a"))
        async with following(link, store) as board:
            await wants(board, "a")
            server.kill()
            async with following(link, store) as another:
                await wants(another, "a")
            await asyncio.to_thread(server.start)
            await ledger.publish(order(2, "b"))
            await wants(board, "b")
            async with connected(server.url, name="test") as connection:
                await begin_generation(connection)
            async with jetstream_ledger(server.url) as successor:
                await successor.publish(order(3, "c"))
                await wants(board, "c")


async def test_without_a_ledger_there_are_no_desired_devices(
    server: ConfinedServer, link: SharedConnection[EdgeLedger]
) -> None:
    async with following(link, Kept()) as board:
        for _ in range(2):
            with pytest.raises(LedgerUnavailableError, match="There is no ledger on this server yet"):
                async with link.connect():
                    pass
        assert board.state.desired is None
        async with jetstream_ledger(server.url):
            await wants(board)
