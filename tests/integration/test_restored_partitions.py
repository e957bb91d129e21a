"""A store that is put back while a ledger is open: who only publishes goes on in it, with one partition or four."""

import asyncio
from pathlib import Path

import pytest

from gpuledger.ledger.api import Expected, Outgoing
from gpuledger.ledger.order import Entry, Order
from gpuledger.ledger.partitioned import PartitionedLedger
from gpuledger.ledger.partitions import Upto
from gpuledger.ledger.sequencer import Sequencer
from gpuledger.local.servers.nats import NatsServer
from support.ledgers import everything, jetstream_ledger, numbers_of, outgoing
from support.log_copies import keep_copy, put_back
from support.waiting import eventually

ORIGINS = ("test1", "test7", "test0", "test5")
"""Each is in another one of four partitions."""


@pytest.mark.parametrize("partitions", [1, 4])
async def test_who_only_publishes_goes_on_in_an_older_copy(
    fresh_nats: NatsServer, tmp_path: Path, partitions: int
) -> None:
    """What was asked about lost events is forgotten: other ones stand in their places."""
    async with jetstream_ledger(fresh_nats.url, partitions=partitions, puts_in_order=True) as ledger:
        for number in range(1, 5):
            await ledger.publish(of_an_origin(number))
        keep_copy(fresh_nats, tmp_path / "copy")
        for number in range(5, 13):
            await ledger.publish(of_an_origin(number))
        assert numbers_of(filter(None, [await ledger.message_at(place) for place in (6, 7)])) == [6, 7]
        put_back(fresh_nats, tmp_path / "copy")
        receipts = [await ledger.publish(of_an_origin(number)) for number in (24, 23, 22)]
        assert [receipt.sequence for receipt in receipts] == [5, 6, 7]
        assert numbers_of(await everything(ledger)) == [1, 2, 3, 4, 24, 23, 22]
        assert numbers_of(filter(None, [await ledger.message_at(place) for place in (6, 7)])) == [23, 22]


async def test_what_was_published_into_the_lost_store_is_expected_nowhere_else(
    fresh_nats: NatsServer, tmp_path: Path
) -> None:
    """Others have published since into the places that the lost events had, and each into another partition."""
    url = fresh_nats.url
    async with (
        jetstream_ledger(url, partitions=4, puts_in_order=True) as ledger,
        jetstream_ledger(url, puts_in_order=True) as other,
    ):
        for number in range(1, 5):
            await ledger.publish(of_an_origin(number))
        keep_copy(fresh_nats, tmp_path / "copy")
        for number in range(5, 9):
            await ledger.publish(of_an_origin(number))
        put_back(fresh_nats, tmp_path / "copy")
        places = [(await other.publish(of_an_origin(number))).sequence for number in (24, 23, 22)]
        assert places == [5, 6, 7]
        assert await ledger.head() == 7  # it is connected again, as whoever has read the event to expect is
        expected = Expected(f"ledger.svc.{ORIGINS[23 % 4]}.>", places[1])
        assert (await ledger.publish(of_an_origin(27), expected)).sequence == 8
        assert numbers_of(await everything(ledger)) == [1, 2, 3, 4, 24, 23, 22, 27]


async def test_who_has_led_in_the_lost_store_appends_nothing_of_it(
    fresh_nats: NatsServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The order is as long again as in the lost store when it gets to append: the server would take it."""
    append, tried, url = Sequencer._append, asyncio.Event(), fresh_nats.url
    async with jetstream_ledger(url, partitions=4, puts_in_order=True) as ledger:
        assert isinstance(ledger, PartitionedLedger)
        sequencer = ledger.sequencer
        for number in range(1, 5):
            await ledger.publish(of_an_origin(number))
        keep_copy(fresh_nats, tmp_path / "copy")
        for number in range(5, 9):
            await ledger.publish(of_an_origin(number))
        before = sequencer._heads
        assert before is not None

        async def appending(one: Sequencer, last: Entry, upto: Upto) -> Entry | None:
            if one is sequencer:
                await eventually(lambda: is_as_long(one._order, last.number))
                tried.set()
            return await append(one, last, upto)

        async def has_begun_anew_or_tried() -> bool:
            return sequencer._heads is not before or tried.is_set()

        monkeypatch.setattr(Sequencer, "_append", appending)
        put_back(fresh_nats, tmp_path / "copy")
        async with jetstream_ledger(url) as other:
            assert isinstance(other, PartitionedLedger)
            for number in (24, 23, 22, 28):
                await other.publish(of_an_origin(number))
            await eventually(has_begun_anew_or_tried)
            assert (await other.log.order.last()).upto == await other.log.lengths()
            assert numbers_of(await everything(other)) == [1, 2, 3, 4, 24, 23, 22, 28]


async def is_as_long(order: Order, number: int) -> bool:
    return (await order.last()).number >= number


def of_an_origin(number: int) -> Outgoing:
    message = outgoing(number)
    return message._replace(subject=message.subject.replace(".test.", f".{ORIGINS[number % 4]}."))
