"""A store that is put back while a ledger is open: who only publishes goes on in it, with one partition or four."""

from pathlib import Path

import pytest

from gpuledger.ledger.api import Expected, Outgoing
from gpuledger.local.servers.nats import NatsServer
from support.ledgers import everything, jetstream_ledger, numbers_of, outgoing
from support.log_copies import keep_copy, put_back

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
        expected = Expected(f"ledger.svc.{ORIGINS[23 % 4]}.>", places[1])
        assert (await ledger.publish(of_an_origin(27), expected)).sequence == 8
        assert numbers_of(await everything(ledger)) == [1, 2, 3, 4, 24, 23, 22, 27]


def of_an_origin(number: int) -> Outgoing:
    message = outgoing(number)
    return message._replace(subject=message.subject.replace(".test.", f".{ORIGINS[number % 4]}."))
