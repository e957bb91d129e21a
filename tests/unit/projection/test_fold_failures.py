"""A fold that fails: whatever a projection raises stops that projection, with the position and the way out."""

import json
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any

import pytest

from gpuledger.domain.fact import Fact, Touched
from gpuledger.events.envelope import Decoded
from gpuledger.events.node import NodeDecommissioned, NodeRegistered
from gpuledger.events.position import Position
from gpuledger.events.publishing import Rule
from gpuledger.projection.decision_size import NUMBERING_BYTES_MAX
from gpuledger.projection.definition import Decision, Decisions, Numbering, Observed, RefusedEvent
from gpuledger.projection.enforced import EnforcedRule
from gpuledger.projection.errors import BadEventError, DueError
from gpuledger.projection.fold import Fold
from gpuledger.readmodels.projections import WorkloadsProjection
from support.deciders import AWAY_AT_MOST, AwayProjection, AwayState
from support.events import AGENT, GENERATION, event, hour, message, rows_of

BAD_NODE = "n2"


def _fail_at(subject: str) -> None:
    if subject == BAD_NODE:
        raise ZeroDivisionError("oh")


class FailsDeciding(AwayProjection):
    def decide(self, state: AwayState, fact: Fact) -> Iterable[Decision]:
        _fail_at(fact.event.subject)
        return super().decide(state, fact)


class FailsWhileDeciding(AwayProjection):
    def decide(self, state: AwayState, fact: Fact) -> Iterable[Decision]:
        yield from super().decide(state, fact)
        _fail_at(fact.event.subject)


class FailsObserving(AwayProjection):
    observes = True

    def observed(self, state: AwayState, observed: Observed) -> Decisions:
        _fail_at(observed.event.subject)
        return ()


class FailsRefusing(AwayProjection):
    def refused(self, state: AwayState, refusal: RefusedEvent) -> Decisions:
        assert refusal.event is not None
        _fail_at(refusal.event.subject)
        return ()


class FailsPaging(AwayProjection):
    pages = True

    def touched(self, state: AwayState, fact: Fact) -> Touched:
        _fail_at(fact.event.subject)
        return ()


class DecidesTooMuch(AwayProjection):
    """What it decides about the bad node is as large as a thousand others."""

    def decide(self, state: AwayState, fact: Fact) -> Iterable[Decision]:
        for decision in super().decide(state, fact):
            yield decision if decision.subject != BAD_NODE else decision._replace(correlation_id="x" * 100_000)


class DecidesWhatNobodyCanRead(AwayProjection):
    def decide(self, state: AwayState, fact: Fact) -> Iterable[Decision]:
        for decision in super().decide(state, fact):
            yield decision if decision.subject != BAD_NODE else decision._replace(correlation_id="\0")


def registered(number: int) -> Decoded:
    return event(NodeRegistered(), f"n{number}", number=number, source=AGENT)


LOG = [message(registered(number), number) for number in (1, 2, 3)]
REPEATED = [*LOG[:2], message(registered(2), 3)]


def live(projection: AwayProjection, skipped: Iterable[Position] = ()) -> Fold:
    fold = Fold(projection, GENERATION, numbering=Numbering("own", 1), skipped=skipped)
    fold.decision_bytes_max = 10_000
    return fold


def take(fold: Fold, messages: Iterable[Any]) -> None:
    for one in messages:
        checked = fold.checker.check(one)
        list(fold.touched([checked]))
        fold.apply_all_checked([checked])


FAILING = {
    "deciding": (FailsDeciding, LOG, 2, r"`decide` raised ZeroDivisionError\('oh'\)"),
    "while deciding": (FailsWhileDeciding, LOG, 2, r"`decide` raised ZeroDivisionError\('oh'\)"),
    "observing": (FailsObserving, LOG, 2, r"`observed` raised ZeroDivisionError\('oh'\)"),
    "refusing": (FailsRefusing, REPEATED, 3, r"`refused` raised ZeroDivisionError\('oh'\)"),
    "paging": (FailsPaging, LOG, 2, r"`touched` raised ZeroDivisionError\('oh'\)"),
    "a decision too large": (DecidesTooMuch, LOG, 2, r"on 'n2' has \d+ bytes, and NATS takes \d+; raise its max_payl"),
    "a decision unreadable": (DecidesWhatNobodyCanRead, LOG, 2, r"`decide` raised MalformedEventError\(.* NUL"),
}
failing = pytest.mark.parametrize(("projection", "log", "at", "reason"), FAILING.values(), ids=FAILING)


@failing
def test_a_failure_stops_the_projection_and_names_the_position(
    projection: type[AwayProjection], log: list[Any], at: int, reason: str
) -> None:
    fold = live(projection())
    with pytest.raises(BadEventError, match=f"Projection away stopped at 1/{at} .*{reason}.*skip 1/{at}") as stop:
        take(fold, log)
    assert stop.value.position == Position(GENERATION, at)


@failing
def test_skipping_the_position_is_the_way_out(
    projection: type[AwayProjection], log: list[Any], at: int, reason: str
) -> None:
    del reason
    fold = live(projection(), [Position(GENERATION, at)])
    take(fold, log)
    expected = live(AwayProjection(), [Position(GENERATION, at)])
    take(expected, log)
    assert rows_of(fold) == rows_of(expected)
    assert fold.seen.numbers == expected.seen.numbers
    assert fold.events == expected.events


def test_what_is_due_stops_with_another_way_out_as_no_event_causes_it() -> None:
    class FailsInTime(AwayProjection):
        def due(self, state: AwayState, now: datetime) -> Iterable[Decision]:
            raise ZeroDivisionError("oh")

        def enforce(self, missing: Sequence[EnforcedRule], now: datetime) -> Iterable[Decision]:
            raise ZeroDivisionError("oh")

    fold = live(FailsInTime())
    fold.apply(LOG[0])
    with pytest.raises(DueError, match=r"stopped at 1/1, .*`due` raised ZeroDivisionError.*`gpuledger replay away`"):
        fold.due(hour(1) + AWAY_AT_MOST)
    with pytest.raises(DueError, match=r"stopped at 1/1, .*`enforce` raised ZeroDivisionError"):
        fold.enforce(tuple(Rule), hour(1))


def test_a_due_decision_that_is_too_large_names_no_position_to_skip() -> None:
    class DueTooMuch(AwayProjection):
        def due(self, state: AwayState, now: datetime) -> Iterable[Decision]:
            yield Decision("x" * 100_000, None, "n1", now, NodeDecommissioned())

    fold = live(DueTooMuch())
    fold.apply(LOG[0])
    with pytest.raises(DueError, match=r"has \d+ bytes") as stop:
        fold.due(hour(1))
    assert "skip 1/1" not in str(stop.value)


def test_a_fold_that_publishes_nothing_has_no_bound() -> None:
    fold = Fold(DecidesTooMuch(), GENERATION)
    fold.apply_all(LOG)
    assert fold.sequence == len(LOG)


def test_a_decision_is_not_refused_for_the_number_that_it_gets_later() -> None:
    """A rebuild numbers its decisions when it hands them over."""
    fold = Fold(AwayProjection(), GENERATION)
    fold.apply(LOG[0])
    (decision,) = fold.outstanding()
    fold.decision_bytes_max = 10_000
    assert not fold.is_given_up(decision)
    fold.decision_bytes_max = NUMBERING_BYTES_MAX
    assert fold.is_given_up(decision)


def test_the_events_counted_do_not_depend_on_what_is_handled_or_skipped() -> None:
    """A projection that handles an event whose data does not fit counts it like one that does not look at it."""
    data = json.dumps({**json.loads(LOG[1].data), "data": {"gpu_count": -1}}).encode()
    log = [LOG[0], message(registered(2), 2, data=data), LOG[2], LOG[2]._replace(sequence=4)]
    folds = [
        Fold(AwayProjection(), GENERATION),
        Fold(AwayProjection(), GENERATION, skipped=[Position(GENERATION, 2)]),
        Fold(WorkloadsProjection(), GENERATION),
    ]
    for fold in folds:
        fold.apply_all(log)
    assert [fold.events for fold in folds] == [3, 3, 3]
