"""Which remedies our own agents' verdicts lead to, and what is tried again."""

import pytest

from gpuledger.domain.remediation.rows import ATTENTION, STALE, TREATED
from gpuledger.events.device import DeviceHealthChanged
from gpuledger.events.maintenance import NodeDrainSuperseded
from gpuledger.events.quarantine import QUARANTINE
from gpuledger.events.remediation import REMEDIATION, RemediationRequested, RemediationRetryRequested
from gpuledger.tools.errors import RequestError
from gpuledger.tools.remediation.operations import remediation_row, retried
from support.quarantine import FATAL_RULESET, rules
from support.remediation import (
    REPLACE,
    RemediationLog,
    attention,
    card,
    cordoned,
    drained,
    fault,
    remedies,
    requested,
)

AGENT = "/nodes/n1/agent"
RETRY = RemediationRetryRequested(reason="the CRD is there now")
DRAINING_RULES = rules({**FATAL_RULESET, "drain": {"mode": "Immediate"}})
HEALTHY = DeviceHealthChanged(healthy=True)


def verdict(action: str | None = "COMPONENT_RESET") -> DeviceHealthChanged:
    return DeviceHealthChanged(healthy=False, kind="XID 95", action=action)


# Our own agents' verdicts.


@pytest.mark.parametrize(("action", "remedy"), [("COMPONENT_RESET", "reset"), ("RESTART_BM", "reboot")])
def test_an_agents_verdict_on_a_card_has_the_remedy_of_its_action(action: str, remedy: str) -> None:
    log = RemediationLog()
    log.record("GPU-1", verdict(action), 10, source=AGENT)
    data = requested(log.set_aside("n1", 11))
    assert (data.remedy, data.device, data.action) == (remedy, "GPU-1" if remedy == "reset" else None, action)
    assert [(one.monitor, one.check, one.entity) for one in data.faults] == [
        ("gpuledger-agent", "DeviceHealth", "GPU-1")
    ]


@pytest.mark.parametrize("action", [None, "NONE", "CONTACT_SUPPORT"])
def test_a_verdict_that_only_a_person_can_act_on_has_no_remedy(action: str | None) -> None:
    log = RemediationLog()
    log.record("GPU-1", verdict(action), 10, source=AGENT)
    assert log.set_aside("n1", 11) == []


def test_a_card_that_its_agent_finds_healthy_again_needs_no_remedy() -> None:
    log = RemediationLog()
    log.record("GPU-1", verdict(), 10, source=AGENT)
    log.record("GPU-1", HEALTHY, 11, source=AGENT)
    assert log.set_aside("n1", 12) == []


def test_an_imported_verdict_is_history() -> None:
    log = RemediationLog()
    log.record("GPU-1", verdict(), 10, source=AGENT, imported=True)
    assert log.set_aside("n1", 11) == []


def test_a_monitor_and_the_agent_that_report_one_card_share_a_remedy() -> None:
    log = RemediationLog()
    log.record("GPU-1", verdict(), 10, source=AGENT)
    log.record("n1", card(1), 10)
    assert len(requested(log.set_aside("n1", 11)).faults) == 2


# What is tried again.


def test_a_refused_object_is_created_once_its_kind_is_there() -> None:
    log = RemediationLog()
    log.record("n1", fault("0"), 10)
    (request,) = log.set_aside("n1", 11)
    assert attention(log.finish(request, "Refused", 20)).reason == "Refused"
    (again,) = log.record("n1", RETRY, 100)
    assert isinstance(again.data, RemediationRequested)
    assert (again.data.remedy, again.data.attempt, again.data.follows) == ("reboot", 1, None)
    assert again.data.object.name != log.requests()[0].object.name
    assert (log.fault_states("n1"), len(log.state.attention.rows)) == ([TREATED], 0)
    before = log.state.remediation.get(request.id)
    assert before is not None
    assert str(remediation_row(before)["detail"]).startswith("Retried")


def test_attempts_begin_anew() -> None:
    log = RemediationLog(remedies(count=1))
    log.record("n1", fault("0"), 10)
    (request,) = log.set_aside("n1", 11)
    assert attention(log.finish(request, "Failed", 20)).reason == "AttemptsExhausted"
    (again,) = log.record("n1", RETRY, 30)
    assert isinstance(again.data, RemediationRequested)
    assert (again.data.remedy, again.data.attempt) == ("replace", 1)
    assert attention(log.finish(again, "Refused", 40)).reason == "Refused"


def test_the_last_remedy_is_tried_again_where_none_follows() -> None:
    log = RemediationLog(remedies(REPLACE))
    log.record("n1", fault("0", action="REPLACE_VM"), 10)
    (request,) = log.set_aside("n1", 11)
    assert attention(log.finish(request, "TimedOut", 20)).reason == "NoEscalation"
    assert requested(log.record("n1", RETRY, 30)).remedy == "replace"


def test_a_card_that_stays_unhealthy_after_its_remedy_may_get_another() -> None:
    log = RemediationLog()
    log.record("GPU-1", verdict(), 10, source=AGENT)
    (request,) = log.set_aside("n1", 11)
    assert log.finish(request, "Succeeded", 20) == []
    assert log.fault_states("n1") == [TREATED]
    assert requested(log.record("n1", RETRY, 30)).remedy == "reset"


def test_only_the_faults_of_one_remediation_are_tried_again() -> None:
    log = RemediationLog()
    log.record("n1", card(1), 10)
    log.record("n1", card(2), 10)
    first, second = log.set_aside("n1", 11)
    log.finish(first, "Refused", 20)
    log.finish(second, "Refused", 21)
    again = RemediationRetryRequested(remediation=second.id, reason="mended")
    assert requested(log.record("n1", again, 30)).device == "GPU-2"
    assert log.fault_states("n1") == [ATTENTION, TREATED]
    assert log.state.attention.rows, "a person has still to look at the other card"


def test_a_fault_that_went_stale_counts_again_while_its_node_is_set_aside() -> None:
    log = RemediationLog()
    log.record("n1", fault("0"), 10)
    log.runs = False
    log.set_aside("n1", 11)
    assert log.pass_time(5000) == []
    assert log.fault_states("n1") == [STALE]
    assert requested(log.record("n1", RETRY, 5001)).remedy == "reboot"


@pytest.mark.parametrize("is_late", [True, False])
def test_a_retry_of_the_past_leads_to_nothing(is_late: bool) -> None:
    log = RemediationLog()
    log.record("n1", fault("0"), 10)
    (request,) = log.set_aside("n1", 11)
    log.finish(request, "Refused", 20)
    recorded_s = 5000 if is_late else 30
    assert log.record("n1", RETRY, 30, recorded_s=recorded_s, imported=not is_late) == []
    assert log.fault_states("n1") == [ATTENTION]


def test_a_retry_that_the_service_comes_to_too_late_leads_to_nothing() -> None:
    log = RemediationLog()
    log.record("n1", fault("0"), 10)
    (request,) = log.set_aside("n1", 11)
    log.finish(request, "Refused", 20)
    log.runs = False
    log.record("n1", RETRY, 30)
    assert log.pass_time(5000) == []
    assert log.fault_states("n1") == [STALE]


def test_rows_that_are_built_anew_retry_nothing_a_second_time() -> None:
    log = RemediationLog()
    log.record("n1", fault("0"), 10)
    (request,) = log.set_aside("n1", 11)
    log.finish(request, "Refused", 20)
    log.record("n1", RETRY, 30)
    assert len(log.requests()) == 2
    fold = log.new_fold()
    fold.apply_all(log.messages())
    assert {one.id for one in fold.take_decided()} <= {one.id for one, _ in log.log}
    assert fold.state.tables()["remediation"].rows == log.state.remediation.rows


def test_who_asks_for_a_retry_hears_what_is_tried_or_what_to_do_instead() -> None:
    log = RemediationLog()
    log.record("n1", fault("0"), 10)
    (request,) = log.set_aside("n1", 11)
    with pytest.raises(RequestError, match="No fault of n1 waits for a person"):
        retried(log.state, "n1")
    with pytest.raises(RequestError, match="neither a node nor a remediation n9"):
        retried(log.state, "n9")
    log.finish(request, "Refused", 20)
    assert retried(log.state, "n1")[:3] == ("n1", None, 1)
    assert retried(log.state, request.id[:8])[:3] == ("n1", request.id, 1)


def test_who_asks_for_a_retry_of_a_node_that_is_not_drained_is_sent_to_the_drain() -> None:
    log = RemediationLog()
    log.record(QUARANTINE, DRAINING_RULES, 5)
    log.record("n1", fault("0"), 10)
    intent = drained(log, "n1", 11)
    cordoned(log, "n1", 12)
    log.record("n1", NodeDrainSuperseded(intent=intent, reason="NotCordoned"), 4000)
    with pytest.raises(RequestError) as refused:
        retried(log.state, "n1")
    assert "gpuledger node drain n1 --reason TEXT" in str(refused.value.hint)


def test_a_document_without_the_remedy_that_was_last_tries_that_of_the_action() -> None:
    log = RemediationLog()
    log.record("n1", fault("0"), 10)
    (request,) = log.set_aside("n1", 11)
    log.finish(request, "Refused", 20)
    other = {**REPLACE, "name": "swap", "actions": ["RESTART_BM"]}
    log.record(REMEDIATION, remedies(other), 25)
    assert requested(log.record("n1", RETRY, 30)).remedy == "swap"
