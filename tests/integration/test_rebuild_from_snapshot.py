"""A rebuild that begins at a snapshot makes what a rebuild from the first event makes, and is stopped by the same."""

import asyncio
import random
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import pytest

from gpuledger.db.errors import DatabaseUnavailableError
from gpuledger.events.envelope import Decoded
from gpuledger.events.node import NodeDecommissioned, NodeRegistered
from gpuledger.events.position import Offset, number_of
from gpuledger.events.workload import DeviceShare, WorkloadEnded, WorkloadScheduled, WorkloadSubmitted
from gpuledger.ledger.api import Message, Outgoing
from gpuledger.ledger.jetstream import JetStreamLedger
from gpuledger.projection.definition import Projection
from gpuledger.projection.errors import BadEventError
from gpuledger.projection.fold_snapshots import begun_tables, buckets, writer
from gpuledger.projection.fold_snapshots.reader import FoldSnapshots
from gpuledger.projection.fold_snapshots.taking import Hearers, take_snapshots
from gpuledger.projection.fold_snapshots.writer import FoldSnapshotSettings
from gpuledger.projection.rebuild import RebuildResult, rebuild
from gpuledger.projection.runner import Runner
from gpuledger.readmodels.projections import DevicesProjection, NodesProjection, WorkloadsProjection
from gpuledger.tools.queries.backend import all_projections
from support.counted_reads import CountedReads
from support.deciders import AwayProjection
from support.enforcing import ENFORCED, enforce
from support.events import AGENT, IMPORT, RecordedFact, event, log_of, numbered
from support.fold_snapshots import KilledError, MemoryObjects, recorded_messages
from support.projections import QUICK, assert_true, execute, publish, table
from support.rebuilds import cut_rebuilds, leftovers

MESSAGES = len(recorded_messages())
SKIPS_MAX = 5
ENDINGS = 6
ENDS = {"cancelled": asyncio.CancelledError, "session cut": DatabaseUnavailableError, "store killed": KilledError}
ALWAYS = ("devices", "availability", "pools", "health")
"""Of these, tests run always; of all others, with the long tests."""

projections = pytest.mark.parametrize(
    "projection",
    [pytest.param(one, id=one.name, marks=() if one.name in ALWAYS else pytest.mark.long) for one in all_projections()],
)


class Rebuilt(NamedTuple):
    """Everything that a rebuild leaves in the database, but for ids that are drawn anew."""

    rows: dict[str, list[tuple[Any, ...]]]
    rules: list[tuple[Any, ...]]
    decisions: list[tuple[Any, ...]]
    numbers: list[tuple[Any, ...]]
    checkpoint: list[tuple[Any, ...]]


def rebuilt(url: str, projection: Projection) -> Rebuilt:
    return Rebuilt(
        {spec.name: table(url, spec.name) for spec in projection.specs},
        sorted(execute(url, "SELECT rule, version, sequence FROM gpuledger.enforced_rule WHERE edition = 'live'")),
        execute(url, "SELECT id, subject, data, number, status FROM gpuledger.outbox ORDER BY number"),
        execute(url, "SELECT source, epoch, last, holes FROM gpuledger.numbers_seen ORDER BY began, source, epoch"),
        execute(
            url,
            "SELECT version, generation, position, events, ledger_id, last_position, last_event_id, last_digest "
            "FROM gpuledger.projection WHERE edition = 'live'",
        ),
    )


def forget(url: str) -> None:
    """Leave the database as if nothing had been built."""
    for name in ("projection", "decider", "outbox", "enforced_rule", "numbers_seen", "numbers_seen_position"):
        execute(url, f"DELETE FROM gpuledger.{name}")


class Taken:
    """Snapshots in memory of the log in the servers."""

    def __init__(self, ledger: JetStreamLedger) -> None:
        self.ledger, self.objects = CountedReads(ledger), MemoryObjects()
        self.refused: list[str] = []
        self.snapshots = FoldSnapshots(self.objects, self.ledger, self.refused.append)

    async def take(self, projection: Projection) -> None:
        """One at the head of the log."""
        stopped: list[Exception] = []
        settings, hearers = FoldSnapshotSettings(), Hearers(lambda _: None, stopped.append)
        await take_snapshots([projection], self.ledger, self.snapshots, hearers, settings=settings, also_last=True)
        assert not stopped


@pytest.fixture
async def taken(ledger: JetStreamLedger, monkeypatch: pytest.MonkeyPatch) -> Taken:
    monkeypatch.setattr(buckets, "ROWS_PER_BUCKET", 4)
    monkeypatch.setattr(writer, "PART_ROWS_MAX", 6)
    monkeypatch.setattr(begun_tables, "ROWS_PER_COPY_MAX", 4)
    return Taken(ledger)


async def record(ledger: JetStreamLedger, messages: Sequence[Message]) -> None:
    if messages:
        await ledger.publish_many([Outgoing(one.subject, f"m{one.sequence}", one.data) for one in messages])


async def both_ways(taken: Taken, url: str, projection: Projection) -> RebuildResult:
    """Rebuild from nothing and from the last snapshot: where nothing was built yet, and where rows serve."""
    for is_built in (False, True):
        found = []
        for snapshots in (None, taken.snapshots):
            forget(url)
            if is_built:
                await rebuild(projection, taken.ledger, url)
            taken.ledger.restart()
            result = await rebuild(projection, taken.ledger, url, snapshots=snapshots)
            found.append(rebuilt(url, projection))
            assert not leftovers(url)
        behind = number_of(await taken.ledger.head()) - number_of(result.since)
        assert taken.ledger.read_messages <= behind + SKIPS_MAX
        assert found[1] == found[0]
    await assert_true(taken.ledger, url, [projection])
    return result


@projections
async def test_rows_rules_numbers_and_decisions_are_those_of_a_rebuild_from_nothing(
    taken: Taken, url: str, projection: Projection
) -> None:
    first, second, end = 150, 300, MESSAGES - 20
    await record(taken.ledger, recorded_messages()[:first])
    await taken.take(projection)
    await record(taken.ledger, recorded_messages()[first:second])
    await taken.take(projection)
    await record(taken.ledger, recorded_messages()[second:end])
    result = await both_ways(taken, url, projection)
    assert (result.since, result.checkpoint.position) == (second, end)
    await taken.take(projection)
    at_end = await rebuild(projection, taken.ledger, url, snapshots=taken.snapshots)
    assert at_end.checkpoint._replace(incarnation="") == result.checkpoint._replace(incarnation="")
    assert (at_end.since, at_end.events) == (end, 0)
    assert not taken.refused


@pytest.mark.parametrize("seed", range(6))
async def test_so_it_is_wherever_the_snapshot_stands(taken: Taken, url: str, seed: int) -> None:
    drawn = random.Random(seed)
    projection = drawn.choice(all_projections())
    at, end = sorted(drawn.sample(range(1, MESSAGES), 2))
    await record(taken.ledger, recorded_messages()[:at])
    await taken.take(projection)
    await record(taken.ledger, recorded_messages()[at:end])
    assert (await both_ways(taken, url, projection)).since == at


@pytest.mark.parametrize("seed", range(3))
async def test_late_facts_find_what_retired_before_the_snapshot(taken: Taken, url: str, seed: int) -> None:
    log = log_of(numbered(list(_facts_in_no_order(random.Random(seed)))))
    middle = len(log) // 2
    await record(taken.ledger, log[:middle])
    await taken.take(WorkloadsProjection())
    await record(taken.ledger, log[middle:])
    assert (await both_ways(taken, url, WorkloadsProjection())).since == middle


def _facts_in_no_order(drawn: random.Random) -> Iterator[RecordedFact]:
    """What a few workloads did, so that much has retired before a late fact changes it."""
    for _ in range(120):
        devices = tuple(DeviceShare(device=f"d{number}", gpu_milli=500) for number in range(drawn.randrange(3)))
        data = drawn.choice(
            (
                WorkloadSubmitted(gpu_milli=1_000, owner="ann"),
                WorkloadScheduled(gpu_milli=1_000, node="n1", devices=devices),
                WorkloadEnded(),
            )
        )
        yield RecordedFact(AGENT, f"w{drawn.randrange(6)}", drawn.randrange(200), data)


def registered(number: int) -> Decoded:
    return event(NodeRegistered(), f"n{number}", number=number)


async def test_a_decision_that_is_outstanding_at_the_snapshot_is_handed_over_once(taken: Taken, url: str) -> None:
    projection = AwayProjection()
    await publish(taken.ledger, [registered(1)])
    await taken.take(projection)
    await publish(taken.ledger, [registered(2)])
    result = await both_ways(taken, url, projection)
    assert result.since == 1
    handed_over = execute(url, "SELECT subject FROM gpuledger.outbox WHERE projection = 'away' ORDER BY number")
    assert handed_over == [(f"ledger.svc.away.node.n{number}.decommissioned",) for number in (1, 2)]


async def test_rules_that_were_enforced_before_the_snapshot_hold_behind_it(taken: Taken, url: str) -> None:
    projection = NodesProjection()
    await publish(taken.ledger, [event(NodeRegistered(gpu_count=8), "n2", number=1, source=IMPORT)])
    await enforce(taken.ledger, url)
    await taken.take(projection)
    await publish(taken.ledger, [event(NodeDecommissioned(), "n2", number=1, source=AGENT)])
    await both_ways(taken, url, projection)
    assert sorted(rule for rule, _, _ in rebuilt(url, projection).rules) == sorted(ENFORCED)
    assert table(url, "node", "node, present") == [("n2", True)]


async def test_it_begins_at_no_snapshot_that_is_ahead_of_the_rows_that_serve(taken: Taken, url: str) -> None:
    projection = AwayProjection()
    await publish(taken.ledger, [registered(1)])
    await taken.take(projection)
    await publish(taken.ledger, [registered(2)])
    await taken.take(projection)
    await rebuild(projection, EarlierHead(taken.ledger, 1), url)
    result = await rebuild(projection, taken.ledger, url, snapshots=taken.snapshots)
    assert (result.since, result.checkpoint.position) == (1, 1)


class EarlierHead(CountedReads):
    """The ledger, as if it ended earlier."""

    def __init__(self, ledger: JetStreamLedger, head: int) -> None:
        super().__init__(ledger)
        self._head = head

    async def head(self) -> Offset:
        return self._head


async def test_a_decision_that_the_log_would_not_take_stops_it_as_from_the_start(
    taken: Taken, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    await publish(taken.ledger, [registered(1)])
    await taken.take(AwayProjection())
    monkeypatch.setattr(JetStreamLedger, "message_bytes_max", 10)
    for snapshots in (None, taken.snapshots):
        with pytest.raises(BadEventError, match="NATS takes"):
            await rebuild(AwayProjection(), taken.ledger, url, snapshots=snapshots)


@pytest.mark.parametrize("ends", ENDS)
async def test_whatever_ends_it_on_its_way_leaves_rows_and_log_as_they_are(
    taken: Taken, url: str, ends: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    projection = DevicesProjection()
    await record(taken.ledger, recorded_messages())
    await taken.take(projection)
    await Runner(projection, taken.ledger, url, settings=QUICK).catch_up(MESSAGES)
    gets = await _gets_of_a_rebuild(taken, url, projection)
    before = rebuilt(url, projection)
    for number in random.Random(ends).sample(range(gets), ENDINGS):
        await _ended(taken, url, projection, ends, number, monkeypatch)
        assert not leftovers(url)
        assert rebuilt(url, projection) == before
        assert await taken.ledger.head() == MESSAGES


async def _gets_of_a_rebuild(taken: Taken, url: str, projection: Projection) -> int:
    taken.objects.gets.clear()
    await rebuild(projection, taken.ledger, url, snapshots=taken.snapshots)
    return len(taken.objects.gets)


async def _ended(
    taken: Taken, url: str, projection: Projection, ends: str, number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Begin a rebuild that meets its end when it asks for an object after so many others."""
    get, asked, tasks = taken.objects.get, 0, list[asyncio.Task[Any]]()

    async def meets_its_end(key: str) -> bytes:
        nonlocal asked
        asked += 1
        if asked > number and ends == "store killed":
            raise KilledError
        if asked == number + 1 and ends == "cancelled":
            tasks[0].cancel()
        if asked > number and ends == "session cut":
            cut_rebuilds(url)
        return await get(key)

    with monkeypatch.context() as patch:
        patch.setattr(taken.objects, "get", meets_its_end)
        tasks.append(asyncio.create_task(rebuild(projection, taken.ledger, url, snapshots=taken.snapshots)))
        with pytest.raises(ENDS[ends]):
            await tasks[0]


async def test_pieces_that_are_gone_make_it_begin_at_the_snapshot_before(taken: Taken, url: str) -> None:
    projection = DevicesProjection()
    await record(taken.ledger, recorded_messages()[:200])
    await taken.take(projection)
    earlier = set(taken.objects.objects)
    await record(taken.ledger, recorded_messages()[200:])
    await taken.take(projection)
    for key in set(taken.objects.objects) - earlier:
        if key.endswith(".parquet"):
            del taken.objects.objects[key]
    assert (await both_ways(taken, url, projection)).since == 200
    assert all(f"The snapshot of devices at 1/{MESSAGES} is not used" in one for one in taken.refused)


async def test_what_was_lost_is_not_left_to_a_snapshot(taken: Taken, url: str) -> None:
    projection = DevicesProjection()
    await record(taken.ledger, recorded_messages())
    await taken.take(projection)
    result = await rebuild(projection, taken.ledger, url, accept_loss=True, snapshots=taken.snapshots)
    assert result.since == 0
