"""Whatever happens to an outbox, its facts are published once and in order, or named as dropped."""

import tempfile
from itertools import count, takewhile
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from gpuledger.agent.outbox import numbering
from gpuledger.agent.outbox.drop import in_order, victims
from gpuledger.agent.outbox.entry import QueueBounds, QueuedEvent, dropped, merged, prefix_length
from gpuledger.agent.outbox.store import DISK_RETRY_S, OutboxStore
from gpuledger.events.envelope import decode
from gpuledger.events.node import NodeAgentStarted, NodeEventsDropped
from gpuledger.events.publishing import DropClass
from gpuledger.ledger.api import Outgoing
from support.outbox import SMALL, Disk, Recorded, Time, fact, numbers_in, recorded, store_on
from support.servers import MEMORY
from support.thoroughness import examples

AT_RISK_MAX = 8

DROPS_TOLD_MAX = 12
"""How many events about drops wait at a time: more than a few never do."""

HELD = st.builds(
    QueuedEvent,
    position=st.integers(1, 1000),
    epoch=st.sampled_from("ab"),
    number=st.integers(1, 1000),
    priority=st.sampled_from(DropClass),
    size=st.integers(1, 50),
)
QUEUES = st.lists(HELD, max_size=40, unique_by=lambda held: held.position)


@given(QUEUES, st.integers(0, 50), st.integers(0, 1000))
def test_what_is_dropped_is_enough_and_no_more_and_nothing_that_matters_less_stays(
    queue: list[QueuedEvent], events: int, size: int
) -> None:
    candidates = in_order(queue)
    gone = victims(iter(candidates), events, size)
    stay = [one for one in candidates if one not in gone]
    assert not stay or (len(gone) >= events and sum(one.size for one in gone) >= size)
    assert not gone or len(gone) - 1 < events or sum(one.size for one in gone[:-1]) < size
    assert all((one.priority, one.position) < (other.priority, other.position) for one in gone for other in stay)
    assert all(one.priority < DropClass.NEVER for one in gone)


@given(QUEUES)
def test_drops_are_counted_whatever_they_are_merged_with(queue: list[QueuedEvent]) -> None:
    drops = merged(dropped(queue, "r"))
    assert merged([*drops[:1], *drops[1:]]) == drops
    for one in drops:
        numbers = [held.number for held in queue if held.epoch == one.epoch]
        assert (one.events, one.first, one.last) == (len(numbers), min(numbers), max(numbers))


@given(st.lists(st.integers(1, 30), max_size=20), st.integers(1, 10), st.integers(1, 100))
def test_what_goes_together_is_within_the_bounds_and_never_nothing(sizes: list[int], events: int, size: int) -> None:
    fit = prefix_length(sizes, QueueBounds(events, size))
    assert fit >= min(1, len(sizes))
    assert fit <= events
    assert fit <= 1 or sum(sizes[:fit]) <= size
    assert fit == len(sizes) or fit == events or sum(sizes[: fit + 1]) > size


class Outboxes(RuleBasedStateMachine):
    """One node through crashes, a disk that is full now and then, and a ledger that loses acknowledgements."""

    @initialize()
    def begin(self) -> None:
        self.temporary = tempfile.TemporaryDirectory(prefix="gl-", dir=MEMORY if MEMORY.is_dir() else None)
        self.root = Path(self.temporary.name)
        self.disk, self.time, self.epochs, self.lives = Disk(self.root / "0"), Time(), count(1), count(1)
        self.recorded: list[int] = []
        self.log: list[Outgoing] = []
        self.forgotten: set[str] = set()
        self.may_forget: set[int] = set()
        self.refused: set[str] = set()
        self.unswept = self.counted_again = False
        self.numbers, self.boot = count(1), 1
        self.at_risk_max, numbering.EPOCH_AT_RISK_MAX = numbering.EPOCH_AT_RISK_MAX, AT_RISK_MAX  # type: ignore[misc]
        self.store = self._open_file()

    def _open_file(self) -> OutboxStore:
        store = store_on(self.disk, self.time, sizes=SMALL, epochs=self.epochs, boot=f"b{self.boot}")
        store.open()
        return store

    @rule(priorities=st.lists(st.integers(0, 2), min_size=1, max_size=5))
    def record(self, priorities: list[int]) -> None:
        numbers = [next(self.numbers) for _ in priorities]
        self.store.record([fact(n, at=self.time.now, priority=p) for n, p in zip(numbers, priorities, strict=True)])
        self.recorded += numbers

    @rule(acknowledged=st.booleans())
    def publish(self, acknowledged: bool) -> None:
        self._publish(acknowledged=acknowledged)

    def _publish(self, *, acknowledged: bool = True) -> bool:
        """Publish what is next as the ledger takes it; False where nothing waits."""
        entries = self.store.head()
        taken = list(takewhile(lambda entry: entry.message.id not in self.refused, entries))
        self.log += [entry.message for entry in taken]
        self.unswept |= not self.store.status.durable or self.disk.full
        if acknowledged:
            self.store.acknowledged(taken)
            if len(taken) < len(entries):
                self.store.refuse(entries[len(taken)])
        return bool(entries)

    @rule()
    def refuse(self) -> None:
        """From now on the ledger refuses what is next."""
        entries = self.store.head()
        if entries and entries[0].message not in self.log and entries[0].priority < DropClass.NEVER:
            self.refused.add(entries[0].message.id)

    @rule(full=st.booleans())
    def disk_full(self, full: bool) -> None:
        self.disk.full = full

    @rule(seconds=st.sampled_from([1.0, DISK_RETRY_S]), set_by=st.sampled_from([0.0, 0.0, 60.0, -60.0]))
    def time_passes(self, seconds: float, set_by: float) -> None:
        self.time.go(seconds)
        self.time.go(set_by)
        self.time.monotonic_s -= set_by
        self.store.check()

    @rule(boots=st.booleans())
    def crash(self, boots: bool) -> None:
        self.boot += boots
        self.counted_again |= self.unswept
        if self.store._memory is not None:
            self._forget_memory()
        self.disk.crash(self.root / str(next(self.lives)))
        if self.store._spool is not None:
            self.store._spool.close()
        self.store = self._open_file()

    def _forget_memory(self) -> None:
        assert self.store._memory is not None
        state = self.store._memory.state
        assert state.numbering is not None
        self.forgotten |= {state.numbering.epoch, *(one.epoch for one in (*state.waiting_by_epoch, *state.drops))}
        self.may_forget |= self._only_in_memory()

    def _only_in_memory(self) -> set[int]:
        """The facts lost with the process, which logged that they might be; they include what memory gave up."""
        assert self.store._memory is not None
        events = [decode(entry.message.data) for entry in self.store._memory.entries]
        if self.store._memory.state.drops or any(isinstance(event.data, NodeEventsDropped) for event in events):
            return set(self.recorded)
        return set(numbers_in(events))

    @rule()
    def end_and_begin(self) -> None:
        was_durable = self.store.status.durable
        self.store.close()
        if not was_durable and self.store._memory is not None:
            self.store._spool = None
            self._forget_memory()
        self.counted_again |= self.unswept
        self.store = self._open_file()

    @invariant()
    def it_is_bounded(self) -> None:
        spool, memory = self.store._spool, self.store._memory
        kept = SMALL.batch.events + DROPS_TOLD_MAX
        assert spool is None or spool.state.events <= SMALL.spool.events + kept
        assert memory is None or memory.state.events <= SMALL.memory.events + kept

    def teardown(self) -> None:
        if not hasattr(self, "store"):
            return
        try:
            self._check()
        finally:
            numbering.EPOCH_AT_RISK_MAX = self.at_risk_max  # type: ignore[misc]
            self.store.close()
            self.temporary.cleanup()

    def _check(self) -> None:
        self.disk.full = False
        self.time.go(DISK_RETRY_S)
        self.store.check()
        assert self.store.status.durable
        while self._publish():
            pass
        found = recorded(self.log)
        numbers = numbers_in(found.events)
        assert numbers == sorted(set(numbers)), "each once, and in order"
        times = [event.time for event in found.events]
        assert times == sorted(times) or self.forgotten, "time does not go back, where the last one is known"
        missing = set(self.recorded) - set(numbers) - self.may_forget
        assert set(numbers) <= set(self.recorded)
        assert len(missing) <= sum(one.count for drops in found.dropped.values() for one in drops)
        for epoch in {event.epoch for event in found.events} | set(found.dropped):
            self._check_epoch(epoch, found)
        assert isinstance(found.events[0].data, NodeAgentStarted) or found.dropped

    def _check_epoch(self, epoch: str, found: Recorded) -> None:
        drops = found.dropped.get(epoch, [])
        seen = {event.number for event in found.events if event.epoch == epoch}
        last = max([*seen, *(one.last for one in drops)])
        missing = set(range(1, last + 1)) - seen
        if epoch in self.forgotten:
            return
        assert found.missing.get(epoch, set()) <= missing
        assert all(any(one.first <= number <= one.last for one in drops) for number in missing), (epoch, missing, drops)
        named = sum(one.count for one in drops)
        assert named == len(missing) or (self.counted_again and named > len(missing)), (epoch, missing, drops)


TestOutboxes = Outboxes.TestCase
TestOutboxes.settings = settings(examples(1.5), stateful_step_count=25)
