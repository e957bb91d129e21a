"""Which remedies wait for a drain, and whom one that was given up calls."""

from typing import Any

import pytest

from gpuledger.domain.remediation.rows import ATTENTION, TREATED, WAITING, QuarantinedNode
from gpuledger.events.maintenance import (
    NodeDrainChanged,
    NodeDrainFinished,
    NodeDrainSuperseded,
    NodeMaintenanceReleased,
    NodeMaintenanceRequested,
)
from gpuledger.events.quarantine import QUARANTINE
from gpuledger.events.remediation import RemediationRequested
from gpuledger.tools.remediation.operations import rows_of
from support.quarantine import FATAL_RULESET, OWNER, reported, rules
from support.remediation import (
    REPLACE,
    RemediationLog,
    at,
    attention,
    card,
    cordoned,
    drain,
    drained,
    fault,
    remedies,
    requested,
)

DRAINING_RULES = rules({**FATAL_RULESET, "drain": {"mode": "Immediate"}})


@pytest.mark.parametrize("reason", ["Expired", "NotCordoned", "Imported"])
def test_a_drain_that_was_given_up_needs_attention_until_somebody_drains_again(reason: str) -> None:
    log = RemediationLog()
    log.record(QUARANTINE, DRAINING_RULES, 5)
    log.record("n1", fault("0"), 10)
    intent = drained(log, "n1", 11)
    assert cordoned(log, "n1", 12) == []
    superseded = NodeDrainSuperseded.model_validate({"intent": intent, "reason": reason})
    found = attention(log.record("n1", superseded, 4000))
    assert (found.reason, found.remedy, len(found.faults)) == ("NotDrained", "reboot", 1)
    assert "gpuledger node drain" in found.message
    assert log.fault_states("n1") == [WAITING]
    assert {one["state"] for one in rows_of(log.state)} == {"Attention", "Waiting"}
    assert log.record("n1", fault("1"), 4001) == [], "once"
    again = drain(log, "n1", 4100, "operators/eva")
    assert not log.state.attention.rows
    assert requested(log.record("n1", NodeDrainFinished(intent=again), 4200)).remedy == "reboot"


def test_a_drain_that_another_one_follows_needs_nobody() -> None:
    log = RemediationLog()
    log.record(QUARANTINE, DRAINING_RULES, 5)
    log.record("n1", fault("0"), 10)
    intent = drained(log, "n1", 11)
    drain(log, "n1", 12, "operators/eva")
    assert log.record("n1", NodeDrainSuperseded(intent=intent, reason="Newer"), 13) == []
    assert not log.state.attention.rows


def test_a_drain_that_lapses_is_not_over_for_its_remedy() -> None:
    log = RemediationLog()
    log.record(QUARANTINE, DRAINING_RULES, 5)
    log.record("n1", fault("0"), 10)
    drained(log, "n1", 11)
    assert cordoned(log, "n1", 12) == []
    assert attention(log.record("n1", NodeDrainChanged(uid="uid-n1"), 8000)).reason == "NotDrained"
    assert log.requests() == [], "pods are left"


def test_who_drains_for_another_reason_and_stops_leaves_a_node_that_was_drained() -> None:
    log = RemediationLog()
    log.record(QUARANTINE, DRAINING_RULES, 5)
    log.record("n1", fault("0"), 10)
    intent = drained(log, "n1", 11)
    log.record("n1", NodeDrainFinished(intent=intent), 20)
    drain(log, "n1", 30, "operators/eva")
    assert cordoned(log, "n1", 31) == []
    assert requested(log.record("n1", NodeDrainChanged(uid="uid-n1"), 40)).remedy == "reboot"


@pytest.mark.parametrize("ends", ["healthy", "released"])
def test_nobody_has_to_drain_for_a_fault_that_is_over(ends: str) -> None:
    log = RemediationLog()
    log.record(QUARANTINE, DRAINING_RULES, 5)
    log.record("n1", fault("0"), 10)
    intent = drained(log, "n1", 11)
    log.record("n1", NodeDrainSuperseded(intent=intent, reason="Expired"), 4000)
    assert log.state.attention.rows
    if ends == "healthy":
        log.record("n1", reported("0", healthy=True), 4001)
    else:
        log.record("n1", NodeMaintenanceReleased(owner=OWNER, reason="done"), 4001)
    assert not log.state.attention.rows


@pytest.mark.parametrize(
    ("devices", "names"), [("[]", []), ('["GPU-1"]', ["GPU-1"]), ("null", []), ('{"devices":[],"is_done":true}', [])]
)
def test_requests_in_rows_of_an_older_build_can_be_read(devices: str, names: list[str]) -> None:
    row = QuarantinedNode("n1", OWNER, at(0), devices)
    assert (row.drained_devices(), row.drain_state(), row.awaits_drain()) == (names, None, False)


CARDS = "cards"
ON_CARDS = {
    "name": CARDS, "match": {"all": [{"kind": "HealthEvent", "expression": "event.checkName == 'Card'"}]},
    "taints": [{"key": "example.com/card", "value": "bad", "effect": "NoSchedule"}],
    "drain": {"mode": "Immediate"}, "drain_scope": "device",
}  # fmt: skip
"""A ruleset that drains no more than the cards that are unhealthy."""


def drain_of_cards(log: RemediationLog, node: str, at_s: float, *owners: str) -> str:
    """A drain of one card alone, and of the whole node for these owners; the intent."""
    since = "2026-01-01T00:00:00Z"
    drains: list[dict[str, Any]] = [
        {"owner": f"health/{CARDS}", "since": since, "drain": {"devices": ["GPU-1"]}},
        *({"owner": one, "since": since, "drain": {}} for one in owners),
    ]
    log.record(node, NodeDrainChanged.model_validate({"uid": f"uid-{node}", "drains": drains}), at_s)
    return log.last(NodeDrainChanged).id


def faults_of_node_and_card() -> RemediationLog:
    """A fault whose node is drained, and one that has its card drained."""
    log = RemediationLog()
    log.record(QUARANTINE, rules({**FATAL_RULESET, "drain": {"mode": "Immediate"}}, ON_CARDS), 5)
    log.record("n1", fault("0", action="REPLACE_VM"), 10)
    return log


def request_of_card(log: RemediationLog, at_s: float) -> None:
    log.record("n1", card(1, check="Card", component="Other"), at_s)
    data = {"owner": f"health/{CARDS}", "reason": "Unhealthy", "drain": {"devices": ["GPU-1"]}}
    log.record("n1", NodeMaintenanceRequested.model_validate(data), at_s)


@pytest.mark.parametrize("is_superseded", [True, False])
def test_a_drain_of_a_card_does_not_make_up_for_that_of_the_node(is_superseded: bool) -> None:
    log = faults_of_node_and_card()
    intent = drained(log, "n1", 11)
    cordoned(log, "n1", 12)
    if is_superseded:
        log.record("n1", NodeDrainSuperseded(intent=intent, reason="Expired"), 4000)
    request_of_card(log, 4100)
    of_card = drain_of_cards(log, "n1", 4100)
    assert {row.reason for row in log.state.attention.rows.values()} == {"NotDrained"}
    assert requested(log.record("n1", NodeDrainFinished(intent=of_card), 4200)).remedy == "reset"
    assert log.fault_states("n1") == [TREATED, WAITING], "pods of the node have still to leave"
    assert log.state.attention.rows
    assert "ask for it again" in " ".join(str(one["detail"]) for one in rows_of(log.state) if one["state"] == "Waiting")
    again = drain(log, "n1", 4300, "operators/eva")
    assert not log.state.attention.rows
    log.record("n1", NodeDrainFinished(intent=again), 4400)
    assert [one.remedy for one in log.requests()] == ["reset", "replace"]


def test_a_drain_that_was_given_up_hides_no_other_reason_to_look() -> None:
    log = RemediationLog(remedies(REPLACE))
    log.record(QUARANTINE, DRAINING_RULES, 5)
    log.record("n1", fault("0", action="REPLACE_VM"), 10)
    intent = drained(log, "n1", 11)
    cordoned(log, "n1", 12)
    (request,) = log.record("n1", NodeDrainFinished(intent=intent), 13)
    assert attention(log.finish(request, "Failed", 20)).reason == "NoEscalation"
    again = drained(log, "n1", 30)
    log.record("n1", fault("1", action="REPLACE_VM"), 31)
    assert attention(log.record("n1", NodeDrainSuperseded(intent=again, reason="Expired"), 4000)).reason == "NotDrained"
    assert sorted(str(one["group"]) for one in rows_of(log.state) if one["state"] == "Attention") == ["None", "replace"]
    drain(log, "n1", 4100, "operators/eva")
    assert [row.reason for row in log.state.attention.rows.values()] == ["NoEscalation"]
    assert log.fault_states("n1") == [ATTENTION, WAITING]


def test_a_drain_of_both_is_that_of_each() -> None:
    log = faults_of_node_and_card()
    intent = drained(log, "n1", 11)
    cordoned(log, "n1", 12)
    request_of_card(log, 13)
    both = drain_of_cards(log, "n1", 14, OWNER)
    assert log.record("n1", NodeDrainSuperseded(intent=intent, reason="Newer"), 15) == []
    assert not log.state.attention.rows
    decided = log.record("n1", NodeDrainFinished(intent=both), 16)
    assert [one.data.remedy for one in decided if isinstance(one.data, RemediationRequested)] == ["replace", "reset"]
