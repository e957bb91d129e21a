"""However reports, resets and Nodes interleave: no more nodes are set aside than the breaker allows."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuledger.domain.quarantine.rows import HELD
from gpuledger.domain.quarantine.state import Quarantine
from gpuledger.events.envelope import Decoded, Event
from gpuledger.events.health import NodeHealthReported
from gpuledger.events.maintenance import NodeMaintenanceReleased, NodeMaintenanceRequested
from gpuledger.events.node import NodeLabelled, NodeUnlabelled
from gpuledger.events.payload import Payload
from gpuledger.events.quarantine import (
    QUARANTINE,
    QuarantineBreakerOpened,
    QuarantineBreakerReset,
    QuarantineRulesApplied,
)
from gpuledger.ledger.api import Message
from gpuledger.tools.explain.node_document import node_document
from gpuledger.tools.explain.node_events import Recorded
from gpuledger.tools.whatif.quarantine_replay import (
    HypotheticalQuarantine,
    RecordedQuarantine,
    SetAside,
    SetAsideNodes,
    compared,
)
from support.events import message, rows_of
from support.quarantine import OWNER, QuarantineLog, at, given_back, labelled, reported, rules

NODES = tuple(f"n{number}" for number in range(6))
WINDOW_S, AGE_S = 10, 20
TAINTS: dict[str, Any] = {
    "name": "taints",
    "match": {"all": [{"expression": "event.checkName == 'Thermal'"}]},
    "taints": [{"key": "gpu/hot", "effect": "NoSchedule"}],
}
FATAL: dict[str, Any] = {"name": "fatal", "match": {"all": [{"expression": "event.isFatal"}]}, "cordon": True}

Step = tuple[str, Payload, int, int]
reports = st.builds(
    lambda entity, check, healthy, codes: reported(*entity, check=check, healthy=healthy, codes=codes),
    st.sampled_from([(), ("0",), ("0", "1")]),
    st.sampled_from(["Xid", "Thermal"]),
    st.sampled_from([False, False, True]),
    st.sampled_from([(), (), ("79",), ("79", "94")]),
)
about_nodes = st.one_of(
    reports,
    reports,
    st.sampled_from([labelled("u1"), labelled("u2"), NodeUnlabelled(), given_back("health/fatal")]),
)
steps = st.tuples(st.sampled_from(NODES), about_nodes, st.integers(0, 4), st.sampled_from([0, 0, 0, 3, AGE_S + 1]))
resets = st.tuples(st.just(QUARANTINE), st.just(QuarantineBreakerReset()), st.just(1), st.sampled_from([-2, 0, 2]))
outages = st.just([(node, reported(), 0, 0) for node in NODES])
returns = st.builds(
    lambda node, check, late_s: [
        (node, NodeUnlabelled(), 1, 0),
        (node, reported(check=check), 1, late_s),
        (node, labelled("u3"), 1, 0),
    ],
    st.sampled_from(NODES),
    st.sampled_from(["Xid", "Thermal"]),
    st.sampled_from([0, 3]),
)
parts = st.one_of(*[steps.map(lambda one: [one])] * 6, resets.map(lambda one: [one]), outages, returns)
stories = st.lists(parts, max_size=30).map(lambda found: [step for part in found for step in part])
percentages = st.sampled_from([10, 34, 50, 100])


def play(
    story: Sequence[Step], percentage: int, *, pauses: Sequence[int] = (), clocks_agree: bool = False
) -> QuarantineLog:
    """Record the facts, some of them late; the service is away for the steps of `pauses`.

    Resets stand in another partition of the log, whose clock is behind or ahead, unless `clocks_agree`.
    """
    document = rules(TAINTS, FATAL, max_event_age_s=AGE_S, percentage=percentage, window_s=WINDOW_S)
    log, now_s = QuarantineLog(*NODES, document=document), 1
    for number, (subject, data, pause_s, late_s) in enumerate(story):
        now_s += pause_s
        log.runs = number not in pauses and subject != QUARANTINE
        is_punctual = clocks_agree and subject == QUARANTINE
        fact_s = now_s if is_punctual else max(0, now_s - late_s)
        log.record(subject, data, fact_s, recorded_s=fact_s if subject == QUARANTINE else now_s)
        if subject == QUARANTINE and number not in pauses:
            log.pass_time(now_s)
    log.pass_time(now_s)
    return log


class Model:
    """What anybody would say who reads the log: when each node was set aside, and which nodes there are."""

    def __init__(self, percentage: int) -> None:
        self._percentage = percentage
        self._set_aside: list[tuple[datetime, str]] = []
        self._nodes: dict[str, tuple[datetime, bool]] = {}
        self.is_open = False

    def read(self, event: Decoded, recorded_at: datetime) -> None:
        data = event.data
        if isinstance(data, NodeLabelled | NodeUnlabelled):
            before = self._nodes.get(event.subject)
            if before is None or before[0] <= event.time:
                self._nodes[event.subject] = event.time, isinstance(data, NodeLabelled)
        elif isinstance(data, QuarantineBreakerReset):
            self.is_open = False
            self._set_aside.clear()
        elif isinstance(data, QuarantineBreakerOpened):
            assert not self.is_open
            assert (data.quarantined, data.nodes) == (self._with(data.node, event.time), self._existing())
            assert self._is_too_many(data.quarantined)
            self.is_open = True
        elif isinstance(data, NodeMaintenanceRequested):
            assert not self.is_open
            assert not self._is_too_many(self._with(event.subject, recorded_at))
            assert self._nodes[event.subject][1]
            self._set_aside.append((recorded_at, event.subject))

    def _existing(self) -> int:
        return sum(exists for _, exists in self._nodes.values())

    def _with(self, node: str, now: datetime) -> int:
        begins = now - timedelta(seconds=WINDOW_S)
        return len({node} | {one for when, one in self._set_aside if when > begins})

    def _is_too_many(self, count: int) -> bool:
        return count * 100 > self._percentage * self._existing()


@given(stories, percentages, st.sets(st.integers(0, 39)))
def test_no_window_holds_more_nodes_than_the_breaker_allows(
    story: list[Step], percentage: int, pauses: set[int]
) -> None:
    log, model = play(story, percentage, pauses=sorted(pauses)), Model(percentage)
    for event, recorded_s in log.log:
        model.read(event, at(recorded_s))
    assert model.is_open == log.state.is_open()
    if not model.is_open:
        assert not any(row.state == HELD for row in log.state.fault.rows.values())


@given(stories, percentages, st.sets(st.integers(0, 39)))
def test_a_replay_decides_the_same_and_rows_hold_all_that_it_needs(
    story: list[Step], percentage: int, pauses: set[int]
) -> None:
    log = play(story, percentage, pauses=sorted(pauses))
    again = log.new_fold()
    again.apply_all(log.messages())
    assert rows_of(again) == rows_of(log.fold)
    assert not again.outstanding()
    loaded = Quarantine()
    for name, table in loaded.tables().items():
        table.load(log.state.tables()[name].rows.values())
    now = at(log.log[-1][1])
    assert loaded.existing() == log.state.existing()
    waits = [key for key in log.state.pending() if key[1] in log.state.waiting(key[0])]
    assert sorted(loaded.pending()) == sorted(waits)
    assert all(loaded.quarantined_with(node, now) == log.state.quarantined_with(node, now) for node in NODES)


@given(stories, percentages, st.sets(st.integers(0, 39)))
def test_a_node_is_set_aside_only_for_a_fresh_report_and_while_a_fault_stands(
    story: list[Step], percentage: int, pauses: set[int]
) -> None:
    log = play(story, percentage, pauses=sorted(pauses))
    by_id = {event.id: (event, recorded_s) for event, recorded_s in log.log}
    asked, released = dict[tuple[str, str], int](), dict[tuple[str, str], int]()
    nodes = dict[str, tuple[datetime, str | None]]()
    ended = dict[str, datetime]()
    for event, recorded_s in log.log:
        if isinstance(event.data, NodeLabelled | NodeUnlabelled):
            uid = event.data.uid if isinstance(event.data, NodeLabelled) else None
            observed_at, former = nodes.get(event.subject, (event.time, None))
            if observed_at <= event.time:
                nodes[event.subject] = event.time, uid
                if former not in (None, uid):
                    ended[event.subject] = event.time
        elif isinstance(event.data, NodeMaintenanceRequested):
            report, learnt_s = by_id[event.data.message.partition("report ")[2].partition(")")[0]]
            newest = max(
                one.time
                for one, when_s in log.log
                if one.subject == event.subject and is_about(one, report) and when_s <= recorded_s
            )
            assert at(recorded_s) - newest <= timedelta(seconds=AGE_S)
            assert newest >= ended.get(event.subject, newest), "a Node that is gone takes its faults along"
            assert learnt_s <= recorded_s
            key = event.subject, event.data.owner
            asked[key] = asked.get(key, 0) + 1
        elif isinstance(event.data, NodeMaintenanceReleased) and event.source == "/services/health":
            key = event.subject, event.data.owner
            released[key] = released.get(key, 0) + 1
            assert released[key] <= asked[key]
    for node in NODES:
        for request in log.state.in_force(node):
            assert log.state.standing(node, request.ruleset)


def is_about(one: Decoded, other: Decoded) -> bool:
    """Whether both are reports of something unhealthy by one check."""
    data, others = one.data, other.data
    if not isinstance(data, NodeHealthReported) or not isinstance(others, NodeHealthReported):
        return False
    return data.check == others.check and not data.healthy


@given(stories, percentages)
def test_what_would_have_been_under_the_rules_in_force_is_what_was(story: list[Step], percentage: int) -> None:
    log = play(story, percentage, clocks_agree=True)
    document = next(event.data for event, _ in log.log if isinstance(event.data, QuarantineRulesApplied))
    hypothetical, was = replayed(log, document, len(NODES) + 1)
    would = hypothetical.set_aside.rows
    assert would == was
    assert all(one.would and one.was and one.would.ruleset == one.was.ruleset for one in compared(would, was))
    openings = [one.data for one in hypothetical.openings]
    assert openings == [event.data for event, _ in log.log if isinstance(event.data, QuarantineBreakerOpened)]


def replayed(
    log: QuarantineLog, document: QuarantineRulesApplied, begun: int
) -> tuple[HypotheticalQuarantine, list[SetAside]]:
    """What would have been since so many events, and what was."""
    return replay_of(log, log.messages(), document, begun)


def replay_of(
    log: QuarantineLog, messages: list[Message], document: QuarantineRulesApplied, begun: int
) -> tuple[HypotheticalQuarantine, list[SetAside]]:
    """What would have been by messages, since so many of them, and what was."""
    projection, was = RecordedQuarantine(), SetAsideNodes()
    fold = log.new_fold(projection)
    fold.apply_all(messages[:begun])
    assert isinstance(fold.state, Quarantine)
    hypothetical = HypotheticalQuarantine(fold.state, document)
    projection.pass_on, projection.pass_on_recorded = hypothetical.replay, was.note_recorded
    fold.apply_all(messages[begun:])
    return hypothetical, was.rows


def test_other_rules_would_have_set_other_nodes_aside() -> None:
    log = QuarantineLog("n1", "n2", document=rules())
    log.record("n1", reported("0"), 10)
    log.record("n1", reported("0", healthy=True), 20)
    log.record("n2", reported("0", check="Thermal", component="CPU"), 30)
    hypothetical, was = replayed(log, rules(TAINTS), 3)
    would = hypothetical.set_aside.rows
    found = [(row.node, row.would is not None, row.was is not None) for row in compared(would, was)]
    assert found == [("n1", False, True), ("n2", True, False)]
    assert (was[0].since, was[0].until, would[0].until) == (at(10), at(20), None)


def test_the_breaker_opens_exactly_at_its_threshold_though_all_come_at_once() -> None:
    log = QuarantineLog(*(f"n{number:02}" for number in range(10)), document=rules(percentage=50))
    log.runs = False
    for number in range(10):
        log.record(f"n{number:02}", reported("0"), 5)
    decided = log.pass_time(6)
    assert [event.subject for event in decided] == ["n00", "n01", "n02", "n03", "n04", QUARANTINE]
    opened = decided[-1].data
    assert isinstance(opened, QuarantineBreakerOpened)
    assert (opened.node, opened.quarantined, opened.nodes) == ("n05", 6, 10)
    assert [log.fault_states(f"n{number:02}") for number in range(5, 10)] == [[HELD]] * 5
    assert log.record("n04", reported("0", healthy=True), 7) != [], "nodes are given back all the same"
    (first, *others) = log.reset(8)
    assert first.subject == "n05", "what was held back and is fresh acts, within a window that begins anew"
    assert len(others) == 4
    assert not log.state.is_open()


def test_what_was_held_back_for_long_is_history_after_the_reset() -> None:
    log = QuarantineLog("n0", "n1", document=rules(percentage=50))
    log.record("n0", reported("0"), 5)
    log.record("n1", reported("0"), 6)
    assert log.state.is_open()
    assert log.reset(5000) == []
    assert log.set_aside() == {"n0"}
    (request,) = log.record("n1", reported("0"), 5001)
    assert request.subject == "n1"


def test_nodes_that_come_and_go_change_what_is_too_many() -> None:
    log = QuarantineLog("n0", "n1", "n2", document=rules(percentage=50))
    log.record("n0", reported("0"), 5)
    log.record("n3", labelled(), 6)
    (request,) = log.record("n1", reported("0"), 7)
    assert request.subject == "n1"
    log.record("n3", NodeUnlabelled(), 8)
    (opened,) = log.record("n2", reported("0"), 9)
    assert isinstance(opened.data, QuarantineBreakerOpened)
    assert (opened.data.quarantined, opened.data.nodes) == (3, 3)


def test_the_window_slides() -> None:
    log = QuarantineLog("n0", "n1", "n2", document=rules(percentage=34, window_s=10))
    log.record("n0", reported("0"), 5)
    assert len(log.record("n1", reported("0"), 15)) == 1, "the first has left the window"
    (opened,) = log.record("n2", reported("0"), 24)
    assert isinstance(opened.data, QuarantineBreakerOpened)


def held_back() -> QuarantineLog:
    """Two of eight nodes are set aside, a quarter; the breaker holds the others back."""
    log = QuarantineLog(*(f"n{number}" for number in range(8)), document=rules(percentage=25))
    for number in range(8):
        log.record(f"n{number}", reported("0"), 5 + number)
    assert (log.set_aside(), log.state.is_open()) == ({"n0", "n1"}, True)
    return log


@pytest.mark.parametrize("reset_s", [29.96, 30.01, 30.04])
def test_a_reset_holds_whatever_the_clock_of_its_partition_says(reset_s: float) -> None:
    log = held_back()
    log.runs = False
    log.reset(reset_s)
    decided = log.pass_time(30.01)
    assert [event.subject for event in decided] == ["n2", "n3", QUARANTINE]
    assert log.set_aside() == {"n0", "n1", "n2", "n3"}


def test_what_would_have_been_after_a_reset_keeps_to_the_breaker() -> None:
    log = held_back()
    log.reset(30)
    hypothetical, was = replayed(log, rules(percentage=25), 9)
    assert [row.node for row in hypothetical.set_aside.rows] == [row.node for row in was] == ["n0", "n1", "n2", "n3"]
    assert len(hypothetical.openings) == 2


def test_what_others_record_as_requests_of_rules_was_not_and_would_not_be() -> None:
    """An agent of a node is no publisher of requests; an operator asks for maintenance in another name."""
    log = QuarantineLog("n1", "n2", document=rules())
    forged = NodeMaintenanceRequested(owner=OWNER, reason="forged", cordon=True)
    log.record("n2", forged, 10, source="/operators/eva")
    log.record("n1", reported("0"), 20)
    messages = log.messages()
    by_agent = Event("forged", "/nodes/n2/agent", forged.TYPE, "n2", at(30), forged, "q", 1)
    messages.append(message(by_agent, len(messages) + 1))
    garbage = message(by_agent._replace(id="garbage", number=2), len(messages) + 1)
    messages.append(garbage._replace(data=b"not JSON"))
    hypothetical, was = replay_of(log, messages, rules(), 3)
    assert [row.node for row in hypothetical.set_aside.rows] == [row.node for row in was] == ["n1"]


@given(stories, percentages, st.sets(st.integers(0, 39)))
def test_an_explanation_agrees_with_what_is_set_aside(story: list[Step], percentage: int, pauses: set[int]) -> None:
    log = play(story, percentage, pauses=sorted(pauses))
    for node in NODES:
        recorded = [
            Recorded(event, f"1/{place}", at(recorded_s))
            for place, (event, recorded_s) in enumerate(log.log, 1)
            if event.subject in (node, QUARANTINE)
        ]
        found = node_document(node, "now", recorded)
        assert found["setAside"] == (node in log.set_aside())
        for request in found["requests"]:
            assert {"requested"} < {one["hop"] for one in request["hops"]}, "what led to it is found"
