"""What a report's overrides make of the drains of the rulesets that it matches."""

from typing import Any

import pytest

from gpuledger.domain.quarantine.overrides import DRAIN_FORCED, DRAIN_SKIPPED
from gpuledger.domain.quarantine.rules import FORCED, problems
from gpuledger.events.envelope import Decoded
from gpuledger.events.maintenance import (
    Isolation,
    NodeDrainChanged,
    NodeDrainFinished,
    NodeIsolationApplied,
    NodeIsolationChanged,
    NodeMaintenanceReleased,
    NodeMaintenanceRequested,
)
from gpuledger.events.quarantine import QUARANTINE
from gpuledger.events.remediation import RemediationRequested
from support.quarantine import FATAL_RULESET, GPU_FATAL, OWNER, QuarantineLog, reported, rules
from support.remediation import RemediationLog, at, fault

FORCE, SKIP = {"force": True}, {"skip": True}
DRAINS: dict[str, Any] = {
    **FATAL_RULESET,
    "labels": {"example.com/faulty": "true"},
    "drain": {"mode": "AllowCompletion", "namespaces": [{"namespaces": "team-*", "mode": "DeleteAfterTimeout"}]},
}
OF_CARDS: dict[str, Any] = {**FATAL_RULESET, "cordon": False, "drain": {}, "drain_scope": "device"}


def request(decided: list[Decoded]) -> NodeMaintenanceRequested:
    (found,) = decided
    assert isinstance(found.data, NodeMaintenanceRequested)
    return found.data


def log_of(ruleset: dict[str, Any]) -> QuarantineLog:
    return QuarantineLog("n1", "n2", "n3", document=rules(ruleset))


def test_who_skips_the_drain_has_the_node_cordoned_and_no_pod_leave() -> None:
    found = request(log_of({**DRAINS, "cordon": False}).record("n1", reported("0", drain=SKIP), 10))
    assert (found.owner, found.drain, found.cordon) == (f"{OWNER}{DRAIN_SKIPPED}", None, True)
    assert found.labels == {"example.com/faulty": "true"}


def test_nothing_is_skipped_where_nothing_drains() -> None:
    found = request(log_of(FATAL_RULESET).record("n1", reported("0", drain=SKIP), 10))
    assert (found.owner, found.drain) == (OWNER, None)


def test_a_ruleset_that_only_drains_cards_does_nothing_where_that_is_skipped() -> None:
    log = log_of(OF_CARDS)
    assert log.record("n1", reported("0", drain=SKIP), 10) == []
    assert log.fold.state.tables()["node_fault"].rows == {}


@pytest.mark.parametrize("ruleset", [DRAINS, FATAL_RULESET])
def test_who_forces_the_drain_has_all_pods_leave_at_once(ruleset: dict[str, Any]) -> None:
    found = request(log_of(ruleset).record("n1", reported("0", drain=FORCE), 10))
    assert found.drain is not None
    assert (found.owner, found.drain.mode, found.drain.namespaces) == (f"{OWNER}{DRAIN_FORCED}", "Immediate", ())
    assert (found.drain.devices, found.cordon) == ((), True)


def test_a_forced_drain_of_cards_is_no_wider() -> None:
    about: dict[str, Any] = {"entities": [{"type": "GPU_UUID", "value": "GPU-1"}]}
    found = request(log_of(OF_CARDS).record("n1", reported(**about, drain=FORCE), 10))
    assert found.drain is not None
    assert (found.drain.mode, found.drain.devices, found.cordon) == ("Immediate", ("GPU-1",), False)


def test_skip_wins() -> None:
    assert request(log_of(DRAINS).record("n1", reported("0", drain=FORCE | SKIP), 10)).drain is None


def test_a_report_that_forces_all_needs_no_rule() -> None:
    found = request(log_of(DRAINS).record("n1", reported("0", fatal=False, quarantine=FORCE, drain=FORCE), 10))
    assert found.drain is not None
    assert (found.owner, found.cordon, found.drain.mode) == (f"health/{FORCED}{DRAIN_FORCED}", True, "Immediate")


def test_a_report_without_override_changes_nothing_about_one_with_it_and_health_ends_both() -> None:
    log = log_of(DRAINS)
    log.record("n1", reported("0", drain=SKIP), 10)
    plain = request(log.record("n1", reported("0"), 11))
    assert plain.owner == OWNER
    assert plain.drain is not None
    released = log.record("n1", reported("0", healthy=True), 12)
    owners = {one.data.owner for one in released if isinstance(one.data, NodeMaintenanceReleased)}
    assert owners == {OWNER, f"{OWNER}{DRAIN_SKIPPED}"}


def test_a_ruleset_is_counted_as_matched_whatever_is_overridden() -> None:
    log = log_of(DRAINS)
    for at_s, drain in enumerate((SKIP, FORCE, {})):
        log.record("n1", reported("0", drain=drain), 10 + at_s)
    rows = log.fold.state.tables()["quarantine_ruleset_count"].rows
    assert {name: row.matched for name, row in rows.items()} == {GPU_FATAL: 3}


@pytest.mark.parametrize("ending", [DRAIN_SKIPPED, DRAIN_FORCED])
def test_a_document_has_no_ruleset_with_such_a_name(ending: str) -> None:
    (problem,) = problems(rules({**FATAL_RULESET, "name": f"x{ending}"}))
    assert "override drains; choose another one" in problem


def test_a_remedy_waits_for_the_drain_that_a_report_forces() -> None:
    log, owner = RemediationLog(), f"{OWNER}{DRAIN_FORCED}"
    log.record(QUARANTINE, rules(FATAL_RULESET), 5)
    log.record("n1", fault("0", drain=FORCE), 10)
    drain = {"mode": "Immediate"}
    asked = {"owner": owner, "reason": "Unhealthy", "drain": drain}
    log.record("n1", NodeMaintenanceRequested.model_validate(asked), 11)
    log.record("n1", NodeIsolationChanged(uid="uid-n1", isolation=Isolation(unschedulable=True)), 11)
    drains = [{"owner": owner, "since": at(11), "drain": drain}]
    log.record("n1", NodeDrainChanged.model_validate({"uid": "uid-n1", "drains": drains}), 12)
    assert log.record("n1", NodeIsolationApplied(intent=log.last(NodeIsolationChanged).id, written=True), 13) == []
    (remedy,) = log.record("n1", NodeDrainFinished(intent=log.last(NodeDrainChanged).id), 20)
    assert isinstance(remedy.data, RemediationRequested)
