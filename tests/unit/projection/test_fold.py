"""The fold's own rules: what is passed over, what stops it, what counts as seen, and how a decider's events return."""

import json
from typing import Any

import pytest

from gpuledger.deciders.sources.projection import SourcesProjection
from gpuledger.domain.fact import Fact
from gpuledger.events.device import DeviceFailed
from gpuledger.events.envelope import Decoded, encode
from gpuledger.events.node import NodeDecommissioned, NodeRegistered
from gpuledger.events.position import Position
from gpuledger.events.slot import SlotDeclared
from gpuledger.events.source import SourceGapDetected, SourceRejected
from gpuledger.ledger.api import Message
from gpuledger.projection.definition import (
    Decision,
    Decisions,
    Numbering,
    Observed,
    Projection,
    RefusalKind,
    RefusedEvent,
)
from gpuledger.projection.errors import BadEventError
from gpuledger.projection.fold import Fold
from gpuledger.readmodels.projections import DevicesProjection, NodesProjection
from gpuledger.tools.queries.backend import all_projections
from support.deciders import AWAY_AT_MOST, AWAY_MAX, AwayProjection, AwayState
from support.events import AGENT, EPOCH, GENERATION, IMPORT, SERVICE, event, fact_of, folded, hour, message, rows_of

FAILED = DeviceFailed(kind="DBE")


class Listening(DevicesProjection):
    """The devices projection, remembering what it is told of."""

    observes = True

    def __init__(self) -> None:
        self.heard: list[Observed] = []
        self.turned_down: list[RefusedEvent] = []

    def observed(self, state: object, observed: Observed) -> Decisions:
        self.heard.append(observed)
        return ()

    def refused(self, state: object, refusal: RefusedEvent) -> Decisions:
        self.turned_down.append(refusal)
        return ()


def changed(event: Decoded, **attributes: object) -> bytes:
    """The event's JSON with attributes replaced."""
    return json.dumps({**json.loads(encode(event)), **attributes}).encode()


def failure(number: int = 1, source: str = AGENT) -> Decoded:
    return event(FAILED, "d1", number=number, source=source)


def bad_payload(number: int, source: str) -> Message:
    return message(failure(number, source), number, data=changed(failure(number, source), data={"kind": ""}))


BAD = {
    "no JSON": lambda source: message(failure(1, source), 1, data=b"{"),
    "an attribute missing": lambda source: message(failure(1, source), 1, data=changed(failure(1, source), id="")),
    "data that does not fit": lambda source: bad_payload(1, source),
    "no type": lambda source: message(failure(1, source), 1, data=changed(failure(1, source), type="device.failed")),
    "another device": lambda source: message(failure(1, source), 1, data=changed(failure(1, source), subject="d2")),
}
UNKNOWN = {
    "an unknown type": ("ledger.node.n1.device.d1.melted", "io.gpuledger.device.melted.v1"),
    "a newer version": ("ledger.node.n1.device.d1.failed", "io.gpuledger.device.failed.v9"),
}
unknown_types = pytest.mark.parametrize(("subject", "event_type"), UNKNOWN.values(), ids=UNKNOWN)
bad_events = pytest.mark.parametrize("make", BAD.values(), ids=BAD)


@bad_events
@pytest.mark.parametrize("source", [AGENT, IMPORT, "/gateways/health"])
def test_a_bad_event_from_the_edge_is_passed_over_with_a_reason(make: Any, source: str) -> None:
    projection = Listening()
    bad, good = make(source), message(event(FAILED, "d1", number=2, source=source), 2)
    fold = folded(projection, [bad, good])
    assert [(refusal.kind, refusal.position) for refusal in projection.turned_down] == [
        (RefusalKind.REJECTED, Position(GENERATION, 1))
    ]
    assert projection.turned_down[0].reason.endswith(".")
    assert fold.sequence == 2
    assert len(fold.state.tables()["failure"]) == 1


@bad_events
@pytest.mark.parametrize("source", [SERVICE, "/watchers/claims", "/operators/eva"])
def test_a_bad_event_of_our_own_stops_with_its_position_and_the_next_step(make: Any, source: str) -> None:
    fold = Fold(DevicesProjection(), GENERATION)
    with pytest.raises(BadEventError, match=r"^Projection devices stopped at 1/1 \(ledger\.svc\..*skip 1/1") as stop:
        fold.apply(make(source))
    assert stop.value.position == Position(GENERATION, 1)


@unknown_types
def test_an_unknown_type_of_the_edge_counts_is_marked_and_changes_nothing(subject: str, event_type: str) -> None:
    unknown = message(failure(), 1, subject=subject, data=changed(failure(), type=event_type))
    projection = Listening()
    fold = folded(projection, [unknown, message(failure(2), 2), unknown._replace(sequence=3)])
    assert [(one.event.number, one.is_known) for one in projection.heard] == [(1, False), (2, True)]
    assert [one.kind for one in projection.turned_down] == [RefusalKind.DUPLICATE]
    assert (fold.events, len(fold.state.tables()["failure"].rows)) == (2, 1)
    assert fact_of(fold, unknown) is None


@unknown_types
def test_an_unknown_type_under_anothers_subject_is_rejected(subject: str, event_type: str) -> None:
    projection = Listening()
    folded(projection, [message(failure(), 1, subject=f"{subject}-x", data=changed(failure(), type=event_type))])
    assert [one.kind for one in projection.turned_down] == [RefusalKind.REJECTED]


@unknown_types
def test_an_unknown_type_of_our_own_counts_is_marked_and_changes_nothing(subject: str, event_type: str) -> None:
    ours, projection = failure(1, SERVICE), Listening()
    unknown = message(ours, 1, subject=subject.replace("node.n1", "svc.pools"), data=changed(ours, type=event_type))
    fold = folded(projection, [unknown])
    assert [(one.event.number, one.is_known) for one in projection.heard] == [(1, False)]
    assert (fold.events, len(fold.state.tables()["failure"].rows)) == (1, 0)


def test_what_does_not_fold_stops_even_from_the_edge() -> None:
    class Clumsy(DevicesProjection):
        def _stumble(self, fact: Fact, data: object) -> None:
            raise ZeroDivisionError("oh")

        handlers = {DeviceFailed: _stumble}

    fold = Fold(Clumsy(), GENERATION)
    with pytest.raises(BadEventError, match=r"does not fold \(ZeroDivisionError\('oh'\)\)") as stop:
        fold.apply(message(failure(), 1))
    assert isinstance(stop.value.__cause__, ZeroDivisionError)


@pytest.mark.parametrize("subject", ["ledger.node.n2.device.d1.failed", "ledger.node.n1", "ledger.node.n1.device.d1.x"])
def test_an_event_under_anothers_subject_is_turned_down(subject: str) -> None:
    projection = Listening()
    fold = folded(projection, [message(failure(), 1, subject=subject)])
    assert len(projection.turned_down) == 1
    assert "do not belong under" in projection.turned_down[0].reason
    assert not fold.state.tables()["failure"]


def test_an_agent_cannot_use_up_the_numbers_of_another_source() -> None:
    forged = message(failure(source="/nodes/n2/agent"), 1, subject="ledger.node.n1.device.d1.failed")
    fold = folded(DevicesProjection(), [forged, message(failure(source="/nodes/n2/agent"), 2)])
    assert len(fold.state.tables()["failure"]) == 1


def test_a_rejected_event_uses_up_its_number_where_its_source_is_sure() -> None:
    projection = Listening()
    fold = folded(projection, [bad_payload(1, AGENT), message(failure(2), 2), bad_payload(1, AGENT)])
    assert fold.seen.numbers[AGENT, EPOCH].last == 2
    assert [refusal.kind for refusal in projection.turned_down] == [RefusalKind.REJECTED, RefusalKind.DUPLICATE]


@pytest.mark.parametrize("attributes", [{"source": f"/import/{'x' * 250}"}, {"sourceepoch": "x" * 129}])
def test_a_source_that_no_event_about_it_could_name_is_turned_down(attributes: dict[str, str]) -> None:
    first = message(failure(source=IMPORT), 1, data=changed(failure(source=IMPORT), **attributes))
    third = message(failure(3, IMPORT), 2, data=changed(failure(3, IMPORT), **attributes))
    fold = folded(SourcesProjection(), [first, third])
    fold.due(hour(1))
    assert len(fold.state.tables()["rejection"]) == 2
    (row,) = fold.state.tables()["source"].rows.values()
    assert (row.source, row.epoch, row.events, row.rejected) == ("/import", "", 0, 2)


def test_what_a_projection_does_not_handle_it_does_not_decode() -> None:
    assert folded(NodesProjection(), [bad_payload(1, SERVICE)]).events == 1


def test_the_sources_service_finds_what_others_do_not_decode() -> None:
    fold = folded(SourcesProjection(), [bad_payload(1, AGENT), message(failure(2), 2)])
    (decision,) = fold.take_decided()
    assert decision.type == "io.gpuledger.source.rejected.v1"
    assert [row.position for row in fold.state.tables()["rejection"].rows.values()] == [1]
    assert [(row.events, row.missing) for row in fold.state.tables()["source"].rows.values()] == [(2, 0)]


def test_only_the_sources_service_reports_gaps_and_rejections() -> None:
    """Else an agent could make another's losses look known, or closed."""
    gap = SourceGapDetected(epoch="e1", first=5, last=9)
    forged = event(gap, "/nodes/n2/agent", number=1, source=AGENT)
    fold = folded(SourcesProjection(), [message(forged, 1)])
    assert fold.state.tables()["gap"].rows == {}
    (decision,) = fold.take_decided()
    assert isinstance(decision.data, SourceRejected)
    assert "may record" in decision.data.reason


def test_a_restored_log_brings_its_rejections_along() -> None:
    """The same sequences in another generation: nothing is decided a second time."""
    bad = bad_payload(1, AGENT)
    (decision,) = folded(SourcesProjection(), [bad]).take_decided()
    restored = Fold(SourcesProjection(), GENERATION + 1)
    restored.apply_all([bad, message(decision._replace(epoch="before"), 2)])
    assert restored.waiting.take_returned() == [decision.id]
    assert restored.outstanding() == []


def test_a_skipped_position_is_neither_decoded_nor_folded() -> None:
    messages = [bad_payload(1, SERVICE), message(failure(2, SERVICE), 2)]
    fold = Fold(DevicesProjection(), GENERATION, skipped=[Position(GENERATION, 1)])
    fold.apply_all(messages)
    assert (fold.sequence, len(fold.state.tables()["failure"])) == (2, 1)


def test_the_skipped_position_of_another_generation_is_another() -> None:
    fold = Fold(DevicesProjection(), GENERATION, skipped=[Position(GENERATION + 1, 1)])
    with pytest.raises(BadEventError):
        fold.apply(bad_payload(1, SERVICE))


def test_skipping_changes_nothing_for_a_fold_that_went_past_it() -> None:
    messages = [message(failure(number, SERVICE), number) for number in (1, 2, 3)]
    past = folded(SourcesProjection(), messages)
    later = Fold(SourcesProjection(), GENERATION, skipped=[Position(GENERATION, 2)])
    later.apply_all(messages)
    assert rows_of(later) == rows_of(past)
    assert later.seen.numbers == past.seen.numbers


def test_a_skipped_position_without_a_readable_event_is_passed_over() -> None:
    fold = Fold(SourcesProjection(), GENERATION, skipped=[Position(GENERATION, 1)])
    fold.apply(message(failure(1, SERVICE), 1, data=b"{"))
    assert not fold.state.tables()["source"]


def test_who_looks_for_a_fact_changes_nothing() -> None:
    fold = Fold(DevicesProjection(), GENERATION)
    fact = fact_of(fold, message(failure(), 1))
    assert fact is not None
    assert fact.event.data == FAILED
    assert fact_of(fold, message(event(NodeRegistered(), "n1", source=AGENT), 2)) is None
    assert fact_of(fold, bad_payload(3, AGENT)) is None
    assert (fold.sequence, fold.seen.numbers, fold.events) == (0, {}, 0)


def test_the_devices_of_names_with_dots_and_wildcards_are_theirs() -> None:
    names = ["a.b", "*", "GPU-1/2", "ä ö", "%2E", ">"]
    messages = [message(event(FAILED, name, number=number), number) for number, name in enumerate(names, 1)]
    assert set(folded(DevicesProjection(), messages).state.tables()["device"].rows) == set(names)


# A decider


def registered(node: str, number: int, at: float = 0) -> Decoded:
    return event(NodeRegistered(), node, number=number, at=at)


def back(node: str, number: int, at: float = 0) -> Decoded:
    return event(SlotDeclared(node=node), f"slot-{node}", number=number, at=at)


def deciding(**settings: Any) -> Fold:
    return Fold(AwayProjection(), GENERATION, numbering=Numbering("own", 1), **settings)


def away(fold: Fold) -> set[str]:
    state = fold.state
    assert isinstance(state, AwayState)
    return {row.node for row in state.away.rows.values() if row.since is not None}


def test_a_decision_is_folded_at_once() -> None:
    fold = deciding()
    fold.apply(message(registered("n1", 1), 1))
    assert away(fold) == {"n1"}
    (decision,) = fold.take_decided()
    assert (decision.source, decision.epoch, decision.number) == ("/services/away", "own", 1)
    assert (decision.type, decision.subject, decision.time) == (NodeDecommissioned.TYPE, "n1", hour(0))
    assert decision.causation_id == decision.correlation_id == registered("n1", 1).id
    assert fold.take_decided() == []


def test_the_limit_holds_though_the_log_lags() -> None:
    fold = deciding()
    fold.apply_all([message(registered(f"n{number}", number), number) for number in range(1, 10)])
    assert len(away(fold)) == AWAY_MAX
    assert [decision.number for decision in fold.take_decided()] == [1, 2]
    fold.apply(message(back("n1", 10), 10))
    assert away(fold) == {"n2", "n3"}
    assert [decision.number for decision in fold.take_decided()] == [3]


def test_own_decisions_are_passed_over_when_they_come_back() -> None:
    fold = deciding()
    fold.apply(message(registered("n1", 1), 1))
    (decision,) = fold.take_decided()
    before = rows_of(fold)
    fold.apply(message(decision, 2))
    assert rows_of(fold) == before
    assert fold.waiting.take_returned() == [decision.id]
    assert (fold.outstanding(), fold.take_decided()) == ([], [])
    fold.apply(message(decision, 3))
    assert rows_of(fold) == before


def test_nobody_else_can_make_a_decision_seem_to_have_come_back() -> None:
    fold = deciding()
    fold.apply(message(registered("n1", 1), 1))
    (decision,) = fold.take_decided()
    fold.apply(message(failure(1)._replace(id=decision.id), 2))
    assert fold.waiting.take_returned() == []
    assert fold.outstanding() == [decision]


def test_the_same_cause_gives_the_same_id_in_every_service() -> None:
    log = [message(registered("n1", 1), 1), message(registered("n2", 2), 2)]
    ids = []
    for epoch in ("one", "other"):
        fold = Fold(AwayProjection(), GENERATION, numbering=Numbering(epoch, 7))
        fold.apply_all(log)
        ids.append([decision.id for decision in fold.take_decided()])
    assert ids[0] == ids[1]
    assert len(set(ids[0])) == 2


def test_a_fold_of_the_whole_log_ends_where_the_decider_stands() -> None:
    fold, log = deciding(), [message(registered(f"n{number}", number), number) for number in range(1, 5)]
    fold.apply_all(log)
    log += [message(decision, sequence) for sequence, decision in enumerate(fold.take_decided(), 5)]
    log.append(message(back("n2", 5), len(log) + 1))
    fold.apply_all(log[4:])
    again = folded(AwayProjection(), log)
    assert rows_of(again) == rows_of(fold)
    assert [decision.id for decision in again.outstanding()] == [decision.id for decision in fold.outstanding()]


def test_what_time_alone_decides_is_recorded_once_and_replays_from_the_record() -> None:
    fold, log = deciding(), [message(registered("n1", 1), 1)]
    fold.apply_all(log)
    fold.due(hour(0) + AWAY_AT_MOST)
    log += [message(decision, sequence) for sequence, decision in enumerate(fold.take_decided(), 2)]
    assert len(log) == 2
    later = hour(1) + AWAY_AT_MOST
    fold.due(later)
    fold.due(later)
    (gone,) = fold.take_decided()
    assert (gone.data, gone.time) == (SlotDeclared(node="n1"), later)
    assert away(fold) == set()
    log.append(message(gone, 3))
    assert rows_of(folded(AwayProjection(), log)) == rows_of(fold)


def test_adopting_what_was_decided_elsewhere_folds_only_what_is_new() -> None:
    fold = deciding()
    fold.apply(message(registered("n1", 1), 1))
    fold.due(hour(1) + AWAY_AT_MOST)
    decisions = fold.take_decided()
    other = folded(AwayProjection(), [message(registered("n1", 1), 1)])
    other.adopt(decisions)
    assert rows_of(other) == rows_of(fold)
    assert [decision.id for decision in other.outstanding()] == [decision.id for decision in decisions]


def test_a_restarted_decider_expects_what_it_had_decided() -> None:
    fold = deciding()
    fold.apply(message(registered("n1", 1), 1))
    restarted = Fold(
        AwayProjection(), GENERATION, state=fold.state, seen=fold.seen, expected=fold.outstanding(), sequence=1
    )
    before = rows_of(restarted)
    (decision,) = fold.take_decided()
    restarted.apply(message(decision, 2))
    assert rows_of(restarted) == before
    assert restarted.waiting.take_returned() == [decision.id]


def test_a_decision_that_cannot_be_folded_stops_like_an_event() -> None:
    class Wrong(AwayProjection):
        def decide(self, state: AwayState, fact: Fact) -> Decisions:
            yield Decision(fact.event.id, None, "unheard-of", fact.event.time, NodeDecommissioned())

    fold = Fold(Wrong(), GENERATION)
    with pytest.raises(BadEventError, match=r"stopped at 1/1 .*on 'unheard-of' does not fold"):
        fold.apply(message(registered("n1", 1), 1))


@pytest.mark.parametrize("projection", all_projections(), ids=lambda projection: projection.name)
def test_tables_are_read_in_the_order_in_which_a_rebuild_swaps_them(projection: Projection) -> None:
    """In another order, a reader and a rebuild would each wait for a table that the other has locked."""
    assert list(projection.new_state().tables()) == [spec.name for spec in projection.specs]
