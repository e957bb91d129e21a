"""What `gpuledger remediation list` and `show` have of nodes that got remedies, and of those that wait."""

import pytest

from gpuledger.events.quarantine import QUARANTINE
from gpuledger.events.remediation import REMEDIATION, RemediationCreated
from gpuledger.tools.errors import RequestError
from gpuledger.tools.remediation.operations import one_row, rows_of, rule_rows
from support.quarantine import FATAL_RULESET, rules
from support.remediation import REPLACE, RemediationLog, card, fault, remedies


def test_a_remedy_under_way_and_a_node_that_waits_are_listed() -> None:
    log = RemediationLog()
    log.record("n1", fault("0"), 10)
    (request,) = log.set_aside("n1", 11)
    log.record("n1", RemediationCreated(intent=request.id, uid="o1"), 12)
    log.record("n2", card(1), 13)
    treated, waiting = rows_of(log.state)
    assert (treated["node"], treated["remedy"], treated["state"]) == ("n1", "reboot", "Created")
    assert str(treated["object"]).startswith("Reboot/reboot-")
    assert (waiting["node"], waiting["remedy"], waiting["state"], waiting["id"]) == ("n2", "reset", "Waiting", None)
    assert "(report /nodes/n2/agent/1); the node is not set aside for it" in str(waiting["detail"])
    shown = one_row(log.state, request.id[:8])
    assert shown["id"] == request.id
    assert shown["faults"] == [
        {"monitor": "gpu-health-monitor", "check": "GpuXidError", "entity": "GPU/0", "report": "/nodes/n1/agent/1"}
    ]


@pytest.mark.parametrize(
    ("drains", "reason"), [(True, "the node is not drained yet"), (False, "another remedy is under way")]
)
def test_why_a_node_waits_is_shown(drains: bool, reason: str) -> None:
    log = RemediationLog()
    log.record("n1", card(1), 10)
    log.set_aside("n1", 11, drains=drains)
    log.record("n1", fault("7"), 12)
    assert any(reason in str(one["detail"]) for one in rows_of(log.state))


def test_a_node_that_a_person_has_to_look_at_is_listed_with_the_reason() -> None:
    log = RemediationLog(remedies(REPLACE))
    log.record("n1", fault("0", action="REPLACE_VM"), 10)
    (request,) = log.set_aside("n1", 11)
    log.finish(request, "TimedOut", 20)
    found = {one["state"]: one for one in rows_of(log.state)}
    assert found.keys() == {"TimedOut", "Attention"}
    assert str(found["Attention"]["detail"]).startswith("NoEscalation: replace of n1 came to nothing (timed-out)")
    (rule,) = rule_rows(log.state)
    assert (rule["actions"], rule["object"]) == (["REPLACE_VM", "CUSTOM swap"], "Reboot.example.com/v1")


@pytest.mark.parametrize("given", ["abc", "none-such"])
def test_an_id_that_is_none_is_refused(given: str) -> None:
    with pytest.raises(RequestError, match="There is no remediation"):
        one_row(RemediationLog().state, given)


def test_a_fault_says_what_it_waits_for_where_that_is_not_its_node() -> None:
    log = RemediationLog()
    log.record("n1", fault("0"), 10)
    log.set_aside("n1", 11, drains=True)
    log.record(REMEDIATION, remedies(REPLACE), 12)
    (gone,) = rows_of(log.state)
    assert str(gone["detail"]).endswith("; the document in force has no remedy for RESTART_BM")
    drains = RemediationLog()
    drains.record(QUARANTINE, rules(FATAL_RULESET, FATAL_RULESET | {"name": "more", "drain": {}}), 5)
    drains.record("n1", fault("0"), 10)
    drains.set_aside("n1", 11)
    (waiting,) = rows_of(drains.state)
    assert "a ruleset has still to request its drain" in str(waiting["detail"])
