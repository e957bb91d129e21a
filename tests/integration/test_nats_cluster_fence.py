"""Two writers of one source on a cluster of three NATS servers: what either records follows what it expects."""

import asyncio
from collections.abc import Iterator

import pytest

from gpuledger.events.position import number_of
from gpuledger.ledger.api import Expected, Outgoing
from gpuledger.ledger.connect import connected
from gpuledger.ledger.errors import LedgerUnavailableError, PublishError, SequenceConflictError
from gpuledger.ledger.jetstream import JetStreamLedger
from gpuledger.ledger.stream import create_ledger
from gpuledger.runtime.clock import random_id
from support.ledgers import everything, jetstream_ledger
from support.nats_cluster import NatsCluster, nats_cluster
from support.waiting import eventually

STREAM = "LEDGER_1"
OURS = "ledger.svc.away.>"
GROUPS = 60
MESSAGES_PER_GROUP_MAX = 3

pytestmark = [pytest.mark.long, pytest.mark.timeout(600)]


@pytest.fixture
def cluster() -> Iterator[NatsCluster]:
    with nats_cluster() as cluster:
        yield cluster


class Writer:
    """Records groups of messages, each of which says behind which position it expects to stand."""

    def __init__(self, ledger: JetStreamLedger, name: str) -> None:
        self.recorded = 0
        self.conflicts = 0
        self._ledger = ledger
        self._name = name

    async def run(self, groups: int) -> None:
        """Record so many groups; a conflict shows where the last message stands by now."""
        while self.recorded < groups:
            try:
                await self._record(1 + self.recorded % MESSAGES_PER_GROUP_MAX)
                self.recorded += 1
            except SequenceConflictError:
                self.conflicts += 1
            except (PublishError, LedgerUnavailableError):
                continue

    async def _record(self, count: int) -> None:
        last = await self._ledger.last_sequence(OURS)
        await asyncio.sleep(0)
        group = [
            Outgoing(
                f"ledger.svc.away.node.{self._name}.registered",
                random_id(),
                f"{number_of(last)} {number} {self._name}".encode(),
            )
            for number in range(count)
        ]
        await self._ledger.publish_many(group, Expected(OURS, last))


async def test_what_is_recorded_stands_behind_what_was_expected_whichever_server_dies(cluster: NatsCluster) -> None:
    async with connected(cluster.url, name="migrate") as connection:
        await create_ledger(connection, "the-ledger", None)
    async with jetstream_ledger(cluster.url) as one, jetstream_ledger(cluster.url) as other:
        writers = [Writer(one, "one"), Writer(other, "other")]
        tasks = [asyncio.create_task(writer.run(GROUPS)) for writer in writers]

        async def half_is_there() -> bool:
            return min(writer.recorded for writer in writers) >= GROUPS // 2

        await eventually(half_is_there)
        leader = cluster.leader(STREAM)
        leader.kill()
        await asyncio.to_thread(leader.start)
        await asyncio.gather(*tasks)
        assert any(writer.conflicts for writer in writers)
        before, previous = 0, ("", "", "")
        for message in await everything(one):
            expected, number, name = message.data.decode().split()
            if number == "0":
                assert int(expected) == before, (message, before)
            else:
                assert previous == (expected, str(int(number) - 1), name)
            before, previous = number_of(message.sequence), (expected, number, name)
