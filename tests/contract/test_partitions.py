"""A ledger of several partitions, beyond what every ledger does: what many origins record is one log in one order."""

import asyncio
import random
from collections.abc import AsyncIterator

import nats
import pytest

from gpuledger.events.position import number_of
from gpuledger.events.subjects import ALL
from gpuledger.ledger import edge as edge_module
from gpuledger.ledger.api import Expected, Message, Outgoing
from gpuledger.ledger.edge import connect_edge
from gpuledger.ledger.errors import LedgerUnavailableError, LogRestoredError, SequenceConflictError
from gpuledger.ledger.identity import Anchor
from gpuledger.ledger.jetstream import connect_ledger
from gpuledger.ledger.memory import matcher
from gpuledger.ledger.order import Entry, Order
from gpuledger.ledger.partition_guard import StreamGuard
from gpuledger.ledger.partitioned import PartitionedLedger
from gpuledger.ledger.partitions import partition_of
from gpuledger.ledger.permissions import desired_devices_subject
from support.ledgers import DEADLINE_S, HEARTBEAT_S, everything, jetstream_ledger
from support.waiting import eventually

PARTITIONS = 4
NODES = [f"n{number}" for number in range(12)]
FILTERS = (ALL, "ledger.*.*.device.>", "ledger.node.n3.>", "ledger.*.*.pod.*.rare", "ledger.*.*.nothing.>")


@pytest.fixture
async def ledger(clean_nats_url: str) -> AsyncIterator[PartitionedLedger]:
    async with jetstream_ledger(clean_nats_url, partitions=PARTITIONS) as opened:
        assert isinstance(opened, PartitionedLedger)
        yield opened


def of(node: str, number: int, aggregate: str = "device", event: str = "happened") -> Outgoing:
    return Outgoing(f"ledger.node.{node}.{aggregate}.d.{event}", f"{node}-{number}", f"{node} {number}".encode())


def part(node: str) -> int:
    return partition_of(f"ledger.node.{node}", PARTITIONS)


async def fill(ledger: PartitionedLedger, each: int = 40) -> list[Message]:
    """What many nodes record at once; one pod's event is rare."""

    async def record(node: str) -> None:
        for number in range(0, each, 4):
            aggregate = ("device", "pod")[number % 8 // 4]
            event = "rare" if (node, number) == ("n5", 12) else "happened"
            await ledger.publish_many([of(node, number + n, aggregate, event) for n in range(4)])

    await asyncio.gather(*map(record, NODES))
    return await everything(ledger)


async def test_every_event_is_in_the_log_once_and_each_nodes_in_their_order(ledger: PartitionedLedger) -> None:
    log = await fill(ledger)
    assert {part(node) for node in NODES} == set(range(PARTITIONS))
    assert [number_of(message.sequence) for message in log] == list(range(1, 12 * 40 + 1))
    assert await ledger.head() == len(log)
    for node in NODES:
        own = [message.data for message in log if message.subject.startswith(f"ledger.node.{node}.")]
        assert own == [f"{node} {number}".encode() for number in range(40)]


async def test_filters_and_places_pick_out_of_the_one_log(ledger: PartitionedLedger) -> None:
    log = await fill(ledger)
    pick = random.Random(7)
    for subject_filter in FILTERS:
        matched = [message for message in log if matcher(subject_filter)(message.subject)]
        assert await ledger.last_sequence(subject_filter) == (matched[-1].sequence if matched else 0)
        for after, until in [(0, len(log)), *(sorted(pick.sample(range(len(log)), 2)) for _ in range(6))]:
            expected = [one for one in matched if after < number_of(one.sequence) <= until]
            assert await everything(ledger, after, until, subject_filter) == expected
        assert await everything(ledger, subject_filter=subject_filter) == matched


async def test_a_message_and_its_anchor_stand_at_its_place(ledger: PartitionedLedger) -> None:
    log = await fill(ledger, 8)
    for message in log:
        found = await ledger.message_at(message.sequence)
        assert found is not None
        assert found[:3] == message[:3]
        await ledger.confirm(await ledger.anchor_at(message.sequence))
    assert await ledger.message_at(len(log) + 1) is None


async def test_orders_are_the_agents_once_they_are_in_the_log(
    clean_nats_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What an agent does upon them has to stand behind them."""
    monkeypatch.setattr(edge_module, "IN_LOG_LOOKS_MAX", 3)
    subject = desired_devices_subject("n1")
    client = await nats.connect(clean_nats_url)
    async with (
        jetstream_ledger(clean_nats_url, partitions=PARTITIONS) as ledger,
        connect_edge(clean_nats_url, name="agent", node="n1") as edge,
    ):
        assert isinstance(ledger, PartitionedLedger)
        await client.request(f"part.{partition_of(subject, PARTITIONS)}.{subject}", b"orders")
        with pytest.raises(LedgerUnavailableError, match="waits to be put into the log"):
            await edge.newest(subject)
        ledger.sequencer.call()

        async def are_there() -> bool:
            return await ledger.head() == 1

        await eventually(are_there)
        found = await edge.newest(subject)
        assert found is not None
        assert found.data == b"orders"
    await client.close()


async def test_a_place_of_another_partition_is_not_what_was_expected(ledger: PartitionedLedger) -> None:
    """Both events are the first of their partitions."""
    one, other = NODES[0], next(node for node in NODES if part(node) != part(NODES[0]))
    assert (await ledger.publish(of(one, 1))).sequence == 1
    assert (await ledger.publish(of(other, 1))).sequence == 2
    with pytest.raises(SequenceConflictError, match=f"{other}-2"):
        await ledger.publish(of(other, 2), Expected(f"ledger.node.{other}.>", 1))
    assert (await ledger.publish(of(other, 2), Expected(f"ledger.node.{other}.>", 2))).sequence == 3


async def test_a_reader_begins_where_the_log_goes_on_while_it_looks(ledger: PartitionedLedger) -> None:
    """The event comes into the log behind its question."""
    await ledger.publish(of("n1", 1))
    order, looks = ledger.log.order, 0

    class Late(Order):
        async def last(self) -> Entry:
            nonlocal looks
            looks += 1
            return Entry(0, self.nothing) if looks == 1 else await order.last()

    ledger.log.order = Late(ledger._connection, ledger._generation)
    async with ledger.read() as reader:
        assert [one.data for one in await reader.next_batch()] == [b"n1 1"]
    assert looks == 1


async def test_what_is_published_behind_a_receipt_stands_behind_it(
    ledger: PartitionedLedger, clean_nats_url: str
) -> None:
    """One after another, each in another partition and over another connection."""
    async with connect_ledger(clean_nats_url, name="another", heartbeat_s=HEARTBEAT_S) as another:
        both = (ledger, another)
        receipts = [await both[number % 2].publish(of(NODES[number % 12], number)) for number in range(60)]
    assert [receipt.sequence for receipt in receipts] == list(range(1, 61))


async def test_who_confirms_a_stream_names_its_own_numbers_as_what_they_are(ledger: PartitionedLedger) -> None:
    """A message of the order, or of a partition, is at no position of the log that an operator could look up."""
    await ledger.publish(of("n1", 1))
    order, *partitions = ledger.log.guards
    with pytest.raises(LogRestoredError, match=r"LEDGER_1 at .* ends at message 1 of the order, .* to message 1,234 "):
        await order.confirm(Anchor(1_234, "", ""))
    with pytest.raises(LogRestoredError, match=r"at message 1 of the order of LEDGER_1 at .* stands another message"):
        await order.confirm(Anchor(1, "", ""))
    with pytest.raises(LogRestoredError, match=r"ends at message 1 of the partition, but .* to message 2 of the part"):
        await partitions[part("n1")].confirm(Anchor(2, "", ""))


async def test_the_end_of_the_order_is_asked_for_once_however_many_places_are_looked_up(
    ledger: PartitionedLedger, monkeypatch: pytest.MonkeyPatch
) -> None:
    recorded = await fill(ledger)
    times, last = 0, Order.last

    async def counted(order: Order) -> Entry:
        nonlocal times
        times += 1
        return await last(order)

    monkeypatch.setattr(Order, "last", counted)
    found = await ledger.messages_at([one.sequence for one in recorded[::7]])
    assert (times, [one and one.data for one in found]) == (1, [one.data for one in recorded[::7]])
    _, devices, *_ = FILTERS
    of_devices = [one for one in recorded if matcher(devices)(one.subject)]
    assert (await ledger.last_sequence(devices), times) == (of_devices[-1].sequence, 2)
    async with ledger.read(recorded[20].sequence) as reader:
        assert (await reader.next_batch(1), times) == ([recorded[21]], 3)


async def test_lengths_of_two_stores_are_not_compared(ledger: PartitionedLedger) -> None:
    """An older copy is put back when the order has given the length of before."""
    await ledger.publish(of("n1", 1))
    connection, lengths = ledger._connection, [99, 1, 99]

    async def length() -> int:
        connection.times_connected += len(lengths) == 3
        return lengths.pop(0)

    guard = StreamGuard(connection, ledger.identity, ledger.log.streams[part("n1")], "partition", length)
    await guard.confirm()
    assert lengths == [99]
    with pytest.raises(LogRestoredError, match="has 1 events, and 99 were in the log"):
        await guard.confirm()


async def test_who_gives_up_while_the_order_is_asked_for_anew_leaves_it_to_the_next(
    ledger: PartitionedLedger, clean_nats_url: str
) -> None:
    """Publishing gives up soon to help, and waits again; an election takes longer."""
    await ledger.publish(of("n1", 1))
    tail, is_away = ledger.log.tail, asyncio.Event()

    async def away(_: Order) -> Entry:
        is_away.set()
        await asyncio.Event().wait()
        raise AssertionError

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(Order, "last", away)
        ledger._connection.times_connected += 1
        waiting = asyncio.create_task(tail.reaches(part("n1"), 2))
        await is_away.wait()
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
    async with connect_ledger(clean_nats_url, name="another", heartbeat_s=HEARTBEAT_S) as another:
        await another.publish(of("n1", 2))
    async with asyncio.timeout(DEADLINE_S):
        await tail.reaches(part("n1"), 2)
    assert tail.upto[part("n1")] == 2
