"""The lists of desired devices that an agent follows, with and without the ledger, and connections that parts share."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime

import pytest

from gpuledger.agent.board import Board
from gpuledger.agent.desired_devices import STATE_KEY, DesiredDevices
from gpuledger.agent.newest_list import RETRY, ForeignListError, read_stored_list
from gpuledger.agent.part import AgentFact
from gpuledger.agent.shared_connection import SharedConnection
from gpuledger.events.node import NodeDecommissioned, NodeDevicesWanted, WantedDevice
from gpuledger.events.payload import Payload
from gpuledger.ledger.api import Outgoing
from gpuledger.ledger.errors import LedgerUnavailableError
from gpuledger.ledger.memory import MemoryLedger
from gpuledger.ledger.permissions import desired_devices_subject
from support.edges import MemoryEdge
from support.events import SERVICE, event, outgoing
from support.waiting import eventually

NODE = "w.1"
AT = datetime(2026, 1, 1, tzinfo=UTC)


def device(name: str) -> WantedDevice:
    return WantedDevice(device=name, pool="p", resource="gpu.deckhouse.io/p", unit="Card", asked_at=AT)


def order(number: int, *devices: str) -> Outgoing:
    data = NodeDevicesWanted(devices=tuple(map(device, devices)))
    return outgoing(event(data, NODE, number=number, source=SERVICE))


def odd(number: int, data: Payload, subject: str = NODE, source: str = SERVICE) -> Outgoing:
    """An event of another kind, source or node where this node's lists are."""
    sent = outgoing(event(data, subject, number=number, source=source))
    return sent._replace(subject=desired_devices_subject(NODE))


class Kept:
    """What is kept, in memory; `before_put` sees the board as it is then."""

    def __init__(self) -> None:
        self.values: dict[str, bytes] = {}
        self.before_put: Callable[[], None] = lambda: None

    def get(self, name: str) -> bytes | None:
        return self.values.get(name)

    async def put(self, name: str, value: bytes) -> None:
        self.before_put()
        self.values[name] = value


class Running:
    """The part at work, with all that it has to do with."""

    def __init__(self, edge: MemoryEdge, store: Kept) -> None:
        self.edge, self.store, self.board = edge, store, Board()
        self.pauses: list[float] = []
        self.part = DesiredDevices(NODE, self.board, store, edge.connect, sleep=self.sleep, refresh_s=0.01)

    async def sleep(self, seconds: float) -> None:
        self.pauses.append(seconds)
        await asyncio.sleep(0.001)

    @property
    def desired(self) -> list[str] | None:
        desired = self.board.state.desired
        return None if desired is None else [one.device for one in desired]

    async def wants(self, *devices: str) -> None:
        async def holds() -> bool:
            return self.desired == list(devices)

        await eventually(holds)

    async def has_looked(self) -> None:
        """Return when it has looked at what is there now."""
        queries = self.edge.queries

        async def again() -> bool:
            return self.edge.queries > queries + 1

        await eventually(again)


async def record_nothing(facts: Sequence[AgentFact]) -> None:
    raise AssertionError("there is nothing to tell")


@asynccontextmanager
async def running(edge: MemoryEdge, store: Kept | None = None) -> AsyncIterator[Running]:
    at_work = Running(edge, store or Kept())
    task = asyncio.create_task(at_work.part.run(record_nothing))
    try:
        yield at_work
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


@pytest.fixture
def edge() -> MemoryEdge:
    return MemoryEdge(MemoryLedger())


async def test_a_ledger_without_a_list_desires_nothing(edge: MemoryEdge) -> None:
    async with running(edge) as at_work:
        await at_work.wants()
        assert at_work.store.values == {}
        assert at_work.part.alive_at is not None


async def test_nothing_is_known_while_the_ledger_cannot_be_queried(edge: MemoryEdge) -> None:
    edge.away = "it is away"
    async with running(edge) as at_work:

        async def has_waited_long() -> bool:
            return RETRY.max_s in at_work.pauses

        await eventually(has_waited_long)
        assert (at_work.desired, at_work.part.trouble) == (None, "it is away")
        assert sorted(at_work.pauses) == at_work.pauses
        edge.away = None
        await at_work.wants()
        assert at_work.part.trouble is None


async def test_the_last_list_counts(edge: MemoryEdge) -> None:
    await edge.ledger.publish_many([order(1, "a"), order(2, "b", "c")])
    async with running(edge) as at_work:
        await at_work.wants("b", "c")
        await edge.publish(order(3))
        await at_work.wants()


async def test_a_list_is_stored_before_it_is_followed(edge: MemoryEdge) -> None:
    store, seen = Kept(), []
    async with running(edge, store) as at_work:
        await at_work.wants()
        store.before_put = lambda: seen.append(at_work.desired)
        await edge.publish(order(1, "a"))
        await at_work.wants("a")
    assert seen == [[]]
    assert store.values[STATE_KEY].startswith(b"1/1\n{")


async def test_what_was_desired_is_known_without_the_ledger(edge: MemoryEdge) -> None:
    store = Kept()
    await edge.publish(order(1, "a"))
    async with running(edge, store) as at_work:
        await at_work.wants("a")
    edge.away = "it is away"
    async with running(edge, store) as at_work:
        await at_work.wants("a")


async def test_an_older_list_never_replaces_a_newer_one(edge: MemoryEdge) -> None:
    store = Kept()
    await edge.ledger.publish_many([order(1, "a"), order(2, "b")])
    async with running(edge, store) as at_work:
        await at_work.wants("b")
    behind = MemoryEdge(MemoryLedger())
    await behind.publish(order(1, "a"))
    async with running(behind, store) as at_work:
        await at_work.has_looked()
        assert at_work.desired == ["b"]
        await behind.ledger.publish_many([order(2, "b"), order(3, "c")])
        await at_work.wants("c")


async def test_a_later_generation_is_newer_whatever_its_sequence(edge: MemoryEdge) -> None:
    store = Kept()
    await edge.ledger.publish_many([order(1, "a"), order(2, "b")])
    async with running(edge, store) as at_work:
        await at_work.wants("b")
    restored = MemoryEdge(MemoryLedger(generation=2))
    async with running(restored, store) as at_work:
        await at_work.has_looked()
        assert at_work.desired == ["b"]
        await restored.publish(order(3, "c"))
        await at_work.wants("c")


@pytest.mark.parametrize(
    "refused",
    [
        odd(2, NodeDevicesWanted(), source="/nodes/w.1/agent"),
        odd(2, NodeDevicesWanted(), subject="w.2"),
        odd(2, NodeDecommissioned()),
        Outgoing(desired_devices_subject(NODE), "2", b'{"stream":"LEDGER_1","seq":2}'),
        Outgoing(desired_devices_subject(NODE), "2", b"\xff"),
        order(2, "x")._replace(data=order(2, "x").data.replace(b'"Card"', b'"Sled"')),
    ],
)
async def test_what_is_no_list_of_pools_for_this_node_changes_nothing(refused: Outgoing, edge: MemoryEdge) -> None:
    await edge.publish(order(1, "a"))
    async with running(edge) as at_work:
        await at_work.wants("a")
        await edge.publish(refused)
        await at_work.has_looked()
        await at_work.has_looked()
        assert (at_work.desired, at_work.part.refused) == (["a"], 1)
        await edge.publish(order(3, "b"))
        await at_work.wants("b")


@pytest.mark.parametrize("kept", [b"", b"1/x\n{}", b"1/1\n", b"1/1\n{}", b"\xff"])
async def test_what_is_stored_and_cannot_be_read_is_not_known(kept: bytes, edge: MemoryEdge) -> None:
    store = Kept()
    store.values[STATE_KEY] = kept
    async with running(edge, store) as at_work:
        await edge.publish(order(1, "a"))
        await at_work.wants("a")


def test_another_nodes_list_is_not_stored_for_this_one() -> None:
    with pytest.raises(ForeignListError, match=r"list of /services/pools for w\.1, not that of pools for w\.2"):
        read_stored_list(NodeDevicesWanted, "w.2", b"1/1\n" + order(1).data)


class Line:
    """A connection that is open for a while, and may break."""

    def __init__(self) -> None:
        self.is_usable = True
        self.is_open = False


class Lines:
    """Connects, and remembers what it gave."""

    def __init__(self) -> None:
        self.made: list[Line] = []
        self.refuses = False

    @asynccontextmanager
    async def connect(self) -> AsyncIterator[Line]:
        await asyncio.sleep(0)
        if self.refuses:
            raise LedgerUnavailableError("it is away")
        line = Line()
        self.made.append(line)
        line.is_open = True
        try:
            yield line
        finally:
            line.is_open = False


async def test_all_who_connect_at_the_same_time_share_one_connection() -> None:
    lines = Lines()
    link = SharedConnection(lines.connect)
    async with link.connect() as one:
        async with link.connect() as other:
            assert one is other
        assert one.is_open
    assert not one.is_open
    async with link.connect() as another:
        assert another is not one
    assert len(lines.made) == 2


async def test_a_connection_that_serves_no_more_is_replaced_for_who_comes_next() -> None:
    link = SharedConnection(Lines().connect)
    async with link.connect() as old:
        old.is_usable = False
        async with link.connect() as new:
            assert (new is old, old.is_open, new.is_open) == (False, True, True)
        assert old.is_open
    assert (old.is_open, new.is_open) == (False, False)


async def test_who_cannot_connect_leaves_nothing_behind() -> None:
    lines = Lines()
    link = SharedConnection(lines.connect)
    lines.refuses = True
    for _ in range(2):
        with pytest.raises(LedgerUnavailableError, match="it is away"):
            async with link.connect():
                pass
    lines.refuses = False
    async with link.connect() as line:
        assert line.is_open
