"""The ledger on a cluster of three NATS servers: no loss and no stale write while each of them dies in turn."""

import asyncio
import logging
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from nats.errors import TimeoutError as NatsTimeoutError
from nats.js.errors import ServiceUnavailableError

from gpuledger.events.position import number_of
from gpuledger.ledger.api import Expected, Outgoing, Reader
from gpuledger.ledger.connect import connected
from gpuledger.ledger.errors import LedgerUnavailableError, LogRestoredError, PublishError, SequenceConflictError
from gpuledger.ledger.jetstream import JetStreamLedger
from gpuledger.ledger.stream import create_ledger
from gpuledger.runtime.clock import random_id
from gpuledger.tools.doctor import Check, LedgerChecks, Status
from support.ledgers import everything, jetstream_ledger, new_ledger, numbers_of, outgoing, read_count
from support.log_copies import keep_copy, put_back
from support.nats_cluster import ClusterServer, NatsCluster, nats_cluster
from support.projections import publish
from support.runners import failures
from support.servers import nats_answer
from support.waiting import eventually

STREAM = "LEDGER_1"
EVENTS_PER_BATCH = 50

OURS = "ledger.svc.away.>"
GROUPS = 60
MESSAGES_PER_GROUP_MAX = 3

RARE_HEARTBEAT_S = 12.0
"""Six in vain take longer than a test waits for anything, one and a half do not."""

ATTEMPTS_MAX = 20

pytestmark = [pytest.mark.long, pytest.mark.timeout(600)]


@pytest.fixture
def cluster() -> Iterator[NatsCluster]:
    """A cluster for one test: a server that was away takes long to forget a stream that was deleted meanwhile."""
    with nats_cluster() as cluster:
        yield cluster


async def make(cluster: NatsCluster, replicas: int | None = None) -> None:
    async with connected(cluster.url, name="migrate") as connection:
        await create_ledger(connection, "the-ledger", replicas)


def replicas(cluster: NatsCluster) -> int:
    return int(nats_answer(cluster.url, f"$JS.API.STREAM.INFO.{STREAM}")["config"]["num_replicas"])


async def are_current(cluster: NatsCluster) -> bool:
    """Whether every replica has everything; a cluster that elects a leader does not answer."""
    info = await cluster.answer(f"$JS.API.STREAM.INFO.{STREAM}")
    found = [] if info is None else info["cluster"].get("replicas", [])
    return len(found) == 2 and all(one["current"] for one in found)


async def leader_of(cluster: NatsCluster) -> ClusterServer:
    """The server that leads the stream, once somebody says which."""
    names: list[str] = []

    async def is_led() -> bool:
        info = await cluster.answer(f"$JS.API.STREAM.INFO.{STREAM}")
        names[:] = [info["cluster"]["leader"]] if info is not None and info["cluster"].get("leader") else []
        return bool(names)

    await eventually(is_led)
    return cluster.named(names[0])


async def checked(cluster: NatsCluster) -> Check:
    """What doctor says of the replicas."""
    return next(
        check for check in [check async for check in LedgerChecks(cluster.url, None).run()] if check.check == "replicas"
    )


async def test_three_servers_keep_three_replicas(cluster: NatsCluster) -> None:
    await make(cluster)
    assert replicas(cluster) == 3
    await eventually(lambda: are_current(cluster))
    assert (await checked(cluster)).status is Status.OK


async def test_a_number_that_is_set_holds_and_migrate_raises_it(cluster: NatsCluster) -> None:
    await make(cluster, 1)
    assert replicas(cluster) == 1
    found = await checked(cluster)
    assert (found.status, "Set GPULEDGER_NATS_REPLICAS=3 and run" in found.detail) == (Status.WARNING, True)
    await make(cluster)
    assert replicas(cluster) == 1, "what is there is altered only where a number is set"
    await make(cluster, 3)
    assert replicas(cluster) == 3
    await eventually(lambda: are_current(cluster))


async def test_doctor_names_a_replica_that_is_away(cluster: NatsCluster) -> None:
    await make(cluster)
    await eventually(lambda: are_current(cluster))
    leader = await leader_of(cluster)
    away = next(server for server in cluster.servers if server is not leader)
    away.kill()

    async def is_named() -> bool:
        found = await checked(cluster)
        return found.status is Status.WARNING and f"The replica on {away.name_in_cluster} is " in found.detail

    try:
        await eventually(is_named)
    finally:
        await asyncio.to_thread(away.start)
    await eventually(lambda: are_current(cluster))


async def test_a_client_comes_to_servers_that_another_has_named(cluster: NatsCluster) -> None:
    """It has the login of the URL that it was given, and says at once that the other server is gone."""
    await make(cluster)
    await eventually(lambda: are_current(cluster))
    first = cluster.servers[0]
    async with connected(first.url, name="test") as connection:
        first.kill()

        async def is_led() -> bool:
            try:
                await connection.jetstream.stream_info(STREAM)
            except (NatsTimeoutError, ServiceUnavailableError):
                return False
            return True

        await eventually(is_led)
        assert "Authorization" not in str(connection.last_error)


async def server_of_consumer(cluster: NatsCluster) -> ClusterServer:
    """The server that the only consumer is on; one that was closed just now may linger."""
    found: list[dict[str, Any]] = []

    async def is_alone() -> bool:
        answer = await cluster.answer(f"$JS.API.CONSUMER.LIST.{STREAM}")
        found[:] = [] if answer is None else answer["consumers"]
        return len(found) == 1

    await eventually(is_alone)
    return cluster.named(found[0]["cluster"]["leader"])


@asynccontextmanager
async def reading_across_servers(cluster: NatsCluster) -> AsyncIterator[tuple[JetStreamLedger, Reader, ClusterServer]]:
    """A ledger, and a reader whose consumer is on another server than its client; chance puts it there."""
    for _ in range(ATTEMPTS_MAX):
        async with new_ledger(cluster.url, heartbeat_s=RARE_HEARTBEAT_S) as ledger, ledger.read() as reader:
            await ledger.publish(outgoing(0))
            await read_count(reader, 1)
            ours, theirs = ledger._connection.client.connected_url, await server_of_consumer(cluster)
            if ours is not None and ours.port != urlsplit(theirs.url).port:
                yield ledger, reader, theirs
                return
    pytest.fail("every consumer is on the server of its client")


async def test_a_reader_goes_on_though_the_server_of_its_consumer_dies_that_is_not_its_own(
    cluster: NatsCluster, caplog: pytest.LogCaptureFixture
) -> None:
    """Heartbeats are too rare to notice it in time; the servers that are left say that one has gone."""
    await make(cluster)
    await eventually(lambda: are_current(cluster))
    caplog.set_level(logging.INFO, "gpuledger.ledger")
    async with reading_across_servers(cluster) as (ledger, reader, dying):
        dying.kill()
        await ledger.publish(outgoing(1))
        assert numbers_of(await read_count(reader, 1)) == [1]
        assert "is given up: no heartbeat" in caplog.text


async def test_nothing_is_published_into_an_older_copy_that_another_server_comes_back_with(
    cluster: NatsCluster, tmp_path: Path
) -> None:
    """The connection to our own server stands all the time."""
    await make(cluster, 1)
    home = await leader_of(cluster)
    ours = next(one for one in cluster.servers if one is not home)
    async with new_ledger(ours.url) as ledger:
        await publish(ledger, failures(range(1, 21)))
        await asyncio.to_thread(keep_copy, home, tmp_path / "copy")
        await publish(ledger, failures(range(21, 51)))
        async with ledger.read() as reader:
            await read_count(reader, 50)
            home.kill()
            publishing = asyncio.create_task(publish(ledger, failures(range(100, 101))))
            await asyncio.to_thread(put_back, home, tmp_path / "copy")
            with pytest.raises(LogRestoredError, match=r"ends at 1/20, but it was read up to 1/50"):
                await publishing
        assert ledger._connection.times_connected == 1
        assert await ledger.head() == 20


class Publishing:
    """Publishes batch after batch, and counts what was acknowledged."""

    def __init__(self, ledger: JetStreamLedger) -> None:
        self.count = 0
        self._ledger = ledger
        self.task = asyncio.create_task(self.run())

    async def run(self) -> None:
        while True:
            await self._ledger.publish_many([outgoing(self.count + index) for index in range(EVENTS_PER_BATCH)])
            self.count += EVENTS_PER_BATCH

    async def goes_on(self) -> None:
        target = self.count + 20 * EVENTS_PER_BATCH

        async def reached() -> bool:
            assert not self.task.done(), self.task
            return self.count >= target

        await eventually(reached)


@asynccontextmanager
async def publishing(ledger: JetStreamLedger) -> AsyncIterator[Publishing]:
    events = Publishing(ledger)
    yield events
    events.task.cancel()
    await asyncio.gather(events.task, return_exceptions=True)


async def test_no_event_is_lost_while_one_server_after_the_other_dies(cluster: NatsCluster) -> None:
    """The leader of the stream is the first, so that an election falls into the publishing."""
    await make(cluster)
    await eventually(lambda: are_current(cluster))
    read: list[int] = []
    async with jetstream_ledger(cluster.url) as ledger, jetstream_ledger(cluster.url) as other:

        async def follow() -> None:
            async with other.read() as reader:
                while True:
                    read.extend(numbers_of(await reader.next_batch()))

        following = asyncio.create_task(follow())
        async with publishing(ledger) as events:
            leader = await leader_of(cluster)
            for server in (leader, *(one for one in cluster.servers if one is not leader)):
                await events.goes_on()
                server.kill()
                await events.goes_on()
                await asyncio.to_thread(server.start)
                await eventually(lambda: are_current(cluster))
        recorded = numbers_of(await everything(ledger))

        async def has_read_all() -> bool:
            assert not following.done(), following
            return len(read) >= len(recorded)

        await eventually(has_read_all)
        following.cancel()
    assert recorded[: events.count] == list(range(events.count))
    assert read[: len(recorded)] == recorded


async def has_left(ledger: JetStreamLedger, before: int) -> bool:
    """Whether the server of the ledger has said since then that another one is gone."""
    return ledger._connection.client.departures > before


async def test_publishing_into_partitions_goes_on_while_others_than_our_server_die(cluster: NatsCluster) -> None:
    """The connection stands, and what is remembered of places is forgotten whenever one of them leaves."""
    async with jetstream_ledger(cluster.url, partitions=4, puts_in_order=True) as ledger:
        await eventually(lambda: are_current(cluster))
        ours = ledger._connection.client.connected_url
        assert ours is not None
        async with publishing(ledger) as events:
            for server in (one for one in cluster.servers if one.port != ours.port):
                await events.goes_on()
                before = ledger._connection.client.departures
                server.kill()
                await eventually(partial(has_left, ledger, before))
                await events.goes_on()
                await asyncio.to_thread(server.start)
                await eventually(lambda: are_current(cluster))
        assert ledger._connection.times_connected == 1
        recorded = numbers_of(await everything(ledger))
    assert recorded[: events.count] == list(range(events.count))


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
    await make(cluster)
    async with jetstream_ledger(cluster.url) as one, jetstream_ledger(cluster.url) as other:
        writers = [Writer(one, "one"), Writer(other, "other")]
        tasks = [asyncio.create_task(writer.run(GROUPS)) for writer in writers]

        async def half_is_there() -> bool:
            return min(writer.recorded for writer in writers) >= GROUPS // 2

        await eventually(half_is_there)
        leader = await leader_of(cluster)
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
