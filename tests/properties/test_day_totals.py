"""Day totals are what the ranges that ended add up to on each day, however they came."""

from collections import Counter
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuledger.domain.table import Sum, Table, TableSpec
from gpuledger.domain.workloads.day_totals import DAY, DAYS_MAX, changes_of, holder_of
from gpuledger.projection.definition import Projection
from gpuledger.readmodels.projections import AllocationsProjection, WorkloadsProjection
from support.events import RecordedFact, facts, folded, log_of, numbered

DAYS = DAYS_MAX + 3
FIRST = datetime(2024, 2, 27, tzinfo=UTC)
MICROSECOND = timedelta(microseconds=1)

moments = st.integers(0, (DAYS - 1) * DAY // MICROSECOND).map(lambda us: FIRST + us * MICROSECOND)
midnights = st.integers(0, DAYS - 1).map(lambda days: FIRST + days * DAY)
at = moments | midnights
ranges = st.lists(st.tuples(at, at, st.integers(0, 2**63 - 1)), max_size=6)


class Total(NamedTuple):
    day: datetime
    held: Sum
    held_us: Sum


TOTAL: TableSpec[Total] = TableSpec("total", Total, ("day",), retires=(), adds=("held", "held_us"))


def by_day(rows: Iterable[Total]) -> list[int]:
    """What was held on each day, from the changes of the days."""
    changed = {row.day: row for row in rows}
    held, totals = 0, []
    for day in range(DAYS):
        change = changed.get(FIRST + day * DAY, Total(FIRST, Sum(0), Sum(0)))
        totals.append(held * (DAY // MICROSECOND) + change.held_us)
        held += change.held
    assert held == 0
    return totals


@given(ranges)
def test_a_day_is_what_the_ranges_had_of_it(ranges: list[tuple[datetime, datetime, int]]) -> None:
    table = Table(TOTAL)
    for start, end, amount in ranges:
        for change in changes_of(start, end, amount):
            table.add(Total(*change))
    expected = []
    for day in (FIRST + day * DAY for day in range(DAYS)):
        parts = [(min(end, day + DAY) - max(start, day), amount) for start, end, amount in ranges]
        expected.append(sum(amount * max(part // MICROSECOND, 0) for part, amount in parts))
    assert by_day(table.rows.values()) == expected


@given(ranges)
def test_what_is_taken_away_again_leaves_nothing(ranges: list[tuple[datetime, datetime, int]]) -> None:
    table = Table(TOTAL)
    for sign in (1, -1):
        for start, end, amount in ranges:
            for change in changes_of(start, end, sign * amount):
                table.add(Total(*change))
    assert not table.rows
    assert not table.has_changes()


@given(st.lists(st.none() | st.text(max_size=4), max_size=3), st.lists(st.none() | st.text(max_size=4), max_size=3))
def test_other_names_are_another_holder(one: list[str | None], other: list[str | None]) -> None:
    assert (holder_of(*one) == holder_of(*other)) is (one == other)


@pytest.mark.parametrize("projection", [WorkloadsProjection(), AllocationsProjection()], ids=lambda model: model.name)
@given(recorded=facts, data=st.data())
def test_a_fold_keeps_the_totals_of_what_ended(
    projection: Projection, recorded: list[RecordedFact], data: st.DataObject
) -> None:
    log = log_of(data.draw(st.permutations(numbered(recorded))))
    tables = folded(projection, log).state.tables()
    expected: Counter[Any] = Counter()
    for names, start, end, amount in _ended(tables):
        for day, held, held_us in changes_of(start, end, amount):
            expected.update({(day, *names, "held"): held, (day, *names, "us"): held_us})
    found: Counter[Any] = Counter()
    for row in next(table for name, table in tables.items() if name.endswith("_day")).rows.values():
        day, holder, *names, held, held_us = row
        assert holder == holder_of(*names)
        found.update({(day, *names, "held"): held, (day, *names, "us"): held_us})
    assert {key: total for key, total in found.items() if total} == {
        key: total for key, total in expected.items() if total
    }


def _ended(tables: Any) -> Iterable[tuple[tuple[str | None, ...], datetime, datetime, int]]:
    if "workload" in tables:
        for row in tables["allocation"].rows.values():
            requested = tables["workload"].get(row.workload)
            if row.valid_to:
                names = (row.node, requested.owner, requested.workload_class)
                yield names, row.valid_from, row.valid_to, row.gpu_milli
    else:
        for row in tables["container_allocation_history"].rows.values():
            if row.valid_to:
                yield (row.node, row.namespace, row.resource, row.driver, row.pool), row.valid_from, row.valid_to, 1
