"""Publishing in batches: that they are used, and that whatever breaks one loses, doubles and reorders nothing."""

import asyncio
import logging
from collections.abc import AsyncIterator

import nats
import pytest
from nats.js import JetStreamContext

from gpuledger.events.subjects import ALL
from gpuledger.ledger.api import Outgoing, Receipt
from gpuledger.ledger.atomic import BATCH_BYTES_MAX, BATCH_ID, BATCH_MESSAGES_MAX, BATCH_MESSAGES_MIN
from gpuledger.ledger.connect import connected
from gpuledger.ledger.errors import GenerationError, PublishError
from gpuledger.ledger.jetstream import JetStreamLedger
from gpuledger.ledger.restoring import begin_generation
from gpuledger.ledger.stream import create_ledger, stream_config
from gpuledger.local.servers.nats import NatsServer
from support.ledgers import DEADLINE_S, everything, jetstream_ledger, new_ledger, numbers_of, outgoing, read_count

STREAM = "LEDGER_1"
EVENTS = 3 * BATCH_MESSAGES_MAX + 7
KILLED_EVENTS = 12 * BATCH_MESSAGES_MAX
KILLS_AT = (1, 2500, 4000, 5500, 8000, 10_500)


@pytest.fixture
async def jetstream(clean_nats_url: str) -> AsyncIterator[JetStreamContext]:
    """The server seen past the ledger, as an operator's tool would."""
    client = await nats.connect(clean_nats_url)
    try:
        yield client.jetstream()
    finally:
        await client.close()


@pytest.fixture
async def ledger(clean_nats_url: str) -> AsyncIterator[JetStreamLedger]:
    async with jetstream_ledger(clean_nats_url) as opened:
        yield opened


def series(count: int, *, start: int = 0) -> list[Outgoing]:
    return [outgoing(number) for number in range(start, start + count)]


def recorded(first: int, last: int, *, duplicate: bool = False) -> list[Receipt]:
    return [Receipt(sequence, duplicate) for sequence in range(first, last + 1)]


async def batch_of(jetstream: JetStreamContext, sequence: int) -> str | None:
    """The batch that a message was recorded in, None for one that was published by itself."""
    return ((await jetstream.get_msg(STREAM, sequence)).headers or {}).get(BATCH_ID)


async def disallow_batches(jetstream: JetStreamContext) -> None:
    info = await jetstream.stream_info(STREAM)
    await jetstream.update_stream(info.config.evolve(allow_atomic=False))


async def test_many_messages_go_in_batches_and_in_order(ledger: JetStreamLedger, jetstream: JetStreamContext) -> None:
    assert await ledger.publish_many(series(EVENTS)) == recorded(1, EVENTS)
    assert numbers_of(await everything(ledger)) == list(range(EVENTS))
    borders = [await batch_of(jetstream, at) for at in (1, BATCH_MESSAGES_MAX, BATCH_MESSAGES_MAX + 1, EVENTS)]
    assert None not in borders
    assert borders[0] == borders[1]
    assert len(set(borders)) == 3


async def test_few_messages_go_by_themselves(ledger: JetStreamLedger, jetstream: JetStreamContext) -> None:
    assert await ledger.publish_many(series(BATCH_MESSAGES_MIN - 1)) == recorded(1, BATCH_MESSAGES_MIN - 1)
    assert await batch_of(jetstream, 1) is None


async def test_batches_are_bounded_in_bytes(ledger: JetStreamLedger, jetstream: JetStreamContext) -> None:
    size, count = BATCH_BYTES_MAX // 10, 2 * BATCH_MESSAGES_MIN
    large = [message._replace(data=message.data.ljust(size)) for message in series(count)]
    assert await ledger.publish_many(large) == recorded(1, count)
    assert len({await batch_of(jetstream, sequence) for sequence in range(1, count + 1)}) == 4
    assert numbers_of(await everything(ledger)) == list(range(count))


async def test_a_call_that_is_repeated_records_nothing_twice(ledger: JetStreamLedger) -> None:
    await ledger.publish_many(series(EVENTS))
    assert await ledger.publish_many(series(EVENTS)) == recorded(1, EVENTS, duplicate=True)
    assert await ledger.head() == EVENTS


async def test_a_call_goes_on_behind_what_was_recorded_of_it(ledger: JetStreamLedger) -> None:
    there = BATCH_MESSAGES_MAX + 500
    await ledger.publish_many(series(there))
    receipts = await ledger.publish_many(series(EVENTS))
    assert receipts == recorded(1, there, duplicate=True) + recorded(there + 1, EVENTS)
    assert numbers_of(await everything(ledger)) == list(range(EVENTS))


async def test_single_messages_that_are_there_keep_their_places(ledger: JetStreamLedger) -> None:
    await ledger.publish_many([outgoing(700), outgoing(1500)])
    receipts = await ledger.publish_many(series(EVENTS))
    assert (receipts[700], receipts[1500]) == (Receipt(1, duplicate=True), Receipt(2, duplicate=True))
    rest = [number for number in range(EVENTS) if number not in {700, 1500}]
    assert numbers_of(await everything(ledger)) == [700, 1500, *rest]
    assert [receipts[number] for number in rest] == recorded(3, EVENTS)


async def test_a_message_that_is_given_twice_is_recorded_once(ledger: JetStreamLedger) -> None:
    receipts = await ledger.publish_many([outgoing(1), outgoing(2), outgoing(1), outgoing(3)])
    assert [tuple(receipt) for receipt in receipts] == [(1, False), (2, False), (1, True), (3, False)]
    assert numbers_of(await everything(ledger)) == [1, 2, 3]


async def test_more_batches_at_once_than_the_server_takes(ledger: JetStreamLedger) -> None:
    def of(name: str) -> list[Outgoing]:
        return [outgoing(number, aggregate_id=name, id_prefix=name) for number in range(40)]

    names = [f"a{number}" for number in range(120)]
    await asyncio.gather(*(ledger.publish_many(of(name)) for name in names))
    for name in names:
        assert numbers_of(await everything(ledger, subject_filter=f"ledger.*.*.device.{name}.>")) == list(range(40))


async def test_a_stream_that_allows_no_batches_is_only_slower(
    ledger: JetStreamLedger, jetstream: JetStreamContext, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "gpuledger.ledger")
    await disallow_batches(jetstream)
    assert await ledger.publish_many(series(EVENTS)) == recorded(1, EVENTS)
    assert await ledger.publish_many(series(10, start=EVENTS)) == recorded(EVENTS + 1, EVENTS + 10)
    assert numbers_of(await everything(ledger)) == list(range(EVENTS + 10))
    assert [await batch_of(jetstream, sequence) for sequence in (1, EVENTS + 10)] == [None, None]
    assert caplog.text.count("takes no batches") == 1


async def test_a_stream_of_before_batches_is_allowed_them_and_else_left_alone(
    clean_nats_url: str, jetstream: JetStreamContext
) -> None:
    config = stream_config(1).evolve(allow_atomic=None, description="ours", max_bytes=1 << 30)
    before = (await jetstream.add_stream(config)).config
    async with connected(clean_nats_url, name="migrate") as connection:
        await create_ledger(connection, "the ledger's id")
    async with jetstream_ledger(clean_nats_url) as ledger:
        await ledger.publish_many(series(BATCH_MESSAGES_MIN))
    after = (await jetstream.stream_info(STREAM)).config
    assert after.allow_atomic
    assert after.evolve(allow_atomic=None, metadata=None) == before.evolve(allow_atomic=None, metadata=None)
    assert await batch_of(jetstream, 2) is not None


async def test_the_refused_message_is_named_and_earlier_ones_stay(clean_nats_url: str) -> None:
    messages = series(10)
    messages[6] = Outgoing("elsewhere", "stray", b"")
    async with jetstream_ledger(clean_nats_url, publish_timeout_s=2.0) as ledger:
        with pytest.raises(PublishError, match=r"stray was not acknowledged .*no stream takes the subject"):
            await ledger.publish_many(messages)
        assert numbers_of(await everything(ledger, until=6)) == list(range(6))


async def test_a_message_that_is_too_large_keeps_all_back(ledger: JetStreamLedger) -> None:
    with pytest.raises(PublishError, match="raise max_payload"):
        await ledger.publish_many([*series(EVENTS), outgoing(EVENTS)._replace(data=b" " * 1024 * 1024)])
    assert await ledger.head() == 0


async def test_a_batch_for_a_generation_that_was_archived_is_an_error(clean_nats_url: str) -> None:
    async with jetstream_ledger(clean_nats_url) as old:
        async with connected(clean_nats_url, name="restore") as connection:
            await begin_generation(connection)
        with pytest.raises(GenerationError, match="LEDGER_2"):
            await old.publish_many(series(10))


@pytest.mark.parametrize("turns", [0, 3, 30])
async def test_kills_in_the_middle_of_batches_lose_and_double_nothing(fresh_nats: NatsServer, turns: int) -> None:
    sent = series(KILLED_EVENTS)
    async with (
        new_ledger(fresh_nats.url, name="publisher") as writing,
        jetstream_ledger(fresh_nats.url) as following,
        following.read(subject_filter=ALL) as reader,
    ):
        publishing = asyncio.create_task(writing.publish_many(sent))
        seen: list[int] = []
        for kill_at in (*KILLS_AT, KILLED_EVENTS):
            if len(seen) < kill_at:
                seen += numbers_of(await read_count(reader, kill_at - len(seen)))
            if kill_at < KILLED_EVENTS:
                # So that the kill meets other moments of a batch.
                for _ in range(turns):
                    await asyncio.sleep(0)
                fresh_nats.kill()
                fresh_nats.start()
        receipts = await asyncio.wait_for(publishing, DEADLINE_S)
        assert seen == list(range(KILLED_EVENTS))
        assert [receipt.sequence for receipt in receipts] == list(range(1, KILLED_EVENTS + 1))
        assert numbers_of(await everything(writing)) == list(range(KILLED_EVENTS))
