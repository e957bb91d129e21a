"""The outbox publishes recorded facts in order, each once, whatever the ledger and the disk do."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from itertools import count
from pathlib import Path

import pytest

from gpuledger.agent.outbox.bounds import DEFAULT_SIZES, VALUES_MAX, Sizes
from gpuledger.agent.outbox.clock import CLOCK_AHEAD_MAX_S, event_time, jump_s
from gpuledger.agent.outbox.entry import QueueBounds
from gpuledger.agent.outbox.errors import FolderTakenError, StateStoreFullError
from gpuledger.agent.outbox.outbox import CHECK_PERIOD_S, RETRY, Outbox, open_outbox
from gpuledger.agent.outbox.spool import FILE, open_spool
from gpuledger.agent.outbox.store import DISK_RETRY_S, READ_FAILURES_MAX
from gpuledger.agent.part import AgentFact
from gpuledger.events.device import DeviceFailed
from gpuledger.events.envelope import Decoded
from gpuledger.events.errors import SubjectError
from gpuledger.events.node import NodeAgentStarted, NodeClockJumped, NodeEventsDropped
from gpuledger.runtime.backoff import no_jitter
from gpuledger.runtime.clock import Instant
from gpuledger.runtime.tasks import end
from support.ledgers import DEADLINE_S
from support.outbox import NODE, NOON, SMALL, Disk, Log, Time, Waits, fact, numbers_in, recorded
from support.waiting import eventually


class Node:
    """A node whose agent's outbox may begin and end again and again."""

    def __init__(self, folder: Path) -> None:
        self.time, self.log, self.disk, self.epochs = Time(), Log(), Disk(folder), count(1)
        self.waits = Waits(self.time, CHECK_PERIOD_S)

    @asynccontextmanager
    async def outbox(self, sizes: Sizes = DEFAULT_SIZES, *, shaky: bool = True) -> AsyncIterator[Outbox]:
        async with open_outbox(
            self.disk.folder,
            NODE,
            version="1.0",
            hardware="simulated",
            sizes=sizes,
            clock=self.time.clock,
            monotonic=self.time.monotonic,
            new_id=lambda: f"e{next(self.epochs)}",
            sleep=self.waits,
            jitter=no_jitter,
            open_spool=self.disk.open if shaky else open_spool,
        ) as outbox:
            yield outbox

    @asynccontextmanager
    async def running(self, sizes: Sizes = DEFAULT_SIZES, *, shaky: bool = True) -> AsyncIterator[Outbox]:
        async with self.outbox(sizes, shaky=shaky) as outbox:
            task = asyncio.create_task(outbox.run(self.log.connect))
            yield outbox
            await end([task])

    async def check(self, outbox: Outbox) -> None:
        """Have it look at its clock and its disk."""
        await outbox._in_worker(outbox._store.check)
        outbox._notify()

    def starts(self) -> list[tuple[str, bool, bool]]:
        """Epoch, clean and durable of each start that was recorded."""
        events = self.log.events()
        return [
            (event.epoch, event.data.clean, event.data.durable)
            for event in events
            if isinstance(event.data, NodeAgentStarted)
        ]


@pytest.fixture
def node(tmp_path: Path) -> Node:
    return Node(tmp_path / "state")


async def drained(outbox: Outbox) -> None:
    async with asyncio.timeout(DEADLINE_S):
        await outbox.drained()


async def record(outbox: Outbox, *numbers: int) -> None:
    for number in numbers:
        await outbox.record([fact(number)])


def numbering(events: list[Decoded]) -> list[tuple[str, int]]:
    return [(event.epoch, event.number) for event in events]


async def test_facts_are_recorded_as_the_agents_in_order_without_gaps(node: Node) -> None:
    async with node.running() as outbox:
        await record(outbox, 1, 2)
        await outbox.record([fact(3), fact(4)])
        await drained(outbox)
        events = node.log.events()
        assert numbering(events) == [("e1", number) for number in range(1, 6)]
        assert {event.source for event in events} == {"/nodes/w1/agent"}
        assert numbers_in(events) == [1, 2, 3, 4]
        assert (outbox.recorded, outbox.status.waiting, outbox.oldest_age_s, outbox.trouble) == (5, 0, 0.0, None)
        assert outbox.describe()["ledger"] == "ok"


async def test_the_next_run_goes_on_with_the_numbers_and_reports_how_the_last_one_ended(
    node: Node, tmp_path: Path
) -> None:
    async with node.outbox() as outbox:
        await record(outbox, 1)
    async with node.outbox() as outbox:
        await record(outbox, 2)
        node.disk.crash(tmp_path / "crashed")
    async with node.running() as outbox:
        await record(outbox, 3)
        await drained(outbox)
    assert numbering(node.log.events()) == [("e1", number) for number in range(1, 7)]
    assert numbers_in(node.log.events()) == [1, 2, 3]
    assert node.starts() == [("e1", False, True), ("e1", True, True), ("e1", False, True)]


async def test_a_ledger_that_is_away_for_hours_gets_everything_in_order(node: Node) -> None:
    node.log.away = True
    async with node.running() as outbox:
        for number in range(1_000):
            await outbox.record([fact(number, at=node.time.now)])
        for _ in range(10_000):
            await asyncio.sleep(0)
            if node.time.now > NOON + timedelta(hours=1):
                break
        assert node.time.now > NOON + timedelta(hours=1)
        assert (outbox.status.waiting, outbox.trouble) == (1_001, "it is away")
        assert outbox.oldest_age_s > 3_600
        assert max(node.waits.pauses) == RETRY.max_s
        node.log.away = False
        await drained(outbox)
    assert numbers_in(node.log.events()) == list(range(1_000))
    assert max(node.log.batches) == DEFAULT_SIZES.batch.events


async def test_what_was_not_acknowledged_is_sent_again_as_it_was(node: Node) -> None:
    node.log.deaf = 3
    async with node.running() as outbox:
        await record(outbox, 1, 2)
        await drained(outbox)
    assert len(node.log.messages) > len(node.log.events())
    assert numbers_in(node.log.events()) == [1, 2]


async def test_an_event_that_the_ledger_never_takes_blocks_nobody_and_is_reported(node: Node) -> None:
    node.log.size_max = 2_000
    node.log.away = True
    async with node.running() as outbox:
        await outbox.record([fact(1), fact(2, size=3_000), fact(3)])
        node.log.away = False
        await eventually(lambda: _is(outbox.status.waiting == 0))
        assert outbox.status.dropped == 1
    found = recorded(node.log.messages)
    assert numbers_in(found.events) == [1, 3]
    (drop,) = found.dropped["e1"]
    assert (drop.count, drop.first, drop.last, drop.reason) == (1, 3, 3, "RefusedByLedger")
    assert found.missing == {"e1": {3}}


async def _is(value: bool) -> bool:
    return value


async def test_what_matters_least_is_dropped_first_and_named(node: Node) -> None:
    node.log.away = True
    async with node.running(SMALL) as outbox:
        for number in range(30):
            await outbox.record([fact(number, priority=number % 3)])
        assert (outbox.status.waiting, outbox.status.dropped) == (SMALL.spool.events, 31 - SMALL.spool.events)
        node.log.away = False
        await eventually(lambda: _is(outbox.status.waiting == 0))
    found = recorded(node.log.messages)
    numbers = numbers_in(found.events)
    assert numbers == [0, 1, *range(5, 30, 3)], "the front stays, and of what matters most the newest"
    (drop,) = found.dropped["e1"]
    assert (drop.count, drop.reason) == (len(found.missing["e1"]), "NoRoom")
    assert {drop.first, drop.last} <= found.missing["e1"]


async def test_a_failure_of_hardware_stays_before_errors_of_applications(node: Node) -> None:
    node.log.away = True
    async with node.running(SMALL) as outbox:
        await record(outbox, *range(5))
        await outbox.record([AgentFact("GPU-1", DeviceFailed(kind="XID 79"), NOON)])
        await record(outbox, *range(5, 50))
        node.log.away = False
        await drained(outbox)
    assert [one.subject for one in node.log.events() if isinstance(one.data, DeviceFailed)] == ["GPU-1"]
    assert len(numbers_in(node.log.events())) < 50


async def test_bytes_are_bounded_too(node: Node) -> None:
    sizes = DEFAULT_SIZES._replace(spool=QueueBounds(1_000, 20_000), batch=QueueBounds(2, 5_000))
    async with node.outbox(sizes) as outbox:
        for number in range(100):
            await outbox.record([fact(number, size=1_000)])
        assert outbox.status.size <= 20_000
        assert outbox.status.dropped > 0


async def test_a_disk_that_takes_nothing_loses_nothing(node: Node) -> None:
    async with node.outbox() as outbox:
        await record(outbox, 1)
        node.disk.full = True
        await record(outbox, 2, 3)
        assert (outbox.status.durable, outbox.status.trouble) == (False, "the disk is full")
        node.disk.full = False
        await node.check(outbox)
        assert not outbox.status.durable, "a disk is not tried all the time"
        node.time.go(DISK_RETRY_S)
        await node.check(outbox)
        assert (outbox.status.durable, outbox.status.trouble) == (True, None)
        await record(outbox, 4)
    async with node.running() as outbox:
        await drained(outbox)
    events = node.log.events()
    assert numbers_in(events) == [1, 2, 3, 4]
    assert numbering(events) == [
        *(("e1", number) for number in (1, 2)),
        *(("e2", number) for number in (1, 2, 3)),
        *(("e3", number) for number in (1, 2, 3)),
    ]
    assert node.starts() == [("e1", False, True), ("e2", True, False), ("e3", True, True), ("e3", True, True)]


async def test_a_disk_that_cannot_even_be_polled_is_waited_for(node: Node) -> None:
    async with node.outbox() as outbox:
        await record(outbox, 1)
    node.disk.closed = True
    async with node.running() as outbox:
        await record(outbox, 2)
        await drained(outbox)
        assert (numbers_in(node.log.events()), outbox.status.durable) == ([2], False)
        node.log.away = True
        await record(outbox, 3)
        node.disk.closed = False
        node.time.go(DISK_RETRY_S)
        await node.check(outbox)
        node.log.away = False
        await eventually(lambda: _is(outbox.status.waiting == 0))
    assert numbers_in(node.log.events()) == [2, 1, 3], "what lay on the disk comes as soon as it can"


async def test_a_disk_that_gives_nothing_back_any_more_is_given_up_and_what_it_had_is_named(node: Node) -> None:
    node.log.away = True
    async with node.running() as outbox:
        await record(outbox, 1, 2)
        node.disk.unreadable = True
        node.log.away = False
        await eventually(lambda: _is(not outbox.status.durable and outbox.status.waiting == 0))
        await record(outbox, 3)
        await drained(outbox)
    found = recorded(node.log.messages)
    assert numbers_in(found.events) == [3]
    (drop,) = found.dropped["e1"]
    assert (drop.count, drop.first, drop.last, drop.reason) == (3, 1, 3, "SpoolUnreadable")
    assert READ_FAILURES_MAX > 1


@pytest.mark.parametrize("damage", [b"this is no database at all, whatever its name says" * 100, None])
async def test_a_damaged_file_is_moved_aside(node: Node, damage: bytes | None) -> None:
    async with node.outbox(shaky=False) as outbox:
        for number in range(50):
            await record(outbox, number)
    file = node.disk.folder / FILE
    content = file.read_bytes()
    file.write_bytes(damage or content[:4096] + b"\xff" * 8192 + content[12288:])
    async with node.running(shaky=False) as outbox:
        await record(outbox, 99)
        await drained(outbox)
        assert outbox.status.durable
    assert numbering(node.log.events()) == [("e2", 1), ("e2", 2)]
    assert node.starts() == [("e2", False, True)]
    assert len(list(node.disk.folder.glob(f"{FILE}.unreadable-2026*Z"))) == 1


async def test_a_second_agent_is_turned_away(node: Node) -> None:
    async with node.outbox():
        with pytest.raises(FolderTakenError, match="Another agent uses"):
            async with node.outbox():
                pass


async def test_values_outlive_the_run_and_a_disk_that_takes_nothing(node: Node) -> None:
    async with node.outbox() as outbox:
        await outbox.put("a", b"1")
        node.disk.full = True
        await outbox.put("a", b"2")
        assert outbox.get("a") == b"2"
        node.disk.full = False
        node.time.go(DISK_RETRY_S)
        await node.check(outbox)
    async with node.outbox() as outbox:
        assert (outbox.get("a"), outbox.get("b")) == (b"2", None)
        for number in range(VALUES_MAX - 1):
            await outbox.put(str(number), b"")
        with pytest.raises(StateStoreFullError, match="64 values"):
            await outbox.put("too many", b"")


async def test_a_fact_that_no_subject_can_name_costs_no_number(node: Node) -> None:
    async with node.running() as outbox:
        with pytest.raises(SubjectError):
            await outbox.record([fact(1), fact(2)._replace(subject="")])
        await record(outbox, 3)
        await drained(outbox)
    assert numbers_in(node.log.events()) == [3]


async def test_times_never_go_back_and_a_clock_that_was_set_is_reported(node: Node) -> None:
    async with node.running() as outbox:
        await outbox.record([fact(1, at=NOON + timedelta(seconds=10))])
        node.time.now -= timedelta(seconds=60)
        await outbox.record([fact(2, at=node.time.now)])
        node.time.now += timedelta(seconds=600)
        await node.check(outbox)
        await drained(outbox)
    async with node.running() as outbox:
        await drained(outbox)
    events = node.log.events()
    times = [event.time for event in events]
    assert times == sorted(times)
    assert [event.data.seconds for event in events if isinstance(event.data, NodeClockJumped)] == [-60.0, 600.0]


async def test_a_clock_that_was_years_ahead_is_not_caught_up_with(node: Node) -> None:
    node.time.now += timedelta(days=3_650)
    async with node.outbox() as outbox:
        await outbox.record([fact(1, at=node.time.now)])
    node.time.now = NOON
    async with node.running() as outbox:
        await outbox.record([fact(2, at=NOON)])
        await drained(outbox)
    events = node.log.events()
    assert events[-1].time == NOON
    assert [event.data.seconds for event in events if isinstance(event.data, NodeClockJumped)] == [-3_650 * 86_400.0]


@pytest.mark.parametrize(
    ("observed", "last", "recorded"),
    [(0, None, 0), (5, 3, 5), (5, 5, 5), (3, 5, 5.000001), (0, CLOCK_AHEAD_MAX_S, CLOCK_AHEAD_MAX_S + 0.000001),
     (1, CLOCK_AHEAD_MAX_S + 1, 1), (CLOCK_AHEAD_MAX_S + 1, 5, 5.000001), (CLOCK_AHEAD_MAX_S + 1, -5, 0),
     (-9, None, -9)],
)  # fmt: skip
def test_the_time_of_an_event(observed: float, last: float | None, recorded: float) -> None:
    def at(seconds: float) -> timedelta:
        return timedelta(seconds=seconds)

    assert event_time(NOON + at(observed), None if last is None else NOON + at(last), NOON) == NOON + at(recorded)


@pytest.mark.parametrize(("wall", "passed", "jump"), [(10, 10, None), (14, 10, None), (16, 10, 6.0), (-1, 10, -11.0)])
def test_a_clock_jumped(wall: float, passed: float, jump: float | None) -> None:
    assert jump_s(Instant(0.0, NOON), Instant(passed, NOON + timedelta(seconds=wall))) == jump


async def test_what_was_dropped_is_reported_by_the_next_run(node: Node) -> None:
    async with node.outbox(SMALL) as outbox:
        for number in range(20):
            await record(outbox, number)
    async with node.running(SMALL) as outbox:
        await eventually(lambda: _is(outbox.status.waiting == 0))
    found = recorded(node.log.messages)
    assert sum(one.count for one in found.dropped["e1"]) == len(found.missing["e1"]) > 0
    assert all(isinstance(one, NodeEventsDropped) for one in found.dropped["e1"])
