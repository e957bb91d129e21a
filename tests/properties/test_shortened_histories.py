"""A history that an operator shortened: rows of after are those of a fold that kept all, however the fold is cut."""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from functools import cache
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpuledger.domain.fact import Touched
from gpuledger.domain.histories import (
    CONTAINER_ALLOCATIONS,
    HISTORIES,
    PREFLIGHT_CHECKS,
    SHARED_ALLOCATIONS,
    WORKLOAD_ALLOCATIONS,
)
from gpuledger.domain.table import Changes, Table
from gpuledger.events.envelope import Decoded
from gpuledger.events.history import HistoryShortened
from gpuledger.events.preflight import PodPreflightGone
from gpuledger.events.sharing import PodSharingGone
from gpuledger.ledger.api import Message
from gpuledger.projection.definition import Projection
from gpuledger.projection.fold import Fold
from gpuledger.projection.fold_snapshots import buckets
from gpuledger.projection.fold_snapshots.check import check_snapshots
from gpuledger.projection.fold_snapshots.reader import FoldSnapshots
from gpuledger.readmodels.projections import (
    AllocationsProjection,
    AvailabilityProjection,
    PreflightProjection,
    SharesProjection,
    WorkloadsProjection,
)
from properties.test_fold_snapshots import refuse, take_at
from support.events import (
    GENERATION,
    RecordedFact,
    Rows,
    allocated,
    event,
    folded,
    hour,
    log_of,
    numbered,
    rows_of,
    worked,
)
from support.fold_snapshots import CountingLedger, MemoryObjects, from_snapshot, from_start, recorded_messages
from support.preflight_results import crash_loop, preflights
from support.sharing import lives, sharings

OPERATOR = "/operators/eva"
SECOND = timedelta(seconds=1)
LATER = timedelta(days=400)
"""How long after the facts everything is recorded, so that all of them may be dropped."""

bounds = st.integers(-1, 10)

SHORTENED: Sequence[Projection] = (
    AllocationsProjection(),
    AvailabilityProjection(),
    PreflightProjection(),
    SharesProjection(),
    WorkloadsProjection(),
)
"""The projections with histories."""


def shortened(at: int, number: int = 1, history: str = CONTAINER_ALLOCATIONS.name) -> Decoded:
    return event(HistoryShortened(before=hour(at)), history, number=number, source=OPERATOR)


def late_log(events: Sequence[Decoded]) -> list[Message]:
    """The events, recorded long after they happened."""
    return [recorded_later(one) for one in log_of(events)]


def recorded_later(message: Message) -> Message:
    return message._replace(recorded_ns=message.recorded_ns + int(LATER.total_seconds()) * 10**9)


def ended_before(row: Any, begins: datetime) -> bool:
    """Whether a range, a report that no longer holds, or a pod that is gone, ended before a time."""
    end = getattr(row, "valid_to", None) or getattr(row, "until", None) or getattr(row, "gone_at", None)
    return end is not None and end < begins


def _with(rows: Mapping[Any, Any], column: str, value: object) -> list[Any]:
    """The rows that have a value in a column."""
    return [row for row in rows.values() if getattr(row, column) == value]


class Stored:
    """A fold whose rows leave memory as they are written, and come back as they are touched; as a store has them."""

    def __init__(self, projection: Projection) -> None:
        self.fold = Fold(projection, GENERATION)
        self.rows: dict[str, dict[Any, Any]] = {name: {} for name in self.fold.state.tables()}

    def take(self, messages: Sequence[Message]) -> None:
        batch = self.fold.check_all(messages)
        kept = self.kept()
        self._read_back(kept, self.fold.touched(batch))
        for places in self.fold.applied(batch):
            self._read_back(kept, places)
        for name, table in self.fold.state.tables().items():
            self._write(self.rows[name], table, table.take_changes())

    def _read_back(self, kept: Rows, places: Touched) -> None:
        for name, column, value in set(places):
            table = self.fold.state.tables()[name]
            if table.spec.page_after is None or _with(kept[table.spec.page_after], column, value):
                table.load(_with(self.rows[name], column, value))

    def _write(self, rows: dict[Any, Any], table: Table[Any], changes: Changes[Any]) -> None:
        for key in changes.gone:
            rows.pop(key, None)
        for row in (*changes.new, *changes.changed):
            key = table.key_of(row)
            rows[key] = table.spec.added(rows.get(key), row)
            if table.spec.is_nothing(rows[key]):
                del rows[key]

    def kept(self) -> Rows:
        """The rows but for those that are about to be deleted."""
        tables = self.fold.state.tables()
        return {
            name: {key: row for key, row in rows.items() if not tables[name].is_dropped(row)}
            for name, rows in self.rows.items()
        }


@given(facts=allocated, begins=bounds, data=st.data())
def test_what_is_kept_is_what_a_fold_of_all_would_keep(
    facts: list[RecordedFact], begins: int, data: st.DataObject
) -> None:
    events = data.draw(st.permutations(numbered(facts)))
    before, after = events[: (place := data.draw(st.integers(0, len(events))))], events[place:]
    in_time = [one for one in after if one.time >= hour(begins)]
    expected = rows_of(folded(AllocationsProjection(), late_log([*before, *in_time])), positions=False)
    for name in ("container_allocation_history", "container_allocation_report"):
        expected[name] = {key: row for key, row in expected[name].items() if not ended_before(row, hour(begins))}
    found = folded(AllocationsProjection(), late_log([*before, shortened(begins), *after]))
    assert rows_of(found, positions=False) == expected


@given(facts=worked, begins=bounds, data=st.data())
def test_allocations_of_workloads_are_those_that_a_fold_of_all_would_keep(
    facts: list[RecordedFact], begins: int, data: st.DataObject
) -> None:
    """A new submission moves the day totals of what is kept alone to another owner; what all held stays."""
    events = data.draw(st.permutations(numbered(facts)))
    before, after = events[: (place := data.draw(st.integers(0, len(events))))], events[place:]
    in_time = [one for one in after if one.time >= hour(begins)]
    expected = rows_of(folded(WorkloadsProjection(), late_log([*before, *in_time])), positions=False)
    mark = shortened(begins, history=WORKLOAD_ALLOCATIONS.name)
    found = rows_of(folded(WorkloadsProjection(), late_log([*before, mark, *after])), positions=False)
    kept = {key: row for key, row in expected.pop("allocation").items() if not ended_before(row, hour(begins))}
    assert found.pop("allocation") == kept
    assert of_all_owners(found.pop("allocation_day")) == of_all_owners(expected.pop("allocation_day"))
    assert found == expected


def of_all_owners(days: dict[Any, Any]) -> dict[tuple[datetime, str | None], tuple[int, int]]:
    """The sums by day and node that are not 0."""
    sums: dict[tuple[datetime, str | None], tuple[int, int]] = {}
    for row in days.values():
        held, held_us = sums.get((row.day, row.node), (0, 0))
        sums[row.day, row.node] = (held + row.held, held_us + row.held_us)
    return {key: both for key, both in sums.items() if any(both)}


@given(recorded=preflights, begins=bounds, data=st.data())
def test_checks_are_those_that_a_fold_of_all_would_keep(
    recorded: list[RecordedFact], begins: int, data: st.DataObject
) -> None:
    """Of pods that were gone before the bound nothing more is heard, as no object comes back."""
    gone = {one.data.uid for one in recorded if isinstance(one.data, PodPreflightGone) and one.at < begins}
    facts = [one for one in recorded if one.at < begins or getattr(one.data, "uid", None) not in gone]
    events = data.draw(st.permutations(numbered(facts)))
    before, after = events[: (place := data.draw(st.integers(0, len(events))))], events[place:]
    in_time = [one for one in after if one.time >= hour(begins) or one.data.AGGREGATE == "gang"]
    expected = rows_of(folded(PreflightProjection(), late_log([*before, *in_time])), positions=False)
    for name in ("preflight_pod", "preflight_check"):
        expected[name] = {key: row for key, row in expected[name].items() if not ended_before(row, hour(begins))}
    mark = shortened(begins, history=PREFLIGHT_CHECKS.name)
    found = folded(PreflightProjection(), late_log([*before, mark, *after]))
    assert rows_of(found, positions=False) == expected


@given(recorded=sharings, begins=bounds, data=st.data())
def test_shared_allocations_are_those_that_a_fold_of_all_would_keep(
    recorded: list[RecordedFact], begins: int, data: st.DataObject
) -> None:
    """Of pods that were gone before the bound nothing more is heard, as no object comes back."""
    over = {one.data.uid for one in recorded if isinstance(one.data, PodSharingGone) and one.at < begins}
    facts = [one for one in recorded if one.at < begins or getattr(one.data, "uid", None) not in over]
    events = data.draw(st.permutations(numbered(facts)))
    before, after = events[: (place := data.draw(st.integers(0, len(events))))], events[place:]
    in_time = [one for one in after if one.time >= hour(begins) or one.data.AGGREGATE == "node"]
    expected = rows_of(folded(SharesProjection(), late_log([*before, *in_time])), positions=False)
    for name in ("shared_pod", "shared_pod_fact", "shared_allocation"):
        kept = {key: row for key, row in expected[name].items() if not is_over_before(row, hour(begins))}
        expected[name] = kept
    mark = shortened(begins, history=SHARED_ALLOCATIONS.name)
    found = folded(SharesProjection(), late_log([*before, mark, *after]))
    assert rows_of(found, positions=False) == expected


def is_over_before(row: Any, begins: datetime) -> bool:
    """Whether a row is of a pod that was over before a time."""
    return row.over_at is not None and row.over_at < begins


def left_memory_alike(
    projection: Projection, history: str, facts: list[RecordedFact], begins: list[int], data: st.DataObject
) -> None:
    marks = [shortened(at, number, history) for number, at in enumerate(begins, 1)]
    log = late_log(data.draw(st.permutations([*numbered(facts), *marks])))
    stored = Stored(projection)
    cuts = sorted(data.draw(st.sets(st.integers(0, len(log)), max_size=6)) | {0, len(log)})
    for first, end in pairwise(cuts):
        stored.take(log[first:end])
    assert stored.kept() == rows_of(folded(projection, log))


@given(facts=allocated, begins=st.lists(bounds, min_size=1, max_size=3), data=st.data())
def test_rows_that_left_memory_are_kept_and_dropped_alike(
    facts: list[RecordedFact], begins: list[int], data: st.DataObject
) -> None:
    left_memory_alike(AllocationsProjection(), CONTAINER_ALLOCATIONS.name, facts, begins, data)


@given(facts=worked, begins=st.lists(bounds, min_size=1, max_size=3), data=st.data())
def test_rows_of_workloads_that_left_memory_are_kept_and_dropped_alike(
    facts: list[RecordedFact], begins: list[int], data: st.DataObject
) -> None:
    left_memory_alike(WorkloadsProjection(), WORKLOAD_ALLOCATIONS.name, facts, begins, data)


@given(facts=preflights, begins=st.lists(bounds, min_size=1, max_size=3), data=st.data())
def test_rows_of_checks_that_left_memory_are_kept_and_dropped_alike(
    facts: list[RecordedFact], begins: list[int], data: st.DataObject
) -> None:
    left_memory_alike(PreflightProjection(), PREFLIGHT_CHECKS.name, facts, begins, data)


def test_late_attempts_at_checks_before_the_bound_change_nothing() -> None:
    """A pod whose earlier attempts left memory long ago, and which goes on: all of it is kept until it is gone."""
    *loop, gone = crash_loop(3)
    mark = shortened(4, history=PREFLIGHT_CHECKS.name)
    stored = Stored(PreflightProjection())
    for message in late_log([*loop[:-2], mark, *loop[-2:]]):
        stored.take([message])
    assert len(stored.kept()["preflight_check"]) == 5
    late = late_log([*loop, gone, shortened(7, 2, PREFLIGHT_CHECKS.name), loop[1]])
    assert not rows_of(folded(PreflightProjection(), late))["preflight_check"]


@given(facts=allocated, begins=st.lists(bounds, min_size=1, max_size=3), data=st.data())
def test_of_several_bounds_the_latest_holds(facts: list[RecordedFact], begins: list[int], data: st.DataObject) -> None:
    events = numbered(facts)
    marks = [shortened(at, number) for number, at in enumerate(data.draw(st.permutations(begins)), 1)]
    found = folded(AllocationsProjection(), late_log([*events, *marks]))
    assert rows_of(found) == rows_of(folded(AllocationsProjection(), late_log([*events, shortened(max(begins))])))


@cache
def whole_log() -> tuple[Message, ...]:
    """A recorded log behind events of types that are newer than it, all recorded much later."""
    newer = [*crash_loop(2), *crash_loop(3, uid="u3", first=100)[:-1], *lives(3, 9, 20)]
    first = [one._replace(recorded_ns=recorded_messages()[0].recorded_ns) for one in log_of(newer)]
    return tuple(recorded_later(one) for one in (*first, *recorded_messages()))


@cache
def marks() -> list[Message]:
    """Events that shorten every history, each to the later half of what a log has of it."""
    messages, found = whole_log(), dict[str, list[datetime]]()
    for projection in SHORTENED:
        for table in folded(projection, messages).state.tables().values():
            if table.spec.history:
                ends = [getattr(row, table.spec.ends) for row in table.rows.values()]
                found.setdefault(table.spec.history, []).extend(one for one in ends if one is not None)
    events = [
        event(HistoryShortened(before=sorted(ends)[len(ends) // 2] + SECOND), name, number=number, source=OPERATOR)
        for number, (name, ends) in enumerate(found.items(), 1)
    ]
    return [one._replace(recorded_ns=messages[-1].recorded_ns) for one in late_log(events)]


def shortened_recording(at: int) -> list[Message]:
    """The log, in which all histories are shortened at a place."""
    messages = whole_log()
    whole = [*messages[:at], *marks(), *messages[at:]]
    return [one._replace(sequence=sequence) for sequence, one in enumerate(whole, 1)]


MESSAGES = len(whole_log())
each = pytest.mark.parametrize("projection", SHORTENED, ids=lambda projection: projection.name)


@each
@settings(max_examples=5, deadline=None)
@given(at=st.integers(0, MESSAGES), step=st.integers(1, 200))
def test_a_recorded_log_is_shortened_alike_in_memory_and_in_a_store(projection: Projection, at: int, step: int) -> None:
    log, stored = shortened_recording(at), Stored(projection)
    for first in range(0, len(log), step):
        stored.take(log[first : first + step])
    assert stored.kept() == rows_of(folded(projection, log))


def test_the_recorded_log_has_something_to_drop_of_every_history() -> None:
    assert len(marks()) == len(HISTORIES)
    for projection in SHORTENED:
        dropped, kept = (rows_of(folded(projection, shortened_recording(MESSAGES)[:end])) for end in (None, MESSAGES))
        for spec in projection.specs:
            assert (len(dropped[spec.name]) < len(kept[spec.name])) == (spec.history is not None), spec.name


@pytest.fixture
def small_buckets(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tables have many buckets."""
    monkeypatch.setattr(buckets, "ROWS_PER_BUCKET", 4)


@each
@pytest.mark.parametrize("at", [50, 200])
@pytest.mark.usefixtures("small_buckets")
async def test_snapshots_of_before_and_after_give_the_fold_from_the_start(projection: Projection, at: int) -> None:
    log = shortened_recording(at)
    ledger = CountingLedger(log)
    snapshots = FoldSnapshots(MemoryObjects(), ledger, refuse)
    await take_at(projection, ledger, snapshots, [40, 120, 250, len(log) - 1])
    for until in (30, 100, 230, len(log)):
        found = await from_snapshot(projection, ledger, snapshots, until)
        assert found is None or found == await from_start(projection, ledger, until)
    checked = [one async for one in check_snapshots(projection, ledger, snapshots)]
    assert all(one.is_right and one.rows for one in checked), checked
