"""What every ledger does, in memory and in JetStream alike."""

import asyncio
from collections.abc import Sequence
from itertools import count

import pytest

from gpuledger.events.envelope import decode
from gpuledger.events.source import SourceCompleted, SourceMessageIdTaken
from gpuledger.ledger.api import Expected, Ledger, Outgoing, Receipt
from gpuledger.ledger.errors import LedgerUnavailableError, PartitionedError, PublishError, SequenceConflictError
from gpuledger.ledger.memory import MemoryLedger
from gpuledger.ledger.own import OwnEvents, publish_own
from gpuledger.ledger.partitioned import PartitionedLedger
from gpuledger.ledger.partitions import partition_of
from support.events import event
from support.events import outgoing as as_outgoing
from support.ledgers import (
    DEADLINE_S,
    SEVERAL_PARTITIONS,
    everything,
    numbers_of,
    outgoing,
    read_count,
)

BURST = 20_000
MANY = 20
"""More than go one by one."""

DEVICE = "ledger.svc.test.device.d.>"
OF_ALL_ORIGINS = "ledger.*.*.device.d.>"


async def test_an_empty_ledger_has_no_head_and_no_history(ledger: Ledger) -> None:
    assert ledger.generation == 1
    assert await ledger.head() == 0
    assert await ledger.last_sequence(DEVICE) == 0
    assert await everything(ledger) == []


async def test_messages_are_recorded_in_the_order_given(ledger: Ledger) -> None:
    receipts = await ledger.publish_many([outgoing(number) for number in range(3000)])
    assert [receipt.sequence for receipt in receipts] == list(range(1, 3001))
    recorded = await everything(ledger)
    assert numbers_of(recorded) == list(range(3000))
    assert [message.sequence for message in recorded] == list(range(1, 3001))
    assert await ledger.head() == 3000


async def test_a_message_keeps_its_subject_bytes_and_time(ledger: Ledger) -> None:
    sent = Outgoing("ledger.node.n1.device.GPU-%C3%A9%2E1.inserted", "an id", b'{"a": "\xc3\xa9"}\r\n\x00')
    await ledger.publish_many([sent, outgoing(1)])
    first, second = await everything(ledger)
    assert (first.subject, first.data) == (sent.subject, sent.data)
    assert 0 < first.recorded_ns <= second.recorded_ns


async def test_publishing_nothing_is_nothing(ledger: Ledger) -> None:
    assert await ledger.publish_many([]) == []
    assert await ledger.head() == 0


async def test_a_repeated_id_is_recorded_once(ledger: Ledger) -> None:
    first = await ledger.publish(outgoing(1))
    again = await ledger.publish(outgoing(1))
    assert (first.sequence, first.duplicate) == (1, False)
    assert (again.sequence, again.duplicate) == (1, True)
    receipts = await ledger.publish_many([outgoing(1), outgoing(2), outgoing(2)])
    assert [tuple(receipt) for receipt in receipts] == [(1, True), (2, False), (2, True)]
    assert numbers_of(await everything(ledger)) == [1, 2]


async def test_an_expectation_that_holds_lets_pass_and_one_that_does_not_is_a_conflict(ledger: Ledger) -> None:
    await ledger.publish(outgoing(1), Expected(DEVICE, 0))
    await ledger.publish(outgoing(2, aggregate_id="another"))
    await ledger.publish(outgoing(3), Expected(DEVICE, 1))
    for sequence in (0, 1, 2, 4):
        with pytest.raises(SequenceConflictError, match="e-4"):
            await ledger.publish(outgoing(4), Expected(DEVICE, sequence))
    await ledger.publish(outgoing(4), Expected(DEVICE, 3))
    assert numbers_of(await everything(ledger)) == [1, 2, 3, 4]


async def test_an_expectation_counts_what_other_origins_wrote(ledger: Ledger) -> None:
    await ledger.publish(Outgoing("ledger.node.n1.device.d.inserted", "a", b"1"))
    refusal = PartitionedError if isinstance(ledger, PartitionedLedger) else SequenceConflictError
    with pytest.raises(refusal):
        await ledger.publish(outgoing(2), Expected(OF_ALL_ORIGINS, 0))
    assert await ledger.head() == 1


async def test_a_repeat_is_no_conflict_even_when_others_followed(ledger: Ledger) -> None:
    await ledger.publish(outgoing(1), Expected(DEVICE, 0))
    assert await ledger.publish(outgoing(1), Expected(DEVICE, 0)) == (1, True)
    await ledger.publish(outgoing(2), Expected(DEVICE, 1))
    await ledger.publish(outgoing(3), Expected(DEVICE, 2))
    assert await ledger.publish(outgoing(2), Expected(DEVICE, 1)) == (2, True)
    assert await ledger.head() == 3


@pytest.mark.parametrize("count", [1, 2, MANY, pytest.param(2500, marks=pytest.mark.long)])
async def test_many_that_expect_each_other_follow_each_other_or_are_not_recorded(ledger: Ledger, count: int) -> None:
    first, second = ([outgoing(start + number) for number in range(count)] for start in (0, count))
    receipts = await ledger.publish_many(first, Expected(DEVICE, 0))
    assert [tuple(receipt) for receipt in receipts] == [(number + 1, False) for number in range(count)]
    repeated = await ledger.publish_many(first, Expected(DEVICE, 0))
    assert [tuple(receipt) for receipt in repeated] == [(number + 1, True) for number in range(count)]
    await ledger.publish(outgoing(10_000, aggregate_id="another"))
    await ledger.publish_many(second, Expected(DEVICE, count))
    for sequence in (0, count, count + 1, 2 * count):
        with pytest.raises(SequenceConflictError):
            await ledger.publish_many(
                [outgoing(20_000 + number) for number in range(count)], Expected(DEVICE, sequence)
            )
    assert await ledger.head() == 2 * count + 1


async def test_of_two_calls_that_expect_the_same_one_is_recorded_as_a_whole(ledger: Ledger) -> None:
    calls = [[outgoing(MANY * call + number) for number in range(MANY)] for call in range(4)]
    attempts = [ledger.publish_many(call, Expected(DEVICE, 0)) for call in calls]
    results = await asyncio.gather(*attempts, return_exceptions=True)
    assert sum(isinstance(result, SequenceConflictError) for result in results) == 3
    (winner,) = [call for call, result in zip(calls, results, strict=True) if isinstance(result, list)]
    assert [one.data for one in await everything(ledger)] == [one.data for one in winner]


async def test_of_two_that_expect_the_same_one_wins(ledger: Ledger) -> None:
    attempts = [ledger.publish(outgoing(number), Expected(DEVICE, 0)) for number in range(8)]
    results = await asyncio.gather(*attempts, return_exceptions=True)
    assert sum(isinstance(result, SequenceConflictError) for result in results) == 7
    assert await ledger.head() == 1


@pytest.mark.parametrize(
    ("subject_filter", "numbers"),
    [
        ("ledger.>", [0, 1, 2, 3]),
        ("ledger.*.*.device.>", [0, 1, 3]),
        ("ledger.*.*.device.a.>", [0, 3]),
        ("ledger.*.*.slot.>", [2]),
        ("ledger.svc.test.device.b.happened", [1]),
        ("ledger.*.*.pool.>", []),
        ("ledger.node.>", []),
    ],
)
async def test_filters_select_by_wildcards(ledger: Ledger, subject_filter: str, numbers: list[int]) -> None:
    await ledger.publish_many(
        [
            outgoing(0, aggregate_id="a"),
            outgoing(1, aggregate_id="b"),
            outgoing(2, aggregate="slot"),
            outgoing(3, aggregate_id="a"),
        ]
    )
    assert numbers_of(await everything(ledger, subject_filter=subject_filter)) == numbers
    assert await ledger.last_sequence(subject_filter) == (numbers[-1] + 1 if numbers else 0)


@pytest.mark.parametrize(
    ("after", "until", "numbers"),
    [
        (0, None, [0, 2, 4, 6, 8]),
        (1, 7, [2, 4, 6]),
        (0, 8, [0, 2, 4, 6]),
        (4, 4, []),
        (9, None, []),
        (3, 99, [4, 6, 8]),
    ],
)
async def test_history_stops_at_its_bounds(ledger: Ledger, after: int, until: int | None, numbers: list[int]) -> None:
    await ledger.publish_many([outgoing(number, aggregate_id="ab"[number % 2]) for number in range(10)])
    found = await everything(ledger, after, until, "ledger.*.*.device.a.>")
    assert numbers_of(found) == numbers


async def test_history_may_be_left_early(ledger: Ledger) -> None:
    await ledger.publish_many([outgoing(number) for number in range(5000)])
    history = ledger.history()
    first = await anext(history)
    assert first[0].sequence == 1
    await history.aclose()  # type: ignore[attr-defined]
    assert await ledger.head() == 5000


async def test_a_waiting_reader_gets_what_is_published_later(ledger: Ledger) -> None:
    async with ledger.read() as reader:
        waiting = asyncio.create_task(reader.next_batch())
        assert await reader_is_waiting(waiting)
        await ledger.publish(outgoing(1))
        assert numbers_of(await asyncio.wait_for(waiting, DEADLINE_S)) == [1]


async def reader_is_waiting(task: "asyncio.Task[object]") -> bool:
    await asyncio.sleep(0)
    return not task.done()


async def test_a_time_out_gives_an_empty_batch_and_loses_nothing(ledger: Ledger) -> None:
    async with ledger.read() as reader:
        assert await reader.next_batch(timeout_s=0.05) == []
        await ledger.publish(outgoing(1))
        assert numbers_of(await read_count(reader, 1)) == [1]
        assert await reader.next_batch(timeout_s=0.05) == []


async def test_a_cancelled_wait_loses_nothing(ledger: Ledger) -> None:
    async with ledger.read() as reader:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(reader.next_batch(), 0.05)
        await ledger.publish_many([outgoing(number) for number in range(100)])
        assert numbers_of(await read_count(reader, 100)) == list(range(100))


async def test_batches_are_bounded(ledger: Ledger) -> None:
    await ledger.publish_many([outgoing(number) for number in range(50)])
    numbers: list[int] = []
    async with ledger.read() as reader:
        while len(numbers) < 50:
            batch = await reader.next_batch(limit=7)
            assert 1 <= len(batch) <= 7
            numbers += numbers_of(batch)
    assert numbers == list(range(50))


async def test_a_reader_starts_behind_its_position(ledger: Ledger) -> None:
    await ledger.publish_many([outgoing(number) for number in range(10)])
    async with ledger.read(after=7) as reader:
        assert numbers_of(await read_count(reader, 3)) == [7, 8, 9]


async def test_a_reader_at_the_head_sees_only_what_follows(ledger: Ledger) -> None:
    await ledger.publish_many([outgoing(number) for number in range(10)])
    async with ledger.read(after=await ledger.head()) as reader:
        await ledger.publish(outgoing(10))
        assert numbers_of(await read_count(reader, 1)) == [10]


async def test_many_readers_see_the_same(ledger: Ledger) -> None:
    async def follow() -> list[int]:
        async with ledger.read() as reader:
            return numbers_of(await read_count(reader, 2000))

    readers = [asyncio.create_task(follow()) for _ in range(10)]
    await ledger.publish_many([outgoing(number) for number in range(2000)])
    for seen in await asyncio.gather(*readers):
        assert seen == list(range(2000))


async def test_publishers_side_by_side_keep_each_their_order(ledger: Ledger) -> None:
    def series(name: str) -> list[Outgoing]:
        return [outgoing(number, aggregate_id=name, id_prefix=name) for number in range(1000)]

    await asyncio.gather(*(ledger.publish_many(series(name)) for name in "abcd"))
    for name in "abcd":
        found = await everything(ledger, subject_filter=f"ledger.*.*.device.{name}.>")
        assert numbers_of(found) == list(range(1000))


async def test_a_burst_is_not_lost_on_a_slow_reader(ledger: Ledger) -> None:
    payload = b" " * 1000
    burst = [outgoing(number)._replace(data=b"%d%s" % (number, payload)) for number in range(BURST)]
    numbers: list[int] = []
    async with ledger.read() as reader:
        publishing = asyncio.create_task(ledger.publish_many(burst))
        await reader.next_batch(limit=1)
        await publishing
        while len(numbers) < BURST - 1:
            numbers += numbers_of(await reader.next_batch(limit=500))
    assert numbers == list(range(1, BURST))


async def test_a_closed_reader_is_an_error(ledger: Ledger) -> None:
    async with ledger.read() as reader:
        pass
    with pytest.raises(LedgerUnavailableError, match="closed"):
        await reader.next_batch()


def _another(message: Outgoing) -> Outgoing:
    """Another origin's message with the id of one, where the server compares ids: in the same partition."""
    partition = partition_of(message.subject, SEVERAL_PARTITIONS)
    origins = (f"ledger.svc.test{number}" for number in count())
    origin = next(one for one in origins if partition_of(one, SEVERAL_PARTITIONS) == partition)
    return Outgoing(f"{origin}.device.d.happened", message.id, b"7")


async def test_what_stands_under_an_own_id_is_read_back(ledger: Ledger) -> None:
    """Another took the id of one in the middle; the first is there already, by ourselves."""
    ours = [as_outgoing(event(SourceCompleted(events=1), "s", number=number)) for number in range(1, MANY + 1)]
    await ledger.publish(ours[0])
    await ledger.publish(_another(ours[5]))
    receipts = await publish_own(ledger, ours)
    assert (receipts[0].sequence, receipts[0].duplicate) == (1, True)
    recorded = {message.sequence: message for message in await everything(ledger)}
    assert len(recorded) == MANY + 2
    for message, receipt in zip(ours, receipts, strict=True):
        assert (recorded[receipt.sequence].subject, recorded[receipt.sequence].data) == (message.subject, message.data)
    taken = decode(recorded[MANY + 2].data)
    assert taken.data == SourceMessageIdTaken(
        generation=1, sequence=2, nats_subject=recorded[2].subject, event=ours[5].id, message_id=ours[5].id
    )
    assert receipts == await publish_own(ledger, [ours[0]]) + receipts[1:]


async def test_own_events_expect_each_other_whatever_stands_under_their_ids(ledger: Ledger) -> None:
    ours = [as_outgoing(event(SourceCompleted(events=1), "s", number=number)) for number in range(1, 7)]
    source = decode(ours[0].data).source
    await ledger.publish(_another(ours[1]))
    own = OwnEvents(source, 0)
    await publish_own(ledger, ours[:3], own=own)
    assert await ledger.head() == 5
    await publish_own(ledger, ours[3:4], own=own)
    await ledger.publish(ours[4])
    with pytest.raises(SequenceConflictError):
        await publish_own(ledger, ours[5:], own=own)
    assert own.expected.sequence == 6
    assert await ledger.head() == 7


class Lossy(MemoryLedger):
    """It repeats each single message, as a publisher does whose acknowledgement was lost."""

    async def publish_many(self, messages: Sequence[Outgoing], expected: Expected | None = None) -> list[Receipt]:
        receipts = await super().publish_many(messages, expected)
        return receipts if len(messages) > 1 else await super().publish_many(messages, expected)


async def test_own_events_expect_an_incident_whose_acknowledgement_was_lost() -> None:
    ledger = Lossy()
    ours = [as_outgoing(event(SourceCompleted(events=1), "s", number=number)) for number in range(1, 4)]
    await ledger.publish(outgoing(7)._replace(id=ours[0].id))
    own = OwnEvents(decode(ours[0].data).source, 0)
    for some in (ours[:2], ours[2:]):
        await publish_own(ledger, some, own=own)
    assert own.expected.sequence == await ledger.last_sequence(own.expected.subject_filter)


async def test_an_id_that_is_taken_again_and_again_is_an_error(ledger: Ledger) -> None:
    one = as_outgoing(event(SourceCompleted(events=1), "s"))._replace(id="the same")
    await ledger.publish(_another(one))
    with pytest.raises(PublishError, match="3 times running"):
        await publish_own(ledger, [one], lambda: "the same")
