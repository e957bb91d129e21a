"""Rules that folds enforce from a recorded position on: every projection alike, and nothing before that position."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuledger.deciders.sources.projection import SourcesProjection
from gpuledger.events.allocation import AllocationObserved
from gpuledger.events.catalogue import registry
from gpuledger.events.device import DeviceFailed
from gpuledger.events.envelope import Decoded, encode
from gpuledger.events.node import NodeDecommissioned, NodeDevicesObserved, NodeObserved, NodeRegistered
from gpuledger.events.payload import Payload
from gpuledger.events.position import Offset
from gpuledger.events.publishing import EVENT_AHEAD_MAX, RULE_VERSIONS, Rule
from gpuledger.events.rule import RuleEnforced
from gpuledger.events.source import SourceRejected
from gpuledger.events.workload import WorkloadSubmitted
from gpuledger.ledger.api import Message
from gpuledger.projection.definition import Decisions, Numbering, Projection, RefusedEvent
from gpuledger.projection.enforced import EnforcedRule, EnforcedRules
from gpuledger.projection.errors import BadEventError
from gpuledger.projection.fold import Fold
from gpuledger.readmodels.projections import AllocationsProjection, NodesProjection
from gpuledger.tools.queries.backend import all_projections
from support.events import AGENT, GENERATION, IMPORT, START, event, folded, log_of, message, rows_of

FOLDING = [one for one in all_projections() if not one.reads]
"""The projections whose rows depend on events alone; the log's chain holds whatever was recorded."""

SOURCES = "/services/sources"
MICROSECOND = timedelta(microseconds=1)
RECORDED_AT = START + timedelta(seconds=9)
"""When a message with the sequence 9 is recorded."""

ELSEWHERE = AllocationObserved(node="n2", namespace="ns", pod="p", container="c")
VIOLATIONS: dict[str, tuple[str, Payload]] = {
    "a node leaves the fleet": ("n1", NodeDecommissioned()),
    "a node joins the fleet": ("n1", NodeRegistered(gpu_count=8)),
    "a workload": ("w", WorkloadSubmitted(gpu_milli=1000)),
    "another node's cards": ("n2", NodeDevicesObserved()),
    "another node's containers": ("n2/ns/p/c", ELSEWHERE),
    "containers under its own name, on another node": ("n1/ns/p/c", ELSEWHERE),
}
violations = pytest.mark.parametrize(("subject", "data"), VIOLATIONS.values(), ids=VIOLATIONS)


def enforced(rule: Rule, number: int = 1, version: int = 1) -> Decoded:
    return event(RuleEnforced(version=version), rule, number=number, source=SOURCES)


RULES = [enforced(rule, number, RULE_VERSIONS[rule]) for number, rule in enumerate(Rule, 1)]


class Watching(Projection):
    """Wraps a projection and notes what it passes over."""

    def __init__(self, projection: Projection) -> None:
        vars(self).update({name: getattr(projection, name) for name in ("name", "specs", "handlers", "state_class")})
        self.passed_over: list[RefusedEvent] = []

    def new_state(self) -> Any:
        return self.state_class()

    def refused(self, state: object, refusal: RefusedEvent) -> Decisions:
        self.passed_over.append(refusal)
        return ()


def passed_over(projection: Projection, log: Sequence[Message]) -> list[tuple[Offset, str]]:
    """The positions that a projection passes over, with the reasons."""
    watching = Watching(projection)
    folded(watching, log)
    return [(one.position.sequence, one.reason) for one in watching.passed_over]


@violations
def test_every_projection_rejects_a_violation_alike(subject: str, data: Payload) -> None:
    log = log_of([*RULES, event(data, subject, source=AGENT)])
    (found,) = {tuple(passed_over(projection, log)) for projection in FOLDING}
    ((position, reason),) = found
    assert position == len(log)
    assert reason.startswith(f"{data.TYPE}: {AGENT} may not publish it")


@violations
def test_a_violation_leaves_no_row_and_sources_records_it(subject: str, data: Payload) -> None:
    log = log_of([*RULES, event(data, subject, source=AGENT)])
    for projection in FOLDING:
        if not projection.observes:
            assert rows_of(folded(projection, log)) == rows_of(folded(projection, log[:-1]))
    fold = folded(SourcesProjection(), log)
    (rejected,) = fold.take_decided()
    assert isinstance(rejected.data, SourceRejected)
    assert rejected.data.sequence == len(log)
    assert fold.state.tables()["source"].rows[AGENT, "e1"].missing == 0


@violations
def test_what_stands_before_the_rule_is_folded_as_earlier_builds_did(subject: str, data: Payload) -> None:
    before = [event(data, subject, source=AGENT)]
    for projection in FOLDING:
        if not projection.observes:
            assert rows_of(folded(projection, log_of([*before, *RULES]))) == rows_of(folded(projection, log_of(before)))
            assert passed_over(projection, log_of([*before, *RULES])) == []


def test_an_agent_that_spoke_of_another_nodes_containers_was_not_heard_before_the_rule_either() -> None:
    fold = folded(AllocationsProjection(), log_of([event(ELSEWHERE, "n1/ns/p/c", source=AGENT)]))
    assert all(not rows for rows in rows_of(fold).values())


@pytest.mark.parametrize("data", [NodeDecommissioned(), NodeDevicesObserved()])
def test_the_rule_is_about_edge_sources_and_stops_nobody(data: Payload) -> None:
    """A service that published a fact would be a bug of ours; no projection that went on before stops at it."""
    log = log_of([*RULES, event(data, "n1", source="/services/pools")])
    for projection in FOLDING:
        assert passed_over(projection, log) == []


@given(st.permutations([*RULES, *RULES]), st.integers(0, len(Rule) * 2))
def test_the_first_record_of_a_rule_counts(records: list[Decoded], repeats: int) -> None:
    numbered = [one._replace(number=number) for number, one in enumerate(records[: len(Rule) + repeats], 1)]
    fold = folded(NodesProjection(), log_of(numbered))
    firsts = {one.subject: one.number for one in reversed(numbered)}
    assert {one.rule: one.sequence for one in fold.enforced.rules.values()} == firsts
    assert fold.enforced.missing(Rule) == [
        EnforcedRule(rule, RULE_VERSIONS[rule], 0) for rule in Rule if rule not in firsts
    ]


@pytest.mark.parametrize(("rule", "version"), [("unheard-of", 1), (Rule.PUBLISHERS, 2)])
@pytest.mark.parametrize("projection", FOLDING, ids=lambda one: one.name)
def test_a_build_that_does_not_know_the_rule_stops(rule: str, version: int, projection: Projection) -> None:
    unknown = event(RuleEnforced(version=version), rule, source=SOURCES)
    with pytest.raises(BadEventError, match=rf"does not know version {version} of the rule '{rule}'.*Upgrade"):
        folded(projection, log_of([unknown]))


def test_an_agent_enforces_nothing() -> None:
    fold = folded(NodesProjection(), log_of([event(RuleEnforced(), Rule.PUBLISHERS, source=AGENT)]))
    assert fold.enforced.rules == {}


def test_the_sources_service_decides_each_rule_once() -> None:
    fold = Fold(SourcesProjection(), GENERATION, numbering=Numbering("own", 1))
    for _ in range(2):
        fold.enforce(tuple(Rule), START)
    decided = fold.take_decided()
    assert [(one.subject, one.data) for one in decided] == [
        *((rule, RuleEnforced(version=RULE_VERSIONS[rule])) for rule in Rule),
        *((introduced, RuleEnforced(version=1)) for introduced in sorted(registry.introduced)),
    ]
    assert fold.enforced.rules == {}, "it is enforced where it stands in the log"
    fold.apply_all(log_of([event(DeviceFailed(kind="DBE"), "d"), *decided]))
    assert [one.sequence for one in fold.enforced.rules.values()] == [2 + place for place in range(len(decided))]
    fold.enforce(tuple(Rule), START)
    assert fold.take_decided() == []
    assert fold.outstanding() == []


def test_other_projections_decide_no_rule() -> None:
    for projection in FOLDING:
        if not isinstance(projection, SourcesProjection):
            fold = Fold(projection, GENERATION, numbering=Numbering("own", 1))
            fold.enforce(tuple(Rule), START)
            assert fold.take_decided() == []


def test_changes_are_taken_once() -> None:
    rules = EnforcedRules([EnforcedRule(Rule.PUBLISHERS, 1, 3)])
    rules.add(EnforcedRule(Rule.EVENT_TIMES, 1, 7))
    rules.add(EnforcedRule(Rule.PUBLISHERS, 1, 8))
    assert rules.take_changes() == [(Rule.EVENT_TIMES, 1, 7)]
    assert rules.take_changes() == []


def ahead(time: datetime, source: str, data: Payload, subject: str = "n1", **more: Any) -> Message:
    """An event of this time, recorded at `RECORDED_AT`."""
    made = event(data, subject, source=source)._replace(time=time, **more)
    return message(made, 9, data=encode(made))


@pytest.mark.parametrize(
    ("time", "recorded_at", "passes"),
    [
        (RECORDED_AT, None, True),
        (RECORDED_AT + EVENT_AHEAD_MAX, None, True),
        (RECORDED_AT + EVENT_AHEAD_MAX + MICROSECOND, None, False),
        (datetime.max.replace(tzinfo=START.tzinfo), None, False),
        (START - timedelta(days=9), START, True),
        (START + EVENT_AHEAD_MAX, START, True),
        (START + EVENT_AHEAD_MAX + MICROSECOND, START, False),
        (RECORDED_AT + EVENT_AHEAD_MAX + MICROSECOND, RECORDED_AT + timedelta(days=900), False),
    ],
)
@pytest.mark.parametrize(
    ("source", "data"),
    [
        (AGENT, NodeDevicesObserved()),
        (IMPORT, NodeDecommissioned()),
        ("/watchers/nodes", NodeObserved(uid="u")),
    ],
)
def test_an_event_far_ahead_of_its_recording_is_passed_over_by_all(
    time: datetime, recorded_at: datetime | None, passes: bool, source: str, data: Payload
) -> None:
    late = ahead(time, source, data, recorded_at=recorded_at)
    for projection in FOLDING:
        found = passed_over(projection, [*log_of(RULES), late])
        assert len(found) == (0 if passes else 1)
        assert passes or "more than 1 day after it was recorded" in found[0][1]
        assert passed_over(projection, [late]) == []


def test_a_decision_follows_the_times_of_facts_that_were_recorded_before_the_rule() -> None:
    rejected = SourceRejected(generation=1, sequence=1, nats_subject="s", reason="r")
    decision = ahead(RECORDED_AT + EVENT_AHEAD_MAX * 365, SOURCES, rejected, "log")
    fold = folded(SourcesProjection(), [*log_of([one._replace(epoch="e2") for one in RULES]), decision])
    assert len(fold.state.tables()["rejection"]) == 1
