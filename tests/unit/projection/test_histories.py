"""The rule that a history was shortened: who may say so, what stops, and what every projection rejects alike."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuledger.domain.histories import CONTAINER_ALLOCATIONS, HISTORIES, KEPT_MIN, seconds_of, time_of
from gpuledger.events.allocation import AllocationEnded
from gpuledger.events.device import DeviceFailed
from gpuledger.events.envelope import Decoded
from gpuledger.events.errors import UnknownEventTypeError
from gpuledger.events.history import HistoryShortened
from gpuledger.events.position import Position
from gpuledger.events.rule import RuleEnforced
from gpuledger.projection.definition import Projection
from gpuledger.projection.enforced import EnforcedRule, EnforcedRules, check_version, rule_of_history
from gpuledger.projection.errors import BadEventError
from gpuledger.projection.fold import Fold
from gpuledger.readmodels.projections import AllocationsProjection, DevicesProjection
from gpuledger.tools.queries.backend import all_projections
from support.events import AGENT, GENERATION, IMPORT, event, folded, hour, log_of, message

LONG_AGO = -24 * 365
"""Hours before everything is recorded."""

CONTAINER = "n1/ns/p/c"


def shortened(
    name: str = CONTAINER_ALLOCATIONS.name, *, number: int = 1, source: str = "/operators/eva", at: float = LONG_AGO
) -> Decoded:
    return event(HistoryShortened(before=hour(at)), name, number=number, source=source)


def ended(at: float, number: int = 1) -> Decoded:
    return event(AllocationEnded(), CONTAINER, number=number, at=at, source=AGENT)


@pytest.mark.parametrize("projection", all_projections(), ids=lambda one: one.name)
def test_every_projection_rejects_a_fact_of_before(projection: Projection) -> None:
    log = log_of([shortened(), ended(LONG_AGO - 1, 1), ended(LONG_AGO, 2)])
    fold = Fold(projection, GENERATION)
    checked = fold.check_all(log)
    fold.apply_all_checked(checked)
    assert fold.enforced.in_force.refused_before == {"allocation": hour(LONG_AGO)}
    assert [one.error is None for one in checked] == [True, False, True]
    assert "an operator has shortened the history that it would change" in str(checked[1].error)


def test_facts_of_other_aggregates_are_as_old_as_they_like() -> None:
    log = log_of([shortened(name, number=number) for number, name in enumerate(HISTORIES, 1)])
    log += log_of([event(DeviceFailed(kind="DBE"), "d1", at=LONG_AGO - 1)], len(log) + 1)
    fold = folded(DevicesProjection(), log)
    assert set(fold.enforced.in_force.histories) == set(HISTORIES)
    assert len(fold.state.tables()["failure"]) == 1


@pytest.mark.parametrize("source", [AGENT, IMPORT])
def test_nobody_of_the_edge_shortens_a_history(source: str) -> None:
    in_force = event(RuleEnforced(), HistoryShortened.TYPE, source="/services/sources")
    for before in ([], [in_force]):
        log = log_of([*before, shortened(source=source), ended(LONG_AGO - 1, 2)])
        fold = Fold(AllocationsProjection(), GENERATION)
        checked = fold.check_all(log)
        fold.apply_all_checked(checked)
        assert not fold.enforced.in_force.histories
        assert fold.state.tables()["container_allocation_report"].begins is None
        assert [one.error is None for one in checked] == [*(True for _ in before), not before, True]


@pytest.mark.parametrize("source", ["/services/pools", "/watchers/nodes"])
def test_a_service_that_shortens_one_is_a_bug_of_ours(source: str) -> None:
    with pytest.raises(BadEventError, match="may record"):
        folded(AllocationsProjection(), log_of([shortened(source=source)]))


def test_a_history_that_this_build_does_not_know_stops_it() -> None:
    with pytest.raises(BadEventError, match="does not know 'history/of_tomorrow', which an operator shortened"):
        folded(AllocationsProjection(), log_of([shortened("of_tomorrow")]))
    with pytest.raises(UnknownEventTypeError, match="of_tomorrow"):
        check_version(rule_of_history("of_tomorrow"), 1)


def test_who_skips_the_event_keeps_the_history() -> None:
    log = log_of([shortened("of_tomorrow"), shortened()])
    fold = Fold(AllocationsProjection(), GENERATION, skipped=[Position(GENERATION, 1), Position(GENERATION, 2)])
    fold.apply_all(log)
    assert not fold.enforced.rules


def test_rows_that_were_loaded_follow_the_rules_that_are_stored() -> None:
    rule = EnforcedRule(rule_of_history(CONTAINER_ALLOCATIONS.name), 86_400, 7)
    fold = Fold(AllocationsProjection(), GENERATION, enforced=EnforcedRules([rule]))
    begins = {name: table.begins for name, table in fold.state.tables().items() if table.begins}
    day = datetime(1970, 1, 2, tzinfo=UTC)
    assert begins == {"container_allocation_history": day, "container_allocation_report": day}


def test_a_restored_event_counts_from_when_it_was_recorded_first() -> None:
    """A restore records it anew, later; the bound that was cut then stays as it was."""
    recorded_at = hour(0)
    restored = shortened(at=0)._replace(recorded_at=recorded_at)
    later = message(restored, 1)._replace(recorded_ns=int((recorded_at + KEPT_MIN * 5).timestamp()) * 10**9)
    (rule,) = folded(AllocationsProjection(), [later]).enforced.rules.values()
    assert time_of(rule.version) == recorded_at - KEPT_MIN


times = st.floats(-30_000, 1_000_000).map(hour)


@given(begins=times, recorded_at=times)
def test_a_bound_is_what_was_asked_but_for_the_last_month(begins: datetime, recorded_at: datetime) -> None:
    found = time_of(seconds_of(begins, recorded_at))
    kept = min(begins, recorded_at - KEPT_MIN)
    assert found == time_of(0) if kept < time_of(0) else kept - timedelta(seconds=1) <= found <= kept
