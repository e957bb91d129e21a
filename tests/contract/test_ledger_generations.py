"""A log that goes on in another generation: one numbering for whoever reads it, in memory and in JetStream alike."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from datetime import UTC, datetime
from functools import partial
from typing import NamedTuple

import pytest

from gpuledger.events.position import Position
from gpuledger.ledger.api import Expected, Ledger
from gpuledger.ledger.atomic import AtomicPublisher
from gpuledger.ledger.closing import begin_next, fence, open_next
from gpuledger.ledger.connect import connected
from gpuledger.ledger.errors import LogRestoredError, SequenceConflictError
from gpuledger.ledger.identity import Anchor
from gpuledger.ledger.jetstream import JetStreamLedger, connect_ledger
from gpuledger.ledger.memory import MemoryLedger
from support.ledgers import DEADLINE_S, everything, jetstream_ledger, numbers_of, outgoing, read_count

DEVICE = "ledger.*.*.device.d.>"
POD = "ledger.*.*.pod.>"
OWN_DEVICE = "ledger.svc.test.device.d.>"
OWN_POD = "ledger.svc.test.pod.>"
"""Of one origin: what is expected of several partitions has to be about one of them."""

PARTITIONS = pytest.mark.parametrize("partitions", [1, 4])
LINK = "a" * 64
NOON = datetime(2026, 1, 2, 12, tzinfo=UTC)


class Log(NamedTuple):
    """A ledger, and what closes its generation."""

    ledger: Ledger
    close: Callable[[], Awaitable[None]]


@pytest.fixture(params=["memory", 1, 4])
async def log(request: pytest.FixtureRequest) -> AsyncIterator[Log]:
    """In memory, or of so many partitions."""
    if request.param == "memory":
        memory = MemoryLedger()
        yield Log(memory, lambda: memory.close_generation("/archive", LINK))
        return
    url = request.getfixturevalue("clean_nats_url")
    async with AsyncExitStack() as stack:
        ledger = await stack.enter_async_context(jetstream_ledger(url, partitions=request.param))

        async def close() -> None:
            await close_generation(url, ledger.generation)
            await ledger.go_on()

        yield Log(ledger, close)


async def close_generation(url: str, generation: int) -> None:
    async with connected(url, name="test") as connection:
        await fence(connection, generation, "/archive", NOON)
        await open_next(connection, await begin_next(connection, generation, "/archive", LINK))


async def test_sequences_go_on_behind_a_closed_generation(log: Log) -> None:
    await log.ledger.publish_many([outgoing(number) for number in range(1, 6)])
    await log.close()
    assert log.ledger.generation == 2
    assert await log.ledger.head() == 5
    (receipt,) = await log.ledger.publish_many([outgoing(6)])
    assert tuple(receipt) == (6, False)
    assert [one.sequence for one in await everything(log.ledger)] == [1, 2, 3, 4, 5, 6]
    assert numbers_of(await everything(log.ledger, after=3)) == [4, 5, 6]
    assert numbers_of(await everything(log.ledger, after=2, until=4)) == [3, 4]
    assert await log.ledger.head() == 6


async def test_each_place_is_in_the_generation_that_stores_it(log: Log) -> None:
    await log.ledger.publish_many([outgoing(1), outgoing(2)])
    await log.close()
    await log.ledger.publish(outgoing(3))
    await log.close()
    generations = log.ledger.generations
    assert [str(generations.position(at)) for at in (1, 2, 3)] == ["1/1", "1/2", "2/3"]
    assert generations.begun == ((1, 0), (2, 2), (3, 3)) == log.ledger.identity.generations.begun
    assert generations.has(Position(1, 2))
    assert not generations.has(Position(1, 3))
    assert not generations.has(Position(2, 2))


async def test_a_reader_that_waits_goes_on_behind_the_rest_of_a_closed_generation(log: Log) -> None:
    await log.ledger.publish_many([outgoing(1), outgoing(2)])
    async with log.ledger.read() as whole, log.ledger.read(subject_filter=POD) as some:
        assert numbers_of(await read_count(whole, 2)) == [1, 2]
        await log.ledger.publish_many([outgoing(3), outgoing(4, aggregate="pod")])
        await log.close()
        waiting = asyncio.create_task(read_count(whole, 3))
        await log.ledger.publish_many([outgoing(5, aggregate="pod"), outgoing(6)])
        assert numbers_of(await waiting)[:3] == [3, 4, 5]
        assert numbers_of(await read_count(some, 2)) == [4, 5]


async def test_a_reader_begins_in_a_closed_generation(log: Log) -> None:
    await log.ledger.publish_many([outgoing(number) for number in range(1, 4)])
    await log.close()
    await log.ledger.publish(outgoing(4))
    await log.close()
    await log.ledger.publish(outgoing(5))
    async with log.ledger.read(1) as reader:
        assert numbers_of(await reader.next_batch(limit=1)) == [2]
        assert numbers_of(await read_count(reader, 3)) == [3, 4, 5]
        assert await reader.next_batch(timeout_s=0.01) == []


async def test_single_messages_of_a_closed_generation_are_found(log: Log) -> None:
    await log.ledger.publish_many([outgoing(1), outgoing(2, aggregate="pod")])
    await log.close()
    await log.ledger.publish(outgoing(3))
    found = await log.ledger.message_at(2)
    assert found is not None
    assert numbers_of([found]) == [2]
    assert await log.ledger.message_at(4) is None
    assert await log.ledger.last_sequence(POD) == 2
    assert await log.ledger.last_sequence(DEVICE) == 3


async def test_messages_of_several_generations_are_found_in_order(log: Log) -> None:
    for number in (1, 3, 5):
        await log.ledger.publish_many([outgoing(number), outgoing(number + 1)])
        await log.close()
    await log.ledger.publish(outgoing(7))
    found = await log.ledger.messages_at([1, 4, 5, 6, 7])
    assert numbers_of([one for one in found if one is not None]) == [1, 4, 5, 6, 7]
    with pytest.raises(LogRestoredError, match="ends at 4/7 and has no event at 4/9"):
        await log.ledger.messages_at([1, 9])


async def test_an_event_of_a_closed_generation_is_confirmed_by_its_digest(log: Log) -> None:
    await log.ledger.publish_many([outgoing(1), outgoing(2)])
    await log.close()
    await log.ledger.publish(outgoing(3))
    for at in (1, 2, 3):
        anchor = await log.ledger.anchor_at(at)
        assert anchor is not None
        await log.ledger.confirm(anchor)
        with pytest.raises(LogRestoredError):
            await log.ledger.confirm(Anchor(at, anchor.event_id, "0" * 64))


async def test_what_is_expected_of_a_closed_generation_holds_in_the_next(log: Log) -> None:
    await log.ledger.publish_many([outgoing(1), outgoing(2, aggregate="pod"), outgoing(3)])
    await log.close()
    with pytest.raises(SequenceConflictError):
        await log.ledger.publish(outgoing(4), Expected(OWN_DEVICE, 1))
    assert (await log.ledger.publish(outgoing(5), Expected(OWN_DEVICE, 3))).sequence == 4
    with pytest.raises(SequenceConflictError):
        await log.ledger.publish(outgoing(6), Expected(OWN_DEVICE, 3))
    many = [outgoing(number, aggregate="pod") for number in range(100, 130)]
    receipts = await log.ledger.publish_many(many, Expected(OWN_POD, 2))
    assert [one.sequence for one in receipts] == list(range(5, 35))


@PARTITIONS
async def test_nobody_has_to_be_told_that_a_generation_was_closed(clean_nats_url: str, partitions: int) -> None:
    opening = partial(jetstream_ledger, clean_nats_url, partitions=partitions)
    async with opening() as ledger, opening() as other:
        await ledger.publish(outgoing(1))
        async with other.read() as reader:
            await read_count(reader, 1)
            await close_generation(clean_nats_url, 1)
            async with asyncio.timeout(DEADLINE_S):
                receipts = await ledger.publish_many([outgoing(number) for number in range(2, 50)])
            assert [one.sequence for one in receipts] == list(range(2, 50))
            assert numbers_of(await read_count(reader, 48)) == list(range(2, 50))
        assert numbers_of(await everything(other)) == list(range(1, 50))


@PARTITIONS
async def test_a_repeat_that_begins_a_generation_is_no_conflict(clean_nats_url: str, partitions: int) -> None:
    opening = jetstream_ledger(clean_nats_url, partitions=partitions)
    async with opening as ledger, connected(clean_nats_url, name="test") as connection:
        await ledger.publish(outgoing(1))
        await fence(connection, 1, "/archive", NOON)
        identity = await begin_next(connection, 1, "/archive", LINK)
        async with connect_ledger(clean_nats_url, name="test", generation=2) as following:
            await following.publish(outgoing(1, id_prefix="repeated"))
        await open_next(connection, identity)
        assert (await ledger.publish(outgoing(2), Expected(OWN_DEVICE, 1))).sequence == 3
        with pytest.raises(SequenceConflictError):
            await ledger.publish(outgoing(3), Expected(OWN_DEVICE, 1))


@PARTITIONS
async def test_who_publishes_while_another_goes_on_goes_on_too(
    clean_nats_url: str, partitions: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever waits for the other finds nothing left to go on to, and publishes there all the same."""
    both, calls = asyncio.Event(), 0
    really_go_on, really_start = JetStreamLedger.go_on, AtomicPublisher.start

    async def go_on(self: JetStreamLedger) -> bool:
        nonlocal calls
        calls += 1
        if calls == 2:
            asyncio.get_running_loop().call_soon(both.set)
        return await really_go_on(self)

    async def start(self: AtomicPublisher) -> None:
        await both.wait()
        await really_start(self)

    async with jetstream_ledger(clean_nats_url, partitions=partitions) as ledger:
        await ledger.publish(outgoing(1))
        await close_generation(clean_nats_url, 1)
        monkeypatch.setattr(JetStreamLedger, "go_on", go_on)
        monkeypatch.setattr(AtomicPublisher, "start", start)
        async with asyncio.timeout(DEADLINE_S):
            one, other = await asyncio.gather(*(ledger.publish(outgoing(number)) for number in (2, 3)))
    assert {one.sequence, other.sequence} == {2, 3}
