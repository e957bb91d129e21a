"""The recorded log of every type of event through one partition and through four: the tables are the same."""

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator, Sequence

import pytest

from gpuledger.events.position import number_of
from gpuledger.ledger.api import Ledger, Message, Outgoing
from gpuledger.ledger.jetstream import JetStreamLedger
from gpuledger.projection.replay import fold_until, skipped_positions
from gpuledger.projection.runner import Runner
from gpuledger.readmodels.projections import (
    AllocationsProjection,
    DevicesProjection,
    NodesProjection,
    WorkloadsProjection,
)
from gpuledger.tools.queries.backend import all_projections
from support.events import folded, rows_of
from support.fold_snapshots import CountingLedger, recorded_messages
from support.ledgers import everything, jetstream_ledger
from support.projections import QUICK, assert_true

FACTS = (DevicesProjection(), NodesProjection(), WorkloadsProjection(), AllocationsProjection())


@pytest.fixture
async def four(clean_nats_url: str) -> AsyncIterator[JetStreamLedger]:
    async with jetstream_ledger(clean_nats_url, partitions=4) as ledger:
        yield ledger


def sent(message: Message) -> Outgoing:
    return Outgoing(message.subject, f"m{number_of(message.sequence)}", message.data)


async def test_in_the_order_of_one_partition_every_row_and_place_is_the_same(
    four: JetStreamLedger, migrated_url: str
) -> None:
    """Through PostgreSQL, and decisions as well."""
    log = recorded_messages()
    receipts = await four.publish_many([sent(message) for message in log])
    assert [receipt.sequence for receipt in receipts] == [message.sequence for message in log]
    merged = await everything(four)
    assert [one[:3] for one in merged] == [one[:3] for one in log]
    one = CountingLedger(_as_recorded(log, merged))
    for projection in all_projections():
        folds = [await fold_until(projection, ledger, len(log)) for ledger in (one, four)]
        assert rows_of(folds[0]) == rows_of(folds[1])
    for projection in FACTS:
        await Runner(projection, four, migrated_url, settings=QUICK).catch_up(await four.head())
    await assert_true(four, migrated_url, FACTS)


async def test_side_by_side_the_tables_of_facts_are_the_same(four: JetStreamLedger) -> None:
    """Each origin records by itself, and all of them at once; what an operator skips by its place is left out."""
    log = await _without_skips(recorded_messages())
    origins: dict[str, list[Outgoing]] = defaultdict(list)
    for message in log:
        origins[".".join(message.subject.split(".")[:3])].append(sent(message))
    await asyncio.gather(*(_record(four, messages) for messages in origins.values()))
    merged = await everything(four)
    assert len(origins) > 4
    assert len(merged) == len(log)
    for projection in FACTS:
        one, other = (folded(projection, messages) for messages in (log, merged))
        assert rows_of(one, positions=False) == rows_of(other, positions=False)


async def _record(ledger: Ledger, messages: list[Outgoing]) -> None:
    for start in range(0, len(messages), 5):
        await ledger.publish_many(messages[start : start + 5])


async def _without_skips(log: Sequence[Message]) -> list[Message]:
    skipped = {number_of(at.sequence) for at in await skipped_positions(CountingLedger(log))}
    kept = [one for one in log if one.sequence not in skipped and not one.subject.startswith("ledger.svc.operators.")]
    return [one._replace(sequence=number) for number, one in enumerate(kept, 1)]


def _as_recorded(log: Sequence[Message], merged: Sequence[Message]) -> list[Message]:
    """The log, recorded when the other one was: some rows hold the time of recording."""
    return [one._replace(recorded_ns=other.recorded_ns) for one, other in zip(log, merged, strict=True)]
