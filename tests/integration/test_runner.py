"""The runner on real servers: rows and checkpoint together, one writer, and decisions that are published once."""

import asyncio
import itertools
import json
import socket
from collections.abc import AsyncIterator, Iterator, Sequence
from datetime import datetime, timedelta
from urllib.parse import urlsplit

import pytest

from gpuledger.clock import system_clock
from gpuledger.events.device import DeviceFailed, DeviceInserted
from gpuledger.events.envelope import Decoded, decode, encode
from gpuledger.events.node import NodeDecommissioned, NodeRegistered
from gpuledger.events.slot import SlotDeclared
from gpuledger.events.source import SourcePositionSkipped
from gpuledger.events.workload import DeviceShare, WorkloadEnded, WorkloadScheduled, WorkloadSubmitted
from gpuledger.ledger.api import Ledger, Outgoing, Receipt
from gpuledger.ledger.errors import PublishError
from gpuledger.ledger.jetstream import JetStreamLedger
from gpuledger.projection.definition import Projection
from gpuledger.projection.errors import BadEventError, GenerationMismatchError, VersionError, WriterFencedError
from gpuledger.projection.published import CountedLedger
from gpuledger.projection.runner import Runner, RunnerSettings
from gpuledger.projection.store import Checkpoint
from gpuledger.readmodels.devices import DevicesProjection
from gpuledger.readmodels.workloads import WorkloadsProjection
from gpuledger.sources.decide import GAP_GRACE_S
from gpuledger.sources.main import SourcesProjection
from support.deciders import AWAY_AT_MOST, AWAY_MAX, AwayProjection
from support.events import AGENT, SERVICE, event, hour, outgoing
from support.ledgers import eventually, everything, jetstream_ledger
from support.projections import (
    QUICK,
    all_projections,
    assert_true,
    checkpoint,
    execute,
    prepare,
    publish,
    reaches,
    running,
    stop,
    table,
)

pytestmark = pytest.mark.filterwarnings("ignore:.*was deleted while still open:ResourceWarning")
"""Who is cancelled while it closes a cursor leaves that to the connection, which closes with it."""


@pytest.fixture
async def ledger(clean_nats_url: str) -> AsyncIterator[JetStreamLedger]:
    async with jetstream_ledger(clean_nats_url) as ledger:
        yield ledger


@pytest.fixture
def url(database_url: str) -> str:
    return prepare(database_url)


def failures(numbers: range, source: str = AGENT) -> list[Decoded]:
    return [event(DeviceFailed(kind="DBE"), f"d{number % 7}", number=number, source=source) for number in numbers]


def asked(number: int) -> Decoded:
    return event(NodeRegistered(), f"n{number}", number=number)


def unfit(number: int, source: str) -> Outgoing:
    """An event whose data does not fit its type."""
    good = event(DeviceFailed(kind="?"), "d1", number=number, source=source)
    return outgoing(good)._replace(data=encode(good).replace(b'"?"', b'""'))


class Moving:
    """A clock that goes where it is told."""

    def __init__(self) -> None:
        self.ahead = timedelta()

    def __call__(self) -> datetime:
        return system_clock() + self.ahead


class Failing(CountedLedger):
    """The ledger, until it is told to fail at publishing: before anything was recorded, or behind it."""

    def __init__(self, ledger: Ledger) -> None:
        super().__init__(ledger)
        self.fails: str | None = None
        self.tried: list[list[str]] = []
        self.comes_first: list[Decoded] = []

    async def publish_many(self, messages: Sequence[Outgoing]) -> list[Receipt]:
        self.tried.append([message.id for message in messages])
        if self.fails == "before":
            raise PublishError("The server is gone.")
        first, self.comes_first = self.comes_first, []
        await super().publish_many([outgoing(event) for event in first])
        receipts = await super().publish_many(messages)
        if self.fails == "behind":
            raise PublishError("The server is gone.")
        return receipts


async def decided(ledger: Ledger) -> list[Decoded]:
    """What our own deciders recorded."""
    messages = await everything(ledger)
    return [decode(one.data) for one in messages if one.subject.startswith(("ledger.svc.away.", "ledger.svc.sources."))]


async def test_catching_up_writes_rows_and_checkpoint(ledger: JetStreamLedger, url: str) -> None:
    head = await publish(ledger, failures(range(1, 101)))
    for projection in all_projections():
        assert await Runner(projection, ledger, url, settings=QUICK).catch_up(head)
        found = await checkpoint(url, projection.name)
        assert found is not None
        assert (found.position, found.events) == (head, 100)
    assert len(table(url, "failure")) == 100
    await assert_true(ledger, url, all_projections())


async def test_catching_up_stops_at_what_it_was_told_in_whatever_batches(ledger: JetStreamLedger, url: str) -> None:
    head = await publish(ledger, failures(range(1, 51)))
    small = RunnerSettings(messages_per_batch=7)
    assert await Runner(DevicesProjection(), ledger, url, settings=small).catch_up(head)
    assert await Runner(DevicesProjection(), ledger, url).catch_up(head)
    await assert_true(ledger, url, [DevicesProjection()])
    assert sum(row[0] for row in table(url, "device", "failures")) == 50


async def test_events_that_arrive_become_rows(ledger: JetStreamLedger, url: str) -> None:
    async with running(Runner(DevicesProjection(), ledger, url, settings=QUICK)):
        for start in range(1, 40, 10):
            head = await publish(ledger, failures(range(start, start + 10)))
            await reaches(url, "devices", head)
    assert len(table(url, "failure")) == 40


async def test_an_event_that_comes_twice_counts_once(ledger: JetStreamLedger, url: str) -> None:
    again = [one._replace(id=f"again-{one.id}") for one in failures(range(1, 11))]
    head = await publish(ledger, [*failures(range(1, 11)), *again])
    for projection in all_projections():
        await Runner(projection, ledger, url, settings=QUICK).catch_up(head)
    assert len(table(url, "failure")) == 10
    assert table(url, "source", "events, duplicates, missing") == [(10, 10, 0)]
    await assert_true(ledger, url, all_projections())


async def test_an_id_used_for_two_events_stops_nobody(ledger: JetStreamLedger, url: str) -> None:
    one, other = (one._replace(id="the-same") for one in failures(range(1, 3)))
    projection = DevicesProjection()
    for said, message_id in ((one, "m1"), (other, "m2")):
        await ledger.publish(outgoing(said)._replace(id=message_id))
        await Runner(projection, ledger, url, settings=QUICK).catch_up(await ledger.head())
    assert table(url, "failure", "event_id, device") == [("the-same", "d1"), ("the-same", "d2")]
    await assert_true(ledger, url, [projection])


async def test_amounts_beyond_what_a_column_holds_stop_nobody(ledger: JetStreamLedger, url: str) -> None:
    share = DeviceShare(device="d1", gpu_milli=2**63 - 1)
    scheduled = event(WorkloadScheduled(gpu_milli=1, devices=(share, share)), "w1", number=1)
    head = await publish(ledger, [scheduled])
    await Runner(WorkloadsProjection(), ledger, url, settings=QUICK).catch_up(head)
    assert table(url, "allocation", "gpu_milli") == [(2**63 - 1,)]


async def test_rows_that_retired_come_back_when_an_event_touches_them(ledger: JetStreamLedger, url: str) -> None:
    said = [
        event(WorkloadSubmitted(gpu_milli=1000, owner="ann"), "w1", number=1, at=1),
        event(WorkloadScheduled(gpu_milli=1000, node="n1"), "w1", number=2, at=2),
        event(WorkloadEnded(outcome="Succeeded"), "w1", number=3, at=3),
        event(WorkloadEnded(outcome="Failed"), "w1", number=4, at=5),
        event(WorkloadScheduled(gpu_milli=500, node="n2"), "w1", number=5, at=4),
    ]
    async with running(Runner(WorkloadsProjection(), ledger, url, settings=QUICK)):
        for one in said:
            await reaches(url, "workloads", await publish(ledger, [one]))
    assert table(url, "workload", "owner, node, outcome, phase") == [("ann", "n2", "Failed", "Ended")]
    assert sorted(table(url, "allocation", "node, gpu_milli, valid_from, valid_to")) == [
        ("n1", 1000, hour(2), hour(3)),
        ("n2", 500, hour(4), hour(5)),
    ]
    await assert_true(ledger, url, [WorkloadsProjection()])


async def test_a_second_runner_stands_by_and_takes_over(ledger: JetStreamLedger, url: str) -> None:
    flushed: list[str] = []
    first = Runner(DevicesProjection(), ledger, url, settings=QUICK, on_flush=lambda _: flushed.append("first"))
    second = Runner(DevicesProjection(), ledger, url, settings=QUICK, on_flush=lambda _: flushed.append("second"))
    async with running(first) as (task,):
        await reaches(url, "devices", await publish(ledger, failures(range(1, 11))))
        async with running(second):
            await eventually(lambda: _waits_for_lock(url))
            assert not await Runner(DevicesProjection(), ledger, url).catch_up(1)
            await reaches(url, "devices", await publish(ledger, failures(range(11, 21))))
            assert set(flushed) == {"first"}
            await stop(task)
            await reaches(url, "devices", await publish(ledger, failures(range(21, 31))))
            await eventually(lambda: _holds(flushed[-1] == "second"))
    await assert_true(ledger, url, [DevicesProjection()])


async def test_a_standby_takes_over_when_the_writers_session_dies(ledger: JetStreamLedger, url: str) -> None:
    runners = [Runner(DevicesProjection(), ledger, url, settings=QUICK) for _ in range(2)]
    async with running(*runners):
        await reaches(url, "devices", await publish(ledger, failures(range(1, 11))))
        await eventually(lambda: _waits_for_lock(url))
        for start in range(11, 61, 10):
            execute(
                url,
                "SELECT pg_terminate_backend(pid) FROM pg_locks JOIN pg_database AS d ON d.oid = database "
                "WHERE locktype = 'advisory' AND granted AND datname = current_database()",
            )
            await reaches(url, "devices", await publish(ledger, failures(range(start, start + 10))))
    await assert_true(ledger, url, [DevicesProjection()])
    assert len(table(url, "failure")) == 60


async def _holds(condition: bool) -> bool:
    return condition


async def _waits_for_lock(url: str) -> bool:
    waiting = "SELECT 1 FROM pg_locks JOIN pg_database AS d ON d.oid = database "
    return bool(execute(url, waiting + "WHERE locktype = 'advisory' AND NOT granted AND datname = current_database()"))


async def test_a_writer_is_fenced_when_another_wrote(ledger: JetStreamLedger, url: str) -> None:
    head = await publish(ledger, failures(range(1, 11)))
    flushed: list[int] = []

    def interfere(written: Checkpoint) -> None:
        if not flushed:
            execute(url, "UPDATE gpuledger.projection SET incarnation = 'another'")
        flushed.append(written.position)

    small = RunnerSettings(messages_per_batch=5)
    with pytest.raises(WriterFencedError, match="devices were written by somebody else"):
        await Runner(DevicesProjection(), ledger, url, settings=small, on_flush=interfere).catch_up(head)
    found = await checkpoint(url, "devices")
    assert found is not None
    assert flushed == [found.position]
    assert found.position == len(table(url, "failure")) <= 5


async def test_a_running_writer_recovers_from_being_fenced(ledger: JetStreamLedger, url: str) -> None:
    async with running(Runner(DevicesProjection(), ledger, url, settings=QUICK)):
        await reaches(url, "devices", await publish(ledger, failures(range(1, 11))))
        execute(url, "UPDATE gpuledger.projection SET incarnation = 'another'")
        await reaches(url, "devices", await publish(ledger, failures(range(11, 21))))
    await assert_true(ledger, url, [DevicesProjection()])


async def test_rows_of_another_version_are_refused(ledger: JetStreamLedger, url: str) -> None:
    class Newer(DevicesProjection):
        version = 2

    await Runner(DevicesProjection(), ledger, url).catch_up(await publish(ledger, failures(range(1, 3))))
    with pytest.raises(
        VersionError, match=r"are of version 1, this build writes version 2.*`gpuledger replay devices`"
    ):
        await Runner(Newer(), ledger, url).run()
    assert len(table(url, "failure")) == 2


async def test_rows_of_another_generation_are_refused(ledger: JetStreamLedger, url: str) -> None:
    await Runner(DevicesProjection(), ledger, url).catch_up(await publish(ledger, failures(range(1, 3))))
    execute(url, "UPDATE gpuledger.projection SET generation = 7")
    with pytest.raises(
        GenerationMismatchError, match=r"follow generation 7 of the ledger, which is now at generation 1"
    ):
        await Runner(DevicesProjection(), ledger, url).run()


# What stops, and what an operator does about it


async def test_an_operators_skip_lets_a_stopped_projection_go_on(ledger: JetStreamLedger, url: str) -> None:
    await publish(ledger, failures(range(1, 4), SERVICE))
    bad = (await ledger.publish(unfit(4, SERVICE))).sequence
    await publish(ledger, failures(range(5, 8), SERVICE))
    projection: Projection
    for projection in (DevicesProjection(), SourcesProjection()):
        with pytest.raises(BadEventError, match=f"{projection.name} stopped at 1/{bad} "):
            await Runner(projection, ledger, url, settings=QUICK).catch_up(await ledger.head())
    nodes = next(projection for projection in all_projections() if projection.name == "nodes")
    await Runner(nodes, ledger, url).catch_up(await ledger.head())
    skip = SourcePositionSkipped(generation=1, sequence=bad, reason="it was ours")
    head = await publish(ledger, [event(skip, "log", source="/operators/eva")])
    for projection in all_projections():
        await Runner(projection, ledger, url, settings=QUICK).catch_up(head)
    assert len(table(url, "failure")) == 6
    assert not table(url, "missing")
    await assert_true(ledger, url, all_projections())


# What is decided


async def test_decisions_are_published_and_taken_back(ledger: JetStreamLedger, url: str) -> None:
    async with running(Runner(AwayProjection(), ledger, url, settings=QUICK)):
        head = await publish(ledger, [asked(number) for number in range(1, 6)])
        await reaches(url, "away", head + AWAY_MAX)
    assert [(one.subject, one.number) for one in await decided(ledger)] == [("n1", 1), ("n2", 2)]
    assert len(table(url, "away")) == 5
    assert not execute(url, "SELECT * FROM gpuledger.outbox")
    await assert_true(ledger, url, [AwayProjection()])


@pytest.mark.parametrize("fails", ["before", "behind"])
async def test_a_crash_before_publishing_was_noted_publishes_the_same_ids(
    ledger: JetStreamLedger, url: str, fails: str
) -> None:
    failing = Failing(ledger)
    failing.fails = fails
    head = await publish(ledger, [asked(number) for number in range(1, 6)])
    with pytest.raises(PublishError):
        await Runner(AwayProjection(), failing, url, settings=QUICK).catch_up(head)
    found = await checkpoint(url, "away")
    assert found is not None
    assert found.position == head
    failing.fails = None
    async with running(Runner(AwayProjection(), failing, url, settings=QUICK)):
        await reaches(url, "away", head + AWAY_MAX)
    assert failing.tried[0] == failing.tried[1]
    assert [one.id for one in await decided(ledger)] == failing.tried[0]
    assert [row[1] is None for row in table(url, "away", "node, since")].count(False) == AWAY_MAX
    await assert_true(ledger, url, [AwayProjection()])


async def test_the_limit_holds_though_decisions_are_recorded_behind_other_requests(
    ledger: JetStreamLedger, url: str
) -> None:
    failing = Failing(ledger)
    failing.comes_first = [asked(number) for number in range(2, 8)]
    async with running(Runner(AwayProjection(), failing, url, settings=QUICK)):
        await publish(ledger, [asked(1)])
        await reaches(url, "away", 9)
        head = await publish(ledger, [event(SlotDeclared(node="n2"), "s", number=8)])
        await reaches(url, "away", head + 1)
    assert [one.subject for one in await decided(ledger)] == ["n1", "n2", "n3"]
    await assert_true(ledger, url, [AwayProjection()])


async def test_what_time_alone_decides_is_recorded_once(ledger: JetStreamLedger, url: str) -> None:
    clock = Moving()
    async with running(Runner(AwayProjection(), ledger, url, settings=QUICK, clock=clock)):
        head = await publish(ledger, [asked(1)._replace(time=system_clock())])
        await reaches(url, "away", head + 1)
        clock.ahead = AWAY_AT_MOST + timedelta(hours=1)
        await reaches(url, "away", head + 2)
    assert [one.data for one in await decided(ledger)] == [NodeDecommissioned(), SlotDeclared(node="n1")]
    assert not table(url, "away")
    await assert_true(ledger, url, [AwayProjection()])


async def test_a_new_database_decides_nothing_twice_and_numbers_without_holes(
    ledger: JetStreamLedger, url: str
) -> None:
    async with running(Runner(AwayProjection(), ledger, url, settings=QUICK)):
        head = await publish(ledger, [asked(number) for number in range(1, 6)])
        await reaches(url, "away", head + AWAY_MAX)
    for name in ("projection", "seen", "decider", "outbox"):
        execute(url, f"DELETE FROM gpuledger.{name}")
    execute(url, "DELETE FROM gpuledger_live.away")
    async with running(Runner(AwayProjection(), ledger, url, settings=QUICK)):
        head = await publish(ledger, [event(SlotDeclared(node="n1"), "s", number=6)])
        await reaches(url, "away", head + 1)
    found = await decided(ledger)
    assert [one.subject for one in found] == ["n1", "n2", "n3"]
    assert [one.number for one in found] == [1, 2, 1]
    assert found[0].epoch == found[1].epoch != found[2].epoch
    await assert_true(ledger, url, [AwayProjection()])


# What the sources service decides


async def test_an_event_turned_down_is_told_of(ledger: JetStreamLedger, url: str) -> None:
    await publish(ledger, failures(range(1, 3)))
    bad = (await ledger.publish(unfit(3, AGENT))).sequence
    head = await publish(ledger, failures(range(4, 6)))
    devices = Runner(DevicesProjection(), ledger, url, settings=QUICK)
    async with running(devices, Runner(SourcesProjection(), ledger, url, settings=QUICK)):
        await reaches(url, "sources", head + 1)
        await reaches(url, "devices", head + 1)
    (told,) = await decided(ledger)
    assert told.type == "io.gpuledger.source.rejected.v1"
    assert (told.data.sequence, told.data.nats_subject) == (bad, "ledger.node.n1.device.d1.failed")  # type: ignore[attr-defined]
    assert "kind" in told.data.reason  # type: ignore[attr-defined]
    assert table(url, "rejection", "position, generation") == [(bad, 1)]
    assert len(table(url, "failure")) == 4
    await assert_true(ledger, url, [SourcesProjection(), DevicesProjection()])


@pytest.mark.parametrize("token", [b"a\xff\xfeb", b"a\0b", b"a\x01b", "ä".encode()], ids=repr)
async def test_a_subject_that_is_no_text_stops_nobody(
    ledger: JetStreamLedger, clean_nats_url: str, url: str, token: bytes
) -> None:
    publish_raw(clean_nats_url, b"ledger.node.n1.device.%b.failed" % token, b"{")
    await eventually(lambda: _has_events(ledger))
    head = await publish(ledger, failures(range(1, 3)))
    for projection in all_projections():
        await Runner(projection, ledger, url, settings=QUICK).catch_up(head)
    assert len(table(url, "failure")) == 2
    assert table(url, "rejection", "position") == [(1,)]
    await assert_true(ledger, url, all_projections())


def publish_raw(nats_url: str, subject: bytes, data: bytes) -> None:
    """Publish what no library of ours would, as whoever holds a connection can."""
    address = urlsplit(nats_url)
    words = {"verbose": False, "pedantic": False, "user": address.username, "pass": address.password}
    with socket.create_connection((address.hostname, address.port)) as connection:
        connection.recv(4096)
        publication = b"PUB %b %d\r\n%b\r\nPING\r\n" % (subject, len(data), data)
        connection.sendall(b"CONNECT %b\r\n%b" % (json.dumps(words).encode(), publication))
        connection.recv(4096)


async def _has_events(ledger: Ledger) -> bool:
    return await ledger.head() > 0


async def test_a_gap_is_told_of_after_its_grace_and_closed_when_the_event_comes(
    ledger: JetStreamLedger, url: str
) -> None:
    clock = Moving()
    numbers: Iterator[int] = itertools.count(1)
    async with running(Runner(SourcesProjection(), ledger, url, settings=QUICK, clock=clock)):
        head = await publish(ledger, [*failures(range(1, 3)), *failures(range(5, 7))])
        await reaches(url, "sources", head)
        assert table(url, "missing", 'first, last, "left"') == [(3, 4, 2)]
        assert not table(url, "gap")
        clock.ahead = timedelta(seconds=GAP_GRACE_S + 60)
        await reaches(url, "sources", head + next(numbers))
        assert table(url, "gap", "first, last, closed_at") == [(3, 4, None)]
        await assert_true(ledger, url, [SourcesProjection()])
        await publish(ledger, failures(range(4, 5)))
        await reaches(url, "sources", head + 2)
        assert table(url, "gap", "closed_at") == [(None,)]
        await publish(ledger, failures(range(3, 4)))
        await reaches(url, "sources", head + 4)
    assert table(url, "gap", "closed_at IS NULL") == [(False,)]
    assert not table(url, "missing")
    assert [one.type.split(".")[3] for one in await decided(ledger)] == ["gap-detected", "gap-closed"]
    await assert_true(ledger, url, [SourcesProjection()])


async def test_a_gap_is_filled_while_its_detection_is_on_its_way(ledger: JetStreamLedger, url: str) -> None:
    clock, failing = Moving(), Failing(ledger)
    async with running(Runner(SourcesProjection(), failing, url, settings=QUICK, clock=clock)):
        head = await publish(ledger, [*failures(range(1, 3)), *failures(range(4, 5))])
        await reaches(url, "sources", head)
        failing.comes_first = failures(range(3, 4))
        clock.ahead = timedelta(seconds=GAP_GRACE_S + 60)
        await reaches(url, "sources", head + 3)
    assert [one.type.split(".")[3] for one in await decided(ledger)] == ["gap-detected", "gap-closed"]
    assert table(url, "gap", "closed_at IS NULL") == [(False,)]
    await assert_true(ledger, url, [SourcesProjection()])


async def test_verifying_counts_in_what_was_decided_and_not_yet_recorded(ledger: JetStreamLedger, url: str) -> None:
    clock, failing = Moving(), Failing(ledger)
    async with running(Runner(SourcesProjection(), failing, url, settings=QUICK, clock=clock)):
        await reaches(url, "sources", await publish(ledger, [*failures(range(1, 3)), *failures(range(4, 5))]))
        failing.fails = "before"
        clock.ahead = timedelta(seconds=GAP_GRACE_S + 60)
        await eventually(lambda: _has_rows(url, "gap"))
        await assert_true(ledger, url, [SourcesProjection()])


async def _has_rows(url: str, name: str) -> bool:
    return bool(table(url, name))


async def test_cancelling_a_runner_ends_it_wherever_it_is(ledger: JetStreamLedger, url: str) -> None:
    for delay_s in (0, 0.005, 0.02, 0.05):
        task = asyncio.create_task(Runner(DevicesProjection(), ledger, url, settings=QUICK).run())
        await asyncio.wait([task], timeout=delay_s)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    head = await publish(ledger, [event(DeviceInserted(slot="s"), "d1")])
    assert await Runner(DevicesProjection(), ledger, url).catch_up(head)
