"""Attempts at preflight checks and gangs agree with a reading of all facts at once, however these were recorded."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuledger.domain.fact import Touched
from gpuledger.domain.preflight.results_rows import PreflightGang
from gpuledger.events.envelope import Decoded
from gpuledger.events.preflight import (
    GangConfigured,
    GangDissolved,
    GangTimedOut,
    PodPreflightGone,
    PodPreflightObserved,
    PreflightCheck,
    PreflightResult,
)
from gpuledger.projection.fold import Fold
from gpuledger.readmodels.projections import PreflightProjection
from support.events import RecordedFact, folded, log_of, numbered, rows_of
from support.preflight_results import TYPES, crash_loop, ended, in_order, preflights

Attempt = tuple[str, str, int]


def fold_of(events: Sequence[Decoded]) -> Fold:
    return folded(PreflightProjection(), log_of(events), types=TYPES)


def attempts_in(check: PreflightCheck) -> dict[int, bool]:
    """The attempts that an observation is about, and whether it has their ends."""
    has_end = check.state == "ended" or check.exit_code is not None or check.ended_at is not None
    if check.state != "running":
        return {check.attempt: has_end}
    return {check.attempt: False} | ({check.attempt - 1: True} if has_end and check.attempt else {})


def read_at_once(events: Sequence[Decoded]) -> dict[Attempt, tuple[bool, datetime, datetime | None]]:
    """Of each attempt: whether its end is the latest that is known, when it was first seen, and when it was over."""
    seen: dict[Attempt, list[tuple[datetime, bool]]] = {}
    for event in events:
        if isinstance(event.data, PodPreflightObserved):
            for check in event.data.checks:
                for attempt, ended in attempts_in(check).items():
                    seen.setdefault((event.data.uid, check.name, attempt), []).append((event.time, ended))
    first = {key: min(moments)[0] for key, moments in seen.items()}
    found = {}
    for (uid, check_name, attempt), moments in seen.items():
        later = [first[key] for key in seen if key[:2] == (uid, check_name) and key[2] > attempt]
        over_at = min(later) if later else pod_over(events, uid)
        found[uid, check_name, attempt] = (max(moments)[1], first[uid, check_name, attempt], over_at)
    return found


def pod_over(events: Sequence[Decoded], uid: str) -> datetime | None:
    about = [event for event in events if getattr(event.data, "uid", None) == uid]
    latest = max(about, key=lambda event: event.time)
    seen = max((one for one in about if isinstance(one.data, PodPreflightObserved)), key=lambda event: event.time)
    if getattr(seen.data, "done", False):
        return seen.time
    return latest.time if isinstance(latest.data, PodPreflightGone) else None


@given(recorded=preflights)
def test_attempts_are_what_all_facts_at_once_say(recorded: list[RecordedFact]) -> None:
    events = numbered(recorded)
    tables = fold_of(events).state.tables()
    found = {
        key: (row.state == "ended", row.first_at, row.over_at) for key, row in tables["preflight_check"].rows.items()
    }
    assert found == read_at_once(events)
    for row in tables["preflight_pod"].rows.values():
        assert row.attempts == sum(key[0] == row.uid for key in found)
    for row in tables["preflight_check"].rows.values():
        assert (row.outcome is None) == (row.state != "ended" and row.over_at is None)


@given(recorded=preflights)
def test_gangs_begin_behind_dissolutions(recorded: list[RecordedFact]) -> None:
    events = sorted(numbered(recorded), key=lambda event: (event.time, isinstance(event.data, GangDissolved)))
    expected: dict[str, list[list[Decoded]]] = {}
    for event in events:
        if event.data.AGGREGATE == "gang":
            gangs = expected.setdefault(event.subject, [])
            if not gangs or isinstance(gangs[-1][-1].data, GangDissolved):
                gangs.append([])
            gangs[-1].append(event)
    rows = fold_of(numbered(recorded)).state.tables()["preflight_gang"].rows
    assert set(rows) == {(gang, one[0].time) for gang, ones in expected.items() for one in ones}
    for gang, ones in expected.items():
        for life, one in enumerate(ones, 1):
            _check_gang(rows[gang, one[0].time], life, one)


def _check_gang(row: PreflightGang, life: int, events: Sequence[Decoded]) -> None:
    is_dissolved = isinstance(events[-1].data, GangDissolved)
    assert (row.life, row.dissolved_at) == (life, events[-1].time if is_dissolved else None)
    complete = [one.time for one in events if isinstance(one.data, GangConfigured) and one.data.complete]
    assert row.completed_at == min(complete, default=None)
    assert row.timed_out_at == max((one.time for one in events if isinstance(one.data, GangTimedOut)), default=None)


@given(recorded=preflights, data=st.data())
def test_the_order_of_recording_does_not_matter(recorded: list[RecordedFact], data: st.DataObject) -> None:
    events = numbered(recorded)
    shuffled = data.draw(st.permutations(events))
    assert rows_of(fold_of(events), positions=False) == rows_of(fold_of(shuffled), positions=False)


@given(recorded=preflights, size=st.integers(1, 4))
def test_what_is_over_leaves_memory_and_late_facts_read_it_back(recorded: list[RecordedFact], size: int) -> None:
    events = numbered(recorded)
    fold, stored = stored_in_batches(events, size)
    tables = fold.state.tables()
    assert all(
        row.over_at is None for name in ("preflight_pod", "preflight_check") for row in tables[name].rows.values()
    )
    assert all(row.dissolved_at is None for row in tables["preflight_gang"].rows.values())
    assert not tables["preflight_gang_event"].rows
    for name, table in fold_of(events).state.tables().items():
        assert stored.get(name, {}) == table.rows, name


def stored_in_batches(events: Sequence[Decoded], size: int) -> tuple[Fold, dict[str, dict[object, Any]]]:
    """Fold events in batches, whose rows are written behind each and read back as a writer does it."""
    fold, stored = fold_of([]), dict[str, dict[object, Any]]()
    messages = log_of(events)
    for at in range(0, len(messages), size):
        batch = fold.check_all(messages[at : at + size])
        _read_back(fold, stored, fold.touched(batch))
        for places in fold.applied(batch):
            _read_back(fold, stored, places)
        for name, table in fold.state.tables().items():
            changes, rows = table.take_changes(), stored.setdefault(name, {})
            for key in changes.gone:
                rows.pop(key, None)
            rows.update({table.key_of(row): row for row in (*changes.new, *changes.changed)})
    return fold, stored


def _read_back(fold: Fold, stored: dict[str, dict[object, Any]], places: Touched) -> None:
    for name, column, value in places:
        table = fold.state.tables()[name]
        place = table.spec.columns.index(column)
        table.load([row for row in stored.get(name, {}).values() if row[place] == value])


def test_a_crash_loop_keeps_no_more_than_its_last_attempts_in_memory() -> None:
    events = crash_loop(40)
    fold, stored = stored_in_batches(events[:-2], 1)
    assert len(fold.state.tables()["preflight_check"].rows) == len({"dcgm-diag", "bandwidth"})
    assert len(stored["preflight_check"]) == 40 + 2
    fold, stored = stored_in_batches(events, 1)
    assert not any(table.rows for table in fold.state.tables().values())
    (last,) = [row for row in stored["preflight_check"].values() if row.check_name == "bandwidth" and row.attempt == 40]
    assert (last.outcome, last.exit_code) == ("passed", 0)


@pytest.mark.parametrize(("exit_code", "outcome"), [(0, "passed"), (1, "failed"), (137, "not-reported")])
def test_a_check_that_says_it_passed_and_ends_otherwise_has_not_passed(exit_code: int, outcome: str) -> None:
    """Its pod stays where it is, so that no rate may count it."""
    check = ended("dcgm-diag", exit_code=exit_code, result=PreflightResult(outcome="passed", message="ok"))
    events = in_order([("ml/w-0", 0, PodPreflightObserved(uid="u1", checks=(check,)))])
    (row,) = fold_of(events).state.tables()["preflight_check"].rows.values()
    assert (row.outcome, row.message) == (outcome, "ok")
