"""What is decided of nodes that are set aside: which remedy they get, once, what follows a failure, and who looks."""

from typing import Any

import pytest

from gpuledger.domain.quarantine.state import FAULTS_PER_NODE_MAX
from gpuledger.domain.remediation.rows import (
    ATTENTION,
    HEALTHY,
    PENDING,
    STALE,
    TREATED,
    WAITING,
)
from gpuledger.events.envelope import ATTRIBUTE_LENGTH_MAX, Decoded
from gpuledger.events.maintenance import (
    EVENT_ID_LENGTH_MAX,
    NodeDrainChanged,
    NodeDrainFinished,
    NodeMaintenanceReleased,
    NodeMaintenanceRequested,
)
from gpuledger.events.node import NodeUnlabelled
from gpuledger.events.quarantine import QUARANTINE
from gpuledger.events.remediation import (
    REMEDIATION,
    RemediationAttentionRequested,
    RemediationCancelled,
    RemediationCreated,
    RemediationRequested,
    RemediationSuperseded,
)
from support.events import rows_of
from support.quarantine import FATAL_RULESET, OWNER, QuarantineLog, labelled, reported, rules
from support.remediation import REBOOT, RemediationLog, at, card, fault, remedies


def test_a_node_that_is_set_aside_gets_the_remedy_of_the_recommended_action() -> None:
    log = RemediationLog()
    assert log.record("n1", fault("0"), 10) == []
    assert log.fault_states("n1") == [WAITING]
    (request,) = log.set_aside("n1", 11)
    data = request.data
    assert isinstance(data, RemediationRequested)
    assert (request.subject, data.uid, data.remedy, data.attempt) == ("n1", "uid-n1", "reboot", 1)
    assert request.correlation_id == "/nodes/n1/agent/1"
    assert data.object.content["spec"] == {"node": "n1", "why": "RESTART_BM"}
    assert data.object.name.startswith("reboot-")
    assert [one.report for one in data.faults] == ["/nodes/n1/agent/1"]
    assert log.fault_states("n1") == [TREATED]
    assert log.record("n1", fault("0"), 12) == []


def test_a_node_that_is_drained_waits_until_it_is_empty() -> None:
    log = RemediationLog()
    log.record("n1", fault("0"), 10)
    assert log.set_aside("n1", 11, drains=True) == []
    (request,) = log.record("n1", NodeDrainFinished(intent=log.last(NodeDrainChanged).id), 5000)
    assert isinstance(request.data, RemediationRequested)


@pytest.mark.parametrize(
    "fields",
    [{"strategy": "store-only"}, {"action": "NONE"}, {"quarantine": {"skip": True}}, {"fatal": False}],
)
def test_what_may_not_act_or_has_no_remedy_gets_none(fields: dict[str, Any]) -> None:
    log = RemediationLog()
    log.record("n1", fault("0", **fields), 10)
    assert log.set_aside("n1", 11) == []


def test_a_custom_action_has_its_own_remedy() -> None:
    log = RemediationLog()
    log.record("n1", fault("0", action="CUSTOM", custom_action="swap"), 10)
    (request,) = log.set_aside("n1", 11)
    assert isinstance(request.data, RemediationRequested)
    assert (request.data.remedy, request.data.object.content["spec"]["why"]) == ("replace", "swap")


def test_faults_of_a_group_share_one_object() -> None:
    log = RemediationLog()
    log.record("n1", fault("0", "1"), 10)
    log.record("n1", fault("2", check="Thermal"), 10)
    (request,) = log.set_aside("n1", 11)
    assert isinstance(request.data, RemediationRequested)
    assert len(request.data.faults) == 3
    assert log.record("n1", fault("3"), 12) == []
    assert log.fault_states("n1") == [TREATED] * 4


def test_a_reboot_covers_the_resets_of_its_group() -> None:
    log = RemediationLog()
    log.record("n1", card(1), 10)
    log.record("n1", fault("7"), 10)
    decided = log.set_aside("n1", 11)
    assert [one.data.remedy for one in decided if isinstance(one.data, RemediationRequested)] == ["reboot"]
    assert log.fault_states("n1") == [TREATED] * 2


def test_a_reboot_waits_until_a_reset_has_ended() -> None:
    log = RemediationLog()
    log.record("n1", card(1), 10)
    (reset,) = log.set_aside("n1", 11)
    assert log.record("n1", fault("7"), 12) == []
    assert log.fault_states("n1") == [TREATED, WAITING]
    (reboot,) = log.finish(reset, "Succeeded", 20)
    assert isinstance(reboot.data, RemediationRequested)
    assert (reboot.data.remedy, reboot.data.attempt) == ("reboot", 2)


def test_each_card_is_reset_by_itself() -> None:
    log = RemediationLog()
    log.record("n1", card(1), 10)
    log.record("n1", card(2), 10)
    log.record("n1", card(1, check="Other"), 10)
    decided = log.set_aside("n1", 11)
    devices = [one.data.device for one in decided if isinstance(one.data, RemediationRequested)]
    assert devices == ["GPU-1", "GPU-2"]
    assert len({one.id for one in decided}) == 2
    assert len({one.data.object.name for one in decided if isinstance(one.data, RemediationRequested)}) == 2


def test_a_reset_of_a_card_that_has_no_uuid_is_for_a_person() -> None:
    log = RemediationLog()
    log.record("n1", fault("0", action="COMPONENT_RESET"), 10)
    (attention,) = log.set_aside("n1", 11)
    assert isinstance(attention.data, RemediationAttentionRequested)
    assert attention.data.reason == "NoDevice"


def test_an_object_that_is_refused_is_for_a_person_and_escalates_to_nothing() -> None:
    """Else a right that the chart lacks would have every reset become a reboot."""
    log = RemediationLog()
    log.record("n1", card(1), 10)
    (reset,) = log.set_aside("n1", 11)
    (attention,) = log.finish(reset, "Refused", 20)
    assert isinstance(attention.data, RemediationAttentionRequested)
    assert (attention.data.reason, attention.data.remedy) == ("Refused", "reset")
    assert log.fault_states("n1") == [ATTENTION]


@pytest.mark.parametrize("result", ["Failed", "TimedOut"])
def test_what_comes_to_nothing_escalates_and_then_a_person_looks(result: str) -> None:
    log = RemediationLog()
    log.record("n1", card(1), 10)
    (reset,) = log.set_aside("n1", 11)
    (reboot,) = log.finish(reset, result, 20)
    assert isinstance(reboot.data, RemediationRequested)
    assert (reboot.data.remedy, reboot.data.follows, reboot.data.attempt) == ("reboot", reset.id, 2)
    (replace,) = log.finish(reboot, result, 30)
    assert isinstance(replace.data, RemediationRequested)
    assert (replace.data.remedy, replace.data.follows) == ("replace", reboot.id)
    (attention,) = log.finish(replace, result, 40)
    assert isinstance(attention.data, RemediationAttentionRequested)
    assert attention.data.reason == "NoEscalation"
    assert log.fault_states("n1") == [ATTENTION]
    assert log.record("n1", card(1), 50) == []
    log.record("n1", card(1, healthy=True, fatal=False), 60)
    assert not log.state.attention.rows


def test_attempts_of_a_node_are_bounded_within_a_period() -> None:
    log = RemediationLog(remedies(REBOOT | {"escalate_to": None}, count=2, period_s=1000))
    log.record("n1", fault("0"), 10)
    (first,) = log.set_aside("n1", 11)
    assert log.finish(first, "Succeeded", 20) == []
    (second,) = log.record("n1", fault("0"), 30)
    assert isinstance(second.data, RemediationRequested)
    assert log.finish(second, "Succeeded", 40) == []
    (attention,) = log.record("n1", fault("0"), 50)
    assert isinstance(attention.data, RemediationAttentionRequested)
    assert attention.data.reason == "AttemptsExhausted"
    log.record("n1", reported("0", healthy=True), 60)
    assert log.fault_states("n1") == [HEALTHY]
    (third,) = log.record("n1", fault("0"), 1031)
    assert isinstance(third.data, RemediationRequested)


def test_what_succeeds_is_over_with_the_healthy_report() -> None:
    log = RemediationLog()
    log.record("n1", fault("0"), 10)
    (request,) = log.set_aside("n1", 11)
    assert log.finish(request, "Succeeded", 20) == []
    assert log.record("n1", reported("0", healthy=True), 30) == []
    assert log.record("n1", fault("0"), 29) == [], "an older report that comes late"
    assert log.fault_states("n1") == [HEALTHY]


def test_health_that_returns_cancels_what_has_not_begun() -> None:
    log = RemediationLog()
    log.record("n1", fault("0"), 10)
    (request,) = log.set_aside("n1", 11)
    (cancelled,) = log.record("n1", reported("0", healthy=True), 12)
    assert cancelled.data == RemediationCancelled(intent=request.id, reason="Healthy")
    assert log.record("n1", RemediationSuperseded(intent=request.id, reason="Cancelled"), 13) == []
    assert not log.state.open_about("n1")


def test_what_runs_is_left_alone_when_health_returns() -> None:
    log = RemediationLog()
    log.record("n1", fault("0"), 10)
    (request,) = log.set_aside("n1", 11)
    log.record("n1", RemediationCreated(intent=request.id, uid="o1"), 12)
    assert log.record("n1", reported("0", healthy=True), 13) == []


def test_a_release_by_hand_cancels_and_gives_no_remedy_afterwards() -> None:
    log = RemediationLog()
    log.record("n1", fault("0"), 10)
    (request,) = log.set_aside("n1", 11)
    (cancelled,) = log.record("n1", NodeMaintenanceReleased(owner=OWNER, reason="by hand"), 12)
    assert cancelled.data == RemediationCancelled(intent=request.id, reason="Released")
    assert log.record("n1", RemediationSuperseded(intent=request.id, reason="Cancelled"), 13) == []
    assert log.fault_states("n1") == [STALE]


def test_who_gives_a_node_back_by_hand_has_looked() -> None:
    log = RemediationLog(remedies(REBOOT | {"escalate_to": None}))
    log.record("n1", fault("0"), 10)
    (request,) = log.set_aside("n1", 11)
    assert len(log.finish(request, "Failed", 20)) == 1
    assert log.state.attention.rows
    assert log.record("n1", NodeMaintenanceReleased(owner=OWNER, reason="by hand"), 30) == []
    assert not log.state.attention.rows
    assert log.record("n1", fault("0"), 40) == []


def test_history_never_acts() -> None:
    log = RemediationLog()
    log.runs = False
    log.record("n1", fault("0"), 10)
    log.set_aside("n1", 11)
    assert log.fault_states("n1") == [PENDING]
    assert log.pass_time(11 + 601) == []
    assert log.fault_states("n1") == [STALE]
    (request,) = log.record("n1", fault("0"), 700)
    assert isinstance(request.data, RemediationRequested), "another report is fresh"


def test_a_report_that_waited_too_long_leads_to_nothing() -> None:
    log = RemediationLog()
    log.record("n1", fault("0"), 10, recorded_s=700)
    assert log.set_aside("n1", 701) == []
    log.record("n2", fault("0"), 10, imported=True)
    assert log.set_aside("n2", 11) == []


def test_a_node_that_is_gone_takes_its_faults_along() -> None:
    log = RemediationLog()
    log.record("n1", fault("0"), 10)
    (request,) = log.set_aside("n1", 11)
    assert log.record("n1", NodeUnlabelled(), 12) == []
    assert log.record("n1", RemediationSuperseded(intent=request.id, reason="NodeGone"), 13) == []
    assert log.record("n1", labelled("another"), 14) == []
    assert log.fault_states("n1") == [HEALTHY]


def test_rows_that_are_built_anew_are_equal_and_decide_the_same() -> None:
    log = RemediationLog()
    log.record("n1", card(1), 10)
    (reset,) = log.set_aside("n1", 11)
    log.finish(reset, "Failed", 20)
    again = log.new_fold()
    again.apply_all(log.messages())
    recorded = [event.id for event, _ in log.log]
    assert {event.id for event in again.take_decided()} <= set(recorded)
    assert rows_of(again) == rows_of(log.fold)


DRAINING = FATAL_RULESET | {"drain": {}}
DRAINING_CARDS = DRAINING | {"drain_scope": "device"}
MORE = FATAL_RULESET | {"name": "more", "drain": {}}


def asked_to_drain(log: RemediationLog, at_s: float, *cards: str, owner: str = OWNER) -> list[Decoded]:
    """The ruleset requests that the node is drained, or these cards."""
    data = {"owner": owner, "reason": "Unhealthy", "drain": {"devices": cards}}
    return log.record("n1", NodeMaintenanceRequested.model_validate(data), at_s)


def drained(log: RemediationLog, at_s: float) -> list[Decoded]:
    """The drain that was requested begins and ends; what is decided then."""
    drains = [{"owner": OWNER, "since": at(at_s), "drain": {}}]
    assert log.record("n1", NodeDrainChanged.model_validate({"uid": "uid-n1", "drains": drains}), at_s) == []
    return log.record("n1", NodeDrainFinished(intent=log.last(NodeDrainChanged).id), at_s + 1)


def test_a_drain_that_is_requested_is_waited_for_before_it_is_decided() -> None:
    log = RemediationLog()
    log.set_aside("n1", 5)
    log.record(QUARANTINE, rules(DRAINING), 6)
    log.record("n1", NodeMaintenanceReleased(owner=OWNER, reason="Healthy"), 7)
    log.record("n1", fault("0"), 10)
    assert asked_to_drain(log, 11) == [], "the node is cordoned already, and its drain has still to be decided"
    (request,) = drained(log, 12)
    assert isinstance(request.data, RemediationRequested)


def test_a_fault_of_two_rulesets_waits_for_the_drain_of_the_second() -> None:
    log = RemediationLog()
    log.set_aside("n1", 5)
    log.record(QUARANTINE, rules(FATAL_RULESET, MORE), 6)
    assert log.record("n1", fault("0"), 10) == [], "the first one has set the node aside"
    assert asked_to_drain(log, 11, owner="health/more") == []
    (request,) = drained(log, 12)
    assert isinstance(request.data, RemediationRequested)


def test_a_card_is_not_reset_before_pods_have_left_that_card() -> None:
    log = RemediationLog()
    log.record(QUARANTINE, rules(DRAINING_CARDS), 5)
    log.set_aside("n1", 6)
    log.record("n1", card(1), 10)
    assert asked_to_drain(log, 11, "GPU-1") == []
    (first,) = drained(log, 12)
    log.record("n1", RemediationCreated(intent=first.id, uid="o1"), 14)
    assert log.record("n1", card(2), 20) == [], "pods may hold this card"
    assert asked_to_drain(log, 21, "GPU-1", "GPU-2") == []
    (second,) = drained(log, 22)
    assert isinstance(first.data, RemediationRequested)
    assert isinstance(second.data, RemediationRequested)
    assert (first.data.device, second.data.device) == ("GPU-1", "GPU-2")


@pytest.mark.parametrize("uuid", ["GPU-1 (slot 3)", "GPU-" + "1" * 200])
def test_what_a_monitor_writes_in_place_of_a_uuid_names_no_card(uuid: str) -> None:
    log = RemediationLog()
    entities = [{"type": "GPU_UUID", "value": uuid}]
    log.record("n1", reported(entities=entities, action="COMPONENT_RESET"), 10)
    (attention,) = log.set_aside("n1", 11)
    assert isinstance(attention.data, RemediationAttentionRequested)
    assert attention.data.reason == "NoDevice"


def test_faults_that_are_over_leave_room_for_others() -> None:
    log = RemediationLog()
    for number in range(FAULTS_PER_NODE_MAX):
        log.record("n1", fault(str(number)), 10)
    log.record("n1", reported(healthy=True), 11)
    log.record("n1", fault("new"), 12)
    (request,) = log.set_aside("n1", 13)
    assert isinstance(request.data, RemediationRequested)


def test_a_remedy_that_another_document_no_longer_has_is_replaced_by_one_of_the_action() -> None:
    log = RemediationLog()
    log.record("n1", fault("0"), 10)
    (first,) = log.set_aside("n1", 11)
    log.record(REMEDIATION, remedies(REBOOT | {"name": "restart", "escalate_to": None}), 12)
    (second,) = log.finish(first, "Failed", 20)
    assert isinstance(second.data, RemediationRequested)
    assert second.data.remedy == "restart"
    (attention,) = log.finish(second, "Failed", 30)
    assert isinstance(attention.data, RemediationAttentionRequested)


def test_reports_with_ids_as_long_as_sources_may_choose_them_stop_nobody() -> None:
    assert EVENT_ID_LENGTH_MAX == ATTRIBUTE_LENGTH_MAX
    log, node = RemediationLog(), "n" * 200
    log.record(node, labelled(f"uid-{node}"), 5)
    log.record(node, fault("0"), 10)
    (request,) = log.set_aside(node, 11)
    assert isinstance(request.data, RemediationRequested)
    quarantine = QuarantineLog(document=rules())
    quarantine.record(node, labelled("u1"), 5)
    (request,) = quarantine.record(node, reported("0"), 10)
    assert isinstance(request.data, NodeMaintenanceRequested)


def test_another_node_of_the_name_gets_nothing_for_what_made_the_one_before_ready() -> None:
    log = RemediationLog()
    log.runs = False
    log.record("n1", fault("0"), 10)
    log.set_aside("n1", 11)
    log.record("n1", labelled("another"), 9, recorded_s=12)  # The watcher's clock is behind that of the monitor.
    assert log.fault_states("n1") == [WAITING]
    assert log.pass_time(13) == []


def test_a_drain_that_comes_before_the_object_goes_first() -> None:
    log = RemediationLog()
    log.record("n1", fault("0"), 10)
    (request,) = log.set_aside("n1", 11)
    drains = [{"owner": "operators/eva", "since": at(12), "drain": {}}]
    (cancelled,) = log.record("n1", NodeDrainChanged.model_validate({"uid": "uid-n1", "drains": drains}), 12)
    assert cancelled.data == RemediationCancelled(intent=request.id, reason="Draining")
    assert log.record("n1", RemediationSuperseded(intent=request.id, reason="Cancelled"), 13) == []
    (again,) = log.record("n1", NodeDrainFinished(intent=log.last(NodeDrainChanged).id), 5000)
    assert isinstance(again.data, RemediationRequested)
    assert (again.data.remedy, again.data.attempt) == ("reboot", 1)
    (escalation,) = log.finish(again, "Failed", 5010)
    assert isinstance(escalation.data, RemediationRequested)
