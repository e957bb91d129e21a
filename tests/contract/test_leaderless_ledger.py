"""Publishing while nothing takes messages, as in a cluster that elects a leader, to a server that is too busy, and when
a server comes back.

A stream that is deleted, and made again, stands for one without a leader: the server refuses its messages alike.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import Any

import pytest
from nats.js import JetStreamContext

from contract.test_jetstream_ledger import STREAM, raw
from gpuledger.ledger import continuity
from gpuledger.ledger.api import Receipt
from gpuledger.ledger.atomic import BATCH_MESSAGES_MIN
from gpuledger.ledger.connect import Connection
from gpuledger.ledger.gate import PublishGate
from gpuledger.ledger.identity import LedgerIdentity
from gpuledger.ledger.jetstream import JetStreamLedger
from gpuledger.local.servers.nats import NatsServer
from support.ledgers import DEADLINE_S, everything, jetstream_ledger, new_ledger, numbers_of, outgoing, publisher_of
from support.servers import short_directory
from support.waiting import eventually

CALLS = 400
PROBES = 10


BUFFERED_MAX = 20
"""How many messages wait in a busy server; by default ten thousand."""


class BusyNats(NatsServer):
    """A server that soon refuses messages because others wait to be recorded."""

    def _configuration(self, port: int) -> dict[str, object]:
        basics = super()._configuration(port)
        store = basics["jetstream"]
        assert isinstance(store, dict)
        return basics | {"jetstream": store | {"max_buffered_msgs": BUFFERED_MAX}}


@pytest.fixture
def busy_nats() -> Iterator[BusyNats]:
    with short_directory() as folder, BusyNats(folder / "nats") as server:
        yield server


@pytest.fixture
async def ledger(clean_nats_url: str) -> AsyncIterator[JetStreamLedger]:
    async with jetstream_ledger(clean_nats_url) as opened:
        yield opened


@pytest.fixture
async def jetstream(clean_nats_url: str) -> AsyncIterator[JetStreamContext]:
    async with raw(clean_nats_url) as context:
        yield context


def sent(ledger: JetStreamLedger) -> int:
    """How many messages this ledger's client has sent."""
    return int(ledger._connection.client.stats["out_msgs"])


async def publish_each(ledger: JetStreamLedger) -> list[Receipt]:
    return await asyncio.gather(*(ledger.publish(outgoing(number)) for number in range(CALLS)))


async def publish_at_once(ledger: JetStreamLedger) -> list[Receipt]:
    return list(await ledger.publish_many([outgoing(number) for number in range(CALLS)]))


@pytest.mark.parametrize("publish", [publish_each, publish_at_once], ids=lambda one: one.__name__)
async def test_without_a_leader_one_call_at_a_time_asks_with_one_message(
    ledger: JetStreamLedger,
    jetstream: JetStreamContext,
    publish: Callable[[JetStreamLedger], Awaitable[list[Receipt]]],
) -> None:
    config = (await jetstream.stream_info(STREAM)).config
    await jetstream.delete_stream(STREAM)
    before = sent(ledger)
    publishing = asyncio.ensure_future(publish(ledger))

    async def has_probed() -> bool:
        return sent(ledger) >= before + CALLS + PROBES

    await eventually(has_probed)
    assert sent(ledger) <= before + CALLS + PROBES + PROBES, "more than one call asks again"
    await jetstream.add_stream(config)
    receipts = await asyncio.wait_for(publishing, DEADLINE_S)
    assert {receipt.sequence for receipt in receipts} == set(range(1, CALLS + 1))
    assert sorted(numbers_of(await everything(ledger))) == list(range(CALLS))
    # Each message when it is called, the probes, and each message again.
    assert sent(ledger) - before < 3 * CALLS


@pytest.mark.parametrize("publish", [publish_each, publish_at_once], ids=lambda one: one.__name__)
async def test_what_a_busy_server_refuses_is_sent_again(
    busy_nats: BusyNats, publish: Callable[[JetStreamLedger], Awaitable[list[Receipt]]]
) -> None:
    async with new_ledger(busy_nats.url) as ledger:
        before = sent(ledger)
        await publish(ledger)
        assert sent(ledger) > before + CALLS, "the server was not too busy"
        assert sorted(numbers_of(await everything(ledger))) == list(range(CALLS))


async def test_a_batch_is_not_tried_before_a_closed_gate(ledger: JetStreamLedger) -> None:
    gate = publisher_of(ledger).gate
    gate.close("no leader")
    receipts = await ledger.publish_many([outgoing(number) for number in range(BATCH_MESSAGES_MIN)])
    assert [receipt.sequence for receipt in receipts] == list(range(1, BATCH_MESSAGES_MIN + 1))
    assert gate.is_open


async def test_a_probe_that_is_lost_while_leaders_change_is_soon_sent_again(
    ledger: JetStreamLedger, monkeypatch: pytest.MonkeyPatch
) -> None:
    publisher = publisher_of(ledger)
    publisher.gate = PublishGate(3_600.0)  # it notices no silence
    publisher.gate.close("no leader")
    client, lost = ledger._connection.client, list[str]()
    really = client.publish

    async def losing_the_first(subject: str, *message: Any) -> None:
        if lost:
            await really(subject, *message)
        else:
            lost.append(subject)

    monkeypatch.setattr(client, "publish", losing_the_first)
    receipt = await asyncio.wait_for(ledger.publish(outgoing(0)), DEADLINE_S)
    assert (len(lost), receipt) == (1, Receipt(1, duplicate=False))


async def test_the_log_is_confirmed_once_for_all_calls_that_wait_for_the_server(
    fresh_nats: NatsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    confirmed = 0
    really = continuity.confirm_log

    async def counted(connection: Connection, expected: LedgerIdentity, *more: Any) -> None:
        nonlocal confirmed
        confirmed += 1
        await really(connection, expected, *more)

    monkeypatch.setattr(continuity, "confirm_log", counted)
    async with new_ledger(fresh_nats.url) as ledger:
        fresh_nats.kill()
        publishing = asyncio.gather(*(ledger.publish(outgoing(number)) for number in range(CALLS)))
        await asyncio.sleep(0)
        fresh_nats.start()
        receipts = await asyncio.wait_for(publishing, DEADLINE_S)
        assert {receipt.sequence for receipt in receipts} == set(range(1, CALLS + 1))
        assert confirmed <= ledger._connection.times_connected
