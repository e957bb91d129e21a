"""Readers whose consumer a cluster puts on a server that died just now: nobody ever answers to that consumer's name.

The leader of the metadata group takes such a server for alive for seconds. Requests that are not sent stand for those.
"""

import asyncio
from collections.abc import AsyncIterator, Callable

import pytest
from nats.errors import TimeoutError as NatsTimeoutError
from nats.js import JetStreamContext
from nats.js.api import ConsumerConfig, ConsumerInfo

from gpuledger.ledger.client import LedgerClient
from gpuledger.ledger.errors import LedgerUnavailableError
from gpuledger.ledger.jetstream import JetStreamLedger
from support.ledgers import DEADLINE_S, jetstream_ledger, numbers_of, outgoing, read_count

BOUND_S = 1.5
"""Longer than one consumer is waited for, and shorter than two."""

IsDead = Callable[[str], bool]


@pytest.fixture
async def ledger(clean_nats_url: str) -> AsyncIterator[JetStreamLedger]:
    async with jetstream_ledger(clean_nats_url, puts_in_order=True, restore_timeout_s=DEADLINE_S) as opened:
        yield opened


def leave_unanswered(monkeypatch: pytest.MonkeyPatch, is_dead: IsDead) -> None:
    """From now on the server counts as one of a cluster, and nobody answers to the creation of such consumers."""
    add = JetStreamContext.add_consumer

    async def added(context: JetStreamContext, stream: str, config: ConsumerConfig) -> ConsumerInfo:
        if is_dead(str(config.name)):
            raise NatsTimeoutError
        return await add(context, stream, config)

    monkeypatch.setattr(LedgerClient, "is_clustered", True)
    monkeypatch.setattr(JetStreamContext, "add_consumer", added)


async def test_a_reader_goes_on_with_a_consumer_of_another_name(
    ledger: JetStreamLedger, monkeypatch: pytest.MonkeyPatch
) -> None:
    await ledger.publish(outgoing(1))
    asked: list[str] = []

    def is_the_first(name: str) -> bool:
        asked.append(name)
        return name == asked[0]

    leave_unanswered(monkeypatch, is_the_first)
    async with ledger.read() as reader:
        assert numbers_of(await read_count(reader, 1)) == [1]
    assert asked.count(asked[0]) > 1, "it is asked again first: the request may have been lost"


async def test_a_reader_gives_up_within_its_bound_whatever_the_names(
    clean_nats_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: set[str] = set()

    def is_dead(name: str) -> bool:
        asked.add(name)
        return True

    async with jetstream_ledger(clean_nats_url, partitions=1, restore_timeout_s=BOUND_S) as ledger:
        leave_unanswered(monkeypatch, is_dead)
        began_s = asyncio.get_running_loop().time()
        async with ledger.read() as reader:
            with pytest.raises(LedgerUnavailableError, match="does not answer"):
                await asyncio.wait_for(reader.next_batch(), DEADLINE_S)
        assert asyncio.get_running_loop().time() - began_s < 2 * BOUND_S
    assert len(asked) == 2
