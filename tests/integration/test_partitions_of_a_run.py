"""The suite on ledgers of several partitions (`make test-partitions`): what tests make has them, as a double has."""

import asyncio

import pytest

from gpuledger.ledger.jetstream import JetStreamLedger
from gpuledger.runtime.settings import PARTITIONS
from support.counted_reads import CountedReads
from support.ledgers import everything, jetstream_ledger, make_ledger_blocking, numbers_of, outgoing


@pytest.fixture(autouse=True)
def _three(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(PARTITIONS, "3")


async def test_a_ledger_has_the_partitions_of_the_run_where_its_test_does_not_say(clean_nats_url: str) -> None:
    await asyncio.to_thread(make_ledger_blocking, clean_nats_url)
    async with jetstream_ledger(clean_nats_url) as ledger:
        assert ledger.partitions == 3


async def test_a_double_is_a_ledger_of_the_kind_that_it_doubles(clean_nats_url: str) -> None:
    async with jetstream_ledger(clean_nats_url) as ledger:
        double = CountedReads(ledger)
        await _publish_of_several_origins(double)
        assert numbers_of(await everything(double)) == [1, 2, 3, 4]
        assert double.read_messages == await double.head() == 4
        assert numbers_of(filter(None, [await double.message_at(3)])) == [3]


async def _publish_of_several_origins(ledger: JetStreamLedger) -> None:
    for number in range(1, 5):
        message = outgoing(number)
        await ledger.publish(message._replace(subject=message.subject.replace(".test.", f".test{number}.")))
