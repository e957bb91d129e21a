"""What puts the partitions' events into the log: killed, doubled, refused and away, it loses and repeats nothing."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack

import nats
import pytest

from gpuledger.events.position import number_of
from gpuledger.ledger.api import Message, Outgoing
from gpuledger.ledger.errors import LedgerUnavailableError, LogChangedError, PublishError
from gpuledger.ledger.order import Entry
from gpuledger.ledger.partitioned import PartitionedLedger
from gpuledger.ledger.partitions import Upto, partition_streams
from gpuledger.ledger.sequencer import Sequencer
from gpuledger.local.servers.nats import NatsServer
from support.ledgers import everything, jetstream_ledger
from support.waiting import eventually

PARTITIONS = 4
STREAMS = partition_streams("LEDGER_1", PARTITIONS)
NODES = [f"n{number}" for number in range(8)]
EACH = 50


def of(node: str, number: int) -> Outgoing:
    return Outgoing(f"ledger.node.{node}.device.d.happened", f"{node}-{number}", f"{node} {number}".encode())


async def opened(stack: AsyncExitStack, url: str) -> PartitionedLedger:
    ledger = await stack.enter_async_context(jetstream_ledger(url, partitions=PARTITIONS))
    assert isinstance(ledger, PartitionedLedger)
    return ledger


@pytest.fixture
async def ledger(clean_nats_url: str) -> AsyncIterator[PartitionedLedger]:
    async with AsyncExitStack() as stack:
        yield await opened(stack, clean_nats_url)


def assert_whole(log: list[Message]) -> None:
    assert [number_of(message.sequence) for message in log] == list(range(1, len(NODES) * EACH + 1))
    for node in NODES:
        own = [message.data for message in log if message.subject.startswith(f"ledger.node.{node}.")]
        assert own == [f"{node} {number}".encode() for number in range(EACH)]


async def publish_all(ledgers: list[PartitionedLedger]) -> None:
    async def record(at: int, node: str) -> None:
        for number in range(EACH):
            await ledgers[at % len(ledgers)].publish(of(node, number))

    await asyncio.gather(*(record(at, node) for at, node in enumerate(NODES)))


async def test_several_at_once_lose_and_repeat_nothing(clean_nats_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before every second append of one, another one appends, with all of it or with a part."""
    append, appends, refused = Sequencer._append, 0, 0
    async with AsyncExitStack() as stack:
        ledgers = [await opened(stack, clean_nats_url) for _ in range(3)]

        async def overtaken(self: Sequencer, last: Entry, upto: Upto) -> Entry | None:
            nonlocal appends, refused
            appends += 1
            if appends % 2 == 0:
                other = next(one.sequencer for one in ledgers if one.sequencer is not self)
                at = next(at for at, (then, now) in enumerate(zip(last.upto, upto, strict=True)) if now > then)
                part = (*last.upto[:at], upto[at], *last.upto[at + 1 :])
                await append(other, last, part if appends % 4 == 0 else upto)
            found = await append(self, last, upto)
            refused += found is None
            return found

        monkeypatch.setattr(Sequencer, "_append", overtaken)
        await publish_all(ledgers)
        logs = [await everything(one) for one in ledgers]
    assert refused
    assert_whole(logs[0])
    assert logs[1:] == logs[:1] * 2


@pytest.mark.parametrize("step", ["before it is sent", "before it is acknowledged"])
async def test_one_that_is_killed_at_a_step_is_followed_by_another(
    ledger: PartitionedLedger, step: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It dies in every third append; who publishes calls another one."""
    append, appends = Sequencer._append, 0

    async def dying(self: Sequencer, last: Entry, upto: Upto) -> Entry | None:
        nonlocal appends
        appends += 1
        if appends % 3 == 0 and step == "before it is sent":
            return None
        found = await append(self, last, upto)
        return None if appends % 3 == 0 else found

    monkeypatch.setattr(Sequencer, "_append", dying)
    await publish_all([ledger])
    assert appends > 3
    assert_whole(await everything(ledger))


async def test_what_was_recorded_while_nobody_ran_comes_into_the_log_with_the_next(clean_nats_url: str) -> None:
    client = await nats.connect(clean_nats_url)
    async with AsyncExitStack() as stack:
        ledger = await opened(stack, clean_nats_url)
        await ledger.publish(of("n0", 0))
    for partition in range(PARTITIONS):
        await client.request(f"part.{partition}.ledger.node.x.device.d.happened", b"late")
    async with AsyncExitStack() as stack:
        ledger = await opened(stack, clean_nats_url)
        assert await ledger.head() == 1
        assert [one.data for one in await everything(ledger)] == [b"n0 0"]
        assert await ledger.last_sequence("ledger.node.*.device.>") == 1
        ledger.sequencer.call()

        async def are_in() -> bool:
            return await ledger.head() == 1 + PARTITIONS

        await eventually(are_in)
        assert [one.data for one in await everything(ledger)] == [b"n0 0", *[b"late"] * PARTITIONS]
    await client.close()


async def test_a_service_puts_into_the_log_what_nobody_else_does(clean_nats_url: str) -> None:
    client = await nats.connect(clean_nats_url)
    async with jetstream_ledger(clean_nats_url, partitions=PARTITIONS, puts_in_order=True) as ledger:
        await client.request("part.2.ledger.node.x.device.d.happened", b"1")
        async with ledger.read() as reader:
            assert [one.data for one in await reader.next_batch()] == [b"1"]
    await client.close()


async def test_answers_that_somebody_has_sent_to_the_order_say_nothing(
    ledger: PartitionedLedger, clean_nats_url: str
) -> None:
    client = await nats.connect(clean_nats_url)
    for number in range(6):
        await ledger.publish(of(NODES[number], 0))
        await client.request("order.1", b'{"stream":"LEDGER_1","seq":7}')
    log = await everything(ledger)
    assert [one.sequence for one in log] == list(range(1, 7))
    for message in log:
        found = await ledger.message_at(message.sequence)
        assert found is not None
        assert found[:3] == message[:3]
    await client.close()


async def test_what_is_not_put_into_the_log_in_time_is_an_error(
    clean_nats_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Sequencer, "call", lambda _: None)
    async with jetstream_ledger(clean_nats_url, partitions=PARTITIONS, publish_timeout_s=0.2) as ledger:
        with pytest.raises(PublishError, match=r"not put into the log within 0\.2 s\. Start `gpuledger up`"):
            await ledger.publish(of("n0", 0))


@pytest.mark.parametrize("stream", [pytest.param(STREAMS[2], marks=pytest.mark.long), "LEDGER_1"])
async def test_a_stream_that_goes_away_fails_whoever_reads(fresh_nats: NatsServer, stream: str) -> None:
    async with AsyncExitStack() as stack:
        ledger = await opened(stack, fresh_nats.url)
        await publish_all([ledger])
        reader = await stack.enter_async_context(ledger.read())
        while (await reader.next_batch())[-1].sequence != len(NODES) * EACH:
            pass
        client = await nats.connect(fresh_nats.url)
        await client.jetstream().delete_stream(stream)
        await client.close()
        with pytest.raises(LogChangedError, match=f"no stream {stream}"):
            await reader.next_batch()
        with pytest.raises(LogChangedError, match=f"no stream {stream}"):
            await ledger.messages_at(range(1, len(NODES) * EACH + 1))
        with pytest.raises((LogChangedError, PublishError, LedgerUnavailableError)):
            await ledger.confirm()


async def test_a_partition_that_lost_events_of_the_log_is_an_error(fresh_nats: NatsServer) -> None:
    """The stream is there again, whole by itself, and shorter than the order says."""
    async with AsyncExitStack() as stack:
        ledger = await opened(stack, fresh_nats.url)
        await publish_all([ledger])
        client = await nats.connect(fresh_nats.url)
        config = (await client.jetstream().stream_info(STREAMS[1])).config
        await client.jetstream().delete_stream(STREAMS[1])
        await client.jetstream().add_stream(config)
        await client.close()
        with pytest.raises(LogChangedError, match=f"{STREAMS[1]} .* has 0 events"):
            await ledger.confirm()
        with pytest.raises(LogChangedError, match="has 0 events"):
            await opened(stack, fresh_nats.url)
