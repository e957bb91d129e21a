"""Allocations at any time follow the last reports by then; the model uses the set of facts alone."""

from collections.abc import Sequence
from datetime import datetime

from hypothesis import given
from hypothesis import strategies as st

from gpuledger.domain.workloads.allocations import AllocationRange
from gpuledger.events.allocation import AllocationObserved
from gpuledger.readmodels.projections import AllocationsProjection
from support.events import RecordedFact, allocated, fact_of, folded, hour, log_of, numbered

HOURS = range(-1, 11)
Held = set[tuple[str, str | None, str, int | None]]
"""Units: allocation, resource or claim's pool, device, and slice."""


def last_reported(facts: Sequence[RecordedFact], at: int) -> Held:
    """What containers have by brute force: the last report on each."""
    held: Held = set()
    for allocation in {one.subject for one in facts}:
        reports = [one for one in facts if one.subject == allocation and one.at <= at]
        if reports and isinstance(data := max(reports, key=lambda one: one.at).data, AllocationObserved):
            for given in data.resources:
                for device in given.devices:
                    uuid, _, number = device.partition("::")
                    held.add((allocation, given.resource, uuid, int(number) if number else None))
            held |= {(allocation, claim.pool, claim.device, None) for claim in data.claims}
    return held


def unit(row: AllocationRange) -> tuple[str, str | None, str, int | None]:
    return (row.allocation, row.resource or row.pool, row.device, row.slice)


def holds(row: AllocationRange, at: datetime) -> bool:
    return row.valid_from <= at and (row.valid_to is None or at < row.valid_to)


@given(facts=allocated, data=st.data())
def test_ranges_follow_the_last_reports_in_any_order(facts: list[RecordedFact], data: st.DataObject) -> None:
    events = data.draw(st.permutations(numbered(facts)))
    state = folded(AllocationsProjection(), log_of(events)).state.tables()
    ranges: list[AllocationRange] = list(state["container_allocation_history"].rows.values())
    for at in HOURS:
        found = [unit(row) for row in ranges if holds(row, hour(at))]
        assert len(found) == len(set(found))
        assert set(found) == last_reported(facts, at)
    ends = {(unit(row), row.valid_to) for row in ranges}
    assert not [row for row in ranges if (unit(row), row.valid_from) in ends], "ranges that touch are one"
    now = {(row[:-1], row.since) for row in state["container_allocation"].rows.values()}
    assert now == {(row[:-2], row.valid_from) for row in ranges if row.valid_to is None}


@given(facts=allocated)
def test_what_comes_in_order_needs_no_past(facts: list[RecordedFact]) -> None:
    fold = folded(AllocationsProjection(), [])
    tables = fold.state.tables()
    for message in log_of(numbered(sorted(facts, key=lambda one: one.at))):
        fact = fact_of(fold, message)
        assert fact is not None
        is_held = any(row.allocation == fact.event.subject for row in tables["container_allocation"].rows.values())
        assert not (is_held and list(fold.projection.touched(fold.state, fact)))
        fold.apply(message)
        for table in tables.values():
            table.take_changes()
    held = {(row.allocation, row.resource or row.pool, row.device, row.slice)
            for row in tables["container_allocation"].rows.values()}  # fmt: skip
    assert held == last_reported(facts, HOURS[-1])
    assert all(row.valid_to is None for row in tables["container_allocation_history"].rows.values())
    assert {row.allocation for row in tables["container_allocation_report"].rows.values()} == {row[0] for row in held}
