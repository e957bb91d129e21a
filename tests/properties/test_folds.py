"""What holds for every stream of facts: the rows follow from the facts, not from how they came.

Each model here is computed from the set of facts alone, by brute force, and shares nothing with the folds.
"""

from collections import defaultdict
from collections.abc import Sequence
from datetime import datetime
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuledger.deciders.sources.projection import SourcesProjection
from gpuledger.domain.fact import Touched
from gpuledger.domain.sources.deduplication import Numbers, Seen, SeenChange
from gpuledger.domain.table import Table
from gpuledger.domain.workloads.fold import Allocation
from gpuledger.events.device import DeviceInserted, DeviceRemoved
from gpuledger.events.envelope import Decoded
from gpuledger.events.workload import WorkloadEnded, WorkloadScheduled
from gpuledger.ledger.api import Message
from gpuledger.projection.definition import Projection
from gpuledger.projection.fold import Fold
from gpuledger.readmodels.projections import (
    AllocationsProjection,
    DevicesProjection,
    IncidentsProjection,
    NodesProjection,
    PreflightProjection,
    SharesProjection,
    WorkloadsProjection,
)
from support.events import (
    GENERATION,
    RecordedFact,
    crowded,
    device_facts,
    facts,
    folded,
    hour,
    log_of,
    numbered,
    rows_of,
    workload_facts,
)
from support.preflight_results import preflights
from support.sharing import sharings

READ_MODELS = [
    DevicesProjection(),
    NodesProjection(),
    WorkloadsProjection(),
    AllocationsProjection(),
    IncidentsProjection(),
    PreflightProjection(),
    SharesProjection(),
]
read_models = pytest.mark.parametrize("projection", READ_MODELS, ids=lambda model: model.name)
projections = pytest.mark.parametrize("projection", [*READ_MODELS, SourcesProjection()], ids=lambda model: model.name)


@projections
@given(recorded=facts | preflights | sharings)
def test_folding_is_deterministic(projection: Projection, recorded: list[RecordedFact]) -> None:
    log = log_of(numbered(recorded))
    assert rows_of(folded(projection, log)) == rows_of(folded(projection, log))


@read_models
@given(recorded=facts | preflights | sharings, data=st.data())
def test_repeats_change_nothing(projection: Projection, recorded: list[RecordedFact], data: st.DataObject) -> None:
    events = numbered(recorded)
    with_repeats: list[Decoded] = []
    for event in events:
        with_repeats.append(event)
        with_repeats += data.draw(st.lists(st.sampled_from(with_repeats), max_size=2))
    once, often = folded(projection, log_of(events)), folded(projection, log_of(with_repeats))
    assert rows_of(often, positions=False) == rows_of(once, positions=False)
    assert often.events == once.events == len(events)


@projections
@given(recorded=facts | preflights | sharings, again=st.integers(0, 24))
def test_redelivery_of_what_was_folded_changes_nothing(
    projection: Projection, recorded: list[RecordedFact], again: int
) -> None:
    log = log_of(numbered(recorded))
    fold = folded(projection, log)
    before, missing = rows_of(fold), fold.seen.numbers
    fold.apply_all(log[-again:])
    after = rows_of(fold)
    if projection.name == "sources":
        before, after = _without_repeats(before), _without_repeats(after)
    assert (after, fold.seen.numbers) == (before, missing)


@read_models
@given(recorded=facts | preflights | sharings, data=st.data())
def test_the_order_of_recording_does_not_matter(
    projection: Projection, recorded: list[RecordedFact], data: st.DataObject
) -> None:
    events = numbered(recorded)
    shuffled = data.draw(st.permutations(events))
    one, other = folded(projection, log_of(events)), folded(projection, log_of(shuffled))
    assert rows_of(one, positions=False) == rows_of(other, positions=False)


@read_models
@given(recorded=facts | preflights | sharings, until=st.integers(0, 9), data=st.data())
def test_as_of_a_time_is_what_was_true_by_then_in_whatever_order(
    projection: Projection, recorded: list[RecordedFact], until: int, data: st.DataObject
) -> None:
    earlier = [event for event in numbered(recorded) if event.time <= hour(until)]
    in_time = sorted(earlier, key=lambda event: event.time)
    shuffled = data.draw(st.permutations(earlier))
    assert rows_of(folded(projection, log_of(in_time)), positions=False) == rows_of(
        folded(projection, log_of(shuffled)), positions=False
    )


class Life(NamedTuple):
    """An installation by brute force."""

    device: str
    slot: str
    start: datetime
    end: datetime | None

    def overlaps(self, other: "Life") -> bool:
        if self.start == self.end or other.start == other.end:
            return False
        latest_start = max(self.start, other.start)
        return all(life.end is None or latest_start < life.end for life in (self, other))


def lives_and_strays(events: Sequence[Decoded]) -> tuple[set[Life], set[tuple[str, str, datetime, bool]]]:
    """Walk each device's facts in each slot: who is in cannot come in, who is out cannot go."""
    by_slot: dict[tuple[str, str], set[tuple[datetime, bool]]] = defaultdict(set)
    for event in events:
        if isinstance(event.data, DeviceInserted | DeviceRemoved):
            by_slot[event.subject, event.data.slot].add((event.time, isinstance(event.data, DeviceInserted)))
    lives: set[Life] = set()
    strays: set[tuple[str, str, datetime, bool]] = set()
    for (device, slot), moments in by_slot.items():
        since: datetime | None = None
        for time in sorted({time for time, _ in moments}):
            moves = [comes for comes in (True, False) if (time, comes) in moments]
            for comes in moves if since is None else reversed(moves):
                if comes == (since is None):
                    if since is not None:
                        lives.add(Life(device, slot, since, time))
                    since = time if comes else None
                else:
                    strays.add((device, slot, time, comes))
        if since is not None:
            lives.add(Life(device, slot, since, None))
    return lives, strays


@given(recorded=crowded | st.lists(device_facts, max_size=24))
def test_installations_and_strays_agree_with_brute_force(recorded: list[RecordedFact]) -> None:
    events = numbered(recorded)
    state = folded(DevicesProjection(), log_of(events)).state.tables()
    lives, strays = lives_and_strays(events)
    assert {Life(*row[:4]) for row in state["installation"].rows.values()} == lives
    assert {tuple(row[:4]) for row in state["stray"].rows.values()} == strays


@given(recorded=crowded | st.lists(device_facts, max_size=24))
def test_contradictions_are_the_overlaps_of_brute_force(recorded: list[RecordedFact]) -> None:
    events = numbered(recorded)
    contradictions = folded(DevicesProjection(), log_of(events)).state.tables()["contradiction"].rows.values()
    found = {
        (row.kind, row.subject, frozenset({(row.first, row.first_at), (row.second, row.second_at)}))
        for row in contradictions
        if row.second
    }
    lives, strays = lives_and_strays(events)
    expected = set()
    for one in lives:
        for other in lives:
            if one.overlaps(other):
                if one.slot == other.slot and one.device != other.device:
                    pair = frozenset({(one.device, one.start), (other.device, other.start)})
                    expected.add(("two-devices-in-slot", one.slot, pair))
                if one.device == other.device and one.slot != other.slot:
                    pair = frozenset({(one.slot, one.start), (other.slot, other.start)})
                    expected.add(("device-in-two-slots", one.device, pair))
    assert found == expected
    assert sum(not row.second for row in contradictions) == len(strays)


@given(recorded=crowded | st.lists(device_facts, max_size=24))
def test_passports_and_slots_agree_with_the_lives(recorded: list[RecordedFact]) -> None:
    events = numbered(recorded)
    state = folded(DevicesProjection(), log_of(events)).state.tables()
    lives, _ = lives_and_strays(events)
    for device, row in state["device"].rows.items():
        own = [life for life in lives if life.device == device]
        held = [life for life in own if life.end is None]
        assert (row.lives, row.places) == (len(own), len(held))
        assert row.slot in {life.slot for life in held} if held else row.slot is None
        assert row.in_service_since == max((life.start for life in held), default=None)
        assert row.first_seen_at == min(event.time for event in events if event.subject == device)
        assert row.removed_at == max((life.end for life in own if life.end), default=None)
    for slot, row in state["slot"].rows.items():
        inside = [life for life in lives if life.slot == slot]
        assert (row.lives, row.occupants) == (len(inside), sum(life.end is None for life in inside))
        assert row.vacated_at == max((life.end for life in inside if life.end), default=None)


@given(recorded=st.lists(workload_facts, max_size=24, unique_by=lambda one: (one.data.TYPE, one.subject, one.at)))
def test_what_is_allocated_is_what_the_facts_add_up_to(recorded: list[RecordedFact]) -> None:
    state = folded(WorkloadsProjection(), log_of(numbered(recorded))).state.tables()
    allocations = list(state["allocation"].rows.values())
    moments = sorted({one.at for one in recorded})
    for at in (*moments, *(later - 0.01 for later in moments)):
        held = sum(row.gpu_milli for row in allocations if holds(row, hour(at)))
        mine = [[one for one in recorded if one.subject == w and one.at <= at] for w in ("w1", "w2", "w3")]
        assert held == sum(map(held_after, mine))


def holds(row: Allocation, at: datetime) -> bool:
    """Whether the allocation is held at a time, its end exclusive."""
    return row.valid_from <= at and (row.valid_to is None or at < row.valid_to)


def held_after(recorded: list[RecordedFact]) -> int:
    """What one workload holds after these facts, in the order of time and an end after what it ends."""
    held = 0
    for one in sorted(recorded, key=lambda one: (one.at, isinstance(one.data, WorkloadEnded))):
        if isinstance(one.data, WorkloadScheduled):
            shares = [share.gpu_milli for share in one.data.devices]
            held = sum(shares) if shares else one.data.gpu_milli
        elif isinstance(one.data, WorkloadEnded):
            held = 0
    return held


class DictStore:
    """What PostgreSQL does with a fold's changes, in dictionaries; it minds what it is told."""

    def __init__(self, projection: Projection) -> None:
        self.projection = projection
        self.rows: dict[str, dict[Any, Any]] = {spec.name: {} for spec in projection.specs}
        self.seen: dict[tuple[str, str], SeenChange] = {}
        self.fold = Fold(projection, GENERATION)

    def take(self, messages: Sequence[Message]) -> None:
        """One batch: read back what it touches, and fold it."""
        batch = self.fold.check_all(messages)
        if self.projection.pages:
            self._page_in(self.fold.touched(batch))
        for touched in self.fold.applied(batch):
            self._page_in(touched)

    def _page_in(self, touched: Touched) -> None:
        for name, column, value in list(touched):
            table = self.fold.state.tables()[name]
            table.load([row for row in self.rows[name].values() if getattr(row, column) == value])

    def write(self) -> None:
        """Store what changed, which may be many batches' changes."""
        for table in self.fold.state.tables().values():
            self._write(table)
        for key in self.fold.seen.take_forgotten():
            del self.seen[key]
        for change in self.fold.seen.take_changes():
            key = (change.source, change.epoch)
            began = self.seen[key].began if key in self.seen else change.began
            self.seen[key] = change._replace(began=began)

    def restart(self) -> None:
        """Begin again with what is stored."""
        stored = sorted(self.seen.items(), key=lambda one: one[1].began)
        began = stored[-1][1].began if stored else 0
        seen = Seen({key: Numbers(change.last, change.holes) for key, change in stored}, began)
        expected = self.fold.outstanding()
        self.fold = Fold(self.projection, GENERATION, seen=seen, expected=expected, sequence=self.fold.sequence)
        for name, table in self.fold.state.tables().items():
            table.load(row for row in self.rows[name].values() if not _retired(table, row))

    def _write(self, table: Table[Any]) -> None:
        stored, changes = self.rows[table.spec.name], table.take_changes()
        for key in changes.gone:
            assert key in stored or table.spec.retires == ()
            stored.pop(key, None)
        for row in changes.changed:
            assert table.key_of(row) in stored or table.spec.retires == ()
            _store(table, stored, row)
        for row in changes.new:
            assert table.key_of(row) not in stored
            stored[table.key_of(row)] = row
        assert not table.has_changes()
        assert not [row for row in table.rows.values() if _retired(table, row)]


def _store(table: Table[Any], stored: dict[Any, Any], row: Any) -> None:
    """Replace the stored row, or add to its sums; of sums of nothing no row is left."""
    key, names = table.key_of(row), table.spec.adds
    before = stored.get(key)
    if before is not None:
        row = row._replace(**{name: getattr(before, name) + getattr(row, name) for name in names})
    stored[key] = row
    if names and not any(getattr(row, name) for name in names):
        del stored[key]


def _retired(table: Table[Any], row: Any) -> bool:
    columns = table.spec.retires
    return columns is not None and all(getattr(row, column) is not None for column in columns)


@projections
@given(recorded=facts | preflights | sharings, data=st.data())
def test_any_batches_with_any_restarts_store_what_one_batch_does(
    projection: Projection, recorded: list[RecordedFact], data: st.DataObject
) -> None:
    log = log_of(data.draw(st.permutations(numbered(recorded))))
    store = DictStore(projection)
    rest = log
    while rest:
        size = data.draw(st.integers(1, len(rest)))
        store.take(rest[:size])
        rest = rest[size:]
        if data.draw(st.booleans()):
            store.write()
            if data.draw(st.booleans()):
                store.restart()
    store.write()
    assert store.rows == rows_of(folded(projection, log))


def _without_repeats(rows: dict[str, dict[Any, Any]]) -> dict[str, dict[Any, Any]]:
    once = {key: row._replace(duplicates=0) for key, row in rows["source"].items()}
    return {**rows, "source": once, "source_hour": {}}
