"""However reports, isolations, drains and outcomes interleave: one remedy at a time, bounded, and never of old."""

from collections.abc import Sequence
from datetime import datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from gpuledger.domain.remediation.rows import OPEN, SUPERSEDED
from gpuledger.domain.remediation.state import Remediations
from gpuledger.events.envelope import Decoded
from gpuledger.events.maintenance import (
    NodeDrainChanged,
    NodeDrainFinished,
    NodeMaintenanceReleased,
)
from gpuledger.events.node import NodeUnlabelled
from gpuledger.events.payload import Payload
from gpuledger.events.remediation import (
    RemediationAssessed,
    RemediationAttentionRequested,
    RemediationCancelled,
    RemediationRequested,
    RemediationSuperseded,
)
from support.events import rows_of
from support.quarantine import OWNER, labelled, reported
from support.remediation import RemediationLog, card, fault, remedies

COUNT, PERIOD_S, AGE_S = 2, 200, 60
RESULTS = ("Succeeded", "Failed", "TimedOut", "Refused")

Step = tuple[str, str, int]
"""What happens, to which node, and how many seconds after the step before."""

WHAT = (
    "card 1", "card 2", "node", "thermal", "healthy 1", "healthy node", "aside", "aside drained", "drained", "release",
    "gone", "comes", "away", "expired", *RESULTS,
)  # fmt: skip
steps = st.tuples(st.sampled_from(WHAT), st.sampled_from(["n1", "n2"]), st.sampled_from([0, 1, 5, AGE_S + 1]))
stories = st.lists(steps, max_size=40)


def play(story: Sequence[Step]) -> RemediationLog:
    """Record what happens; the service is away from `away` until the next step but one."""
    log = RemediationLog(remedies(count=COUNT, period_s=PERIOD_S, max_event_age_s=AGE_S))
    now_s = 10
    for what, node, pause_s in story:
        now_s += pause_s
        step(log, what, node, now_s)
        if what != "away":
            log.runs = True
    log.pass_time(now_s)
    return log


def step(log: RemediationLog, what: str, node: str, at_s: int) -> None:
    facts: dict[str, Payload] = {
        "card 1": card(1), "card 2": card(2), "node": fault("7"), "thermal": fault("7", check="Thermal"),
        "healthy 1": card(1, healthy=True, fatal=False), "healthy node": reported(healthy=True),
        "release": NodeMaintenanceReleased(owner=OWNER, reason="Healthy"), "gone": NodeUnlabelled(),
        "comes": labelled(f"uid-{node}"),
    }  # fmt: skip
    if what in facts:
        log.record(node, facts[what], at_s)
    elif what == "away":
        log.runs = False
    elif what.startswith("aside"):
        log.set_aside(node, at_s, drains=what.endswith("drained"))
    elif what == "drained":
        drains = [event for event, _ in log.log if isinstance(event.data, NodeDrainChanged) and event.subject == node]
        if drains:
            log.record(node, NodeDrainFinished(intent=drains[-1].id), at_s)
    else:
        outcome(log, what, node, at_s)


def outcome(log: RemediationLog, what: str, node: str, at_s: int) -> None:
    """The first remedy of a node that is under way ends so."""
    for row in log.state.open_about(node)[:1]:
        (request,) = [event for event, _ in log.log if event.id == row.intent]
        if what == "expired":
            log.record(node, RemediationSuperseded(intent=row.intent, reason="Expired"), at_s)
        else:
            log.finish(request, what, at_s)


def requests_of(log: RemediationLog) -> list[tuple[Decoded, datetime]]:
    return [(event, at) for event, at in log.log if isinstance(event.data, RemediationRequested)]


@given(stories)
def test_a_node_has_one_remedy_of_a_group_at_a_time(story: Sequence[Step]) -> None:
    log = play(story)
    again = log.new_fold()
    for message in log.messages():
        again.apply(message)
        assert isinstance(again.state, Remediations)
        found: dict[tuple[str, str], list[str]] = {}
        for row in again.state.remediation.rows.values():
            if row.state in OPEN:
                found.setdefault((row.node, row.remedy_group), []).append(row.device)
        for devices in found.values():
            assert len(devices) == len(set(devices))
            assert len(devices) == 1 or "" not in devices


@given(stories)
def test_a_node_has_no_more_remedies_than_the_document_allows(story: Sequence[Step]) -> None:
    log = play(story)
    superseded = {row.intent for row in log.state.remediation.rows.values() if row.state == SUPERSEDED}
    requests = requests_of(log)
    assert len({event.id for event, _ in requests}) == len(requests)
    names = {event.data.object.name for event, _ in requests if isinstance(event.data, RemediationRequested)}
    assert len(names) == len(requests)
    for event, at in requests:
        near = [
            other
            for other, before in requests
            if other.subject == event.subject
            and at - timedelta(seconds=PERIOD_S) < before <= at
            and other.id not in superseded
        ]
        assert len(near) <= COUNT


@given(stories)
def test_rows_that_are_built_anew_are_equal_and_every_decision_is_made_again(story: Sequence[Step]) -> None:
    log = play(story)
    again = log.new_fold()
    again.apply_all(log.messages())
    assert rows_of(again) == rows_of(log.fold)
    decided = (RemediationRequested, RemediationCancelled, RemediationAttentionRequested)
    recorded = {event.id for event, _ in log.log if isinstance(event.data, decided)}
    made = {event.id for event in again.take_decided() if not isinstance(event.data, RemediationAssessed)}
    assert made <= recorded


@given(stories, st.integers(0, 40))
def test_who_was_away_for_long_requests_nothing_of_before(story: Sequence[Step], since: int) -> None:
    log = play(story[:since])
    log.runs = False
    before = len(requests_of(log))
    at_s = 100_000
    for what, node, _ in story[since:]:
        step(log, what, node, at_s)
    log.pass_time(at_s + AGE_S + 1)
    assert len(requests_of(log)) == before
