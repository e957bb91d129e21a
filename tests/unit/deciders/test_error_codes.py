"""Healthy reports that name error codes clear these alone, and nodes and remedies stand for the others."""

import pytest

from gpuledger.domain.quarantine.rows import ACCEPTED
from gpuledger.domain.quarantine.state import HEALTHY_PER_NODE_MAX
from gpuledger.domain.remediation.rows import TREATED
from gpuledger.domain.tombstones import LATE_MAX
from gpuledger.events.health import NodeHealthReported
from gpuledger.events.maintenance import NodeMaintenanceReleased
from gpuledger.events.remediation import RemediationCancelled
from support.quarantine import QuarantineLog, labelled, reported, rules
from support.remediation import RemediationLog, fault


def begun() -> QuarantineLog:
    return QuarantineLog("n1", "n2", document=rules())


def test_a_healthy_report_that_names_codes_clears_these_alone() -> None:
    log = begun()
    log.record("n1", reported("0", codes=["79"]), 10)
    assert log.record("n1", reported("0", codes=["94"]), 11) == []
    assert log.record("n1", reported("0", codes=["79"], healthy=True), 12) == []
    assert log.record("n1", reported("0", codes=["48"], healthy=True), 13) == []
    assert log.fault_states("n1") == [ACCEPTED]
    (release,) = log.record("n1", reported("0", codes=["94"], healthy=True), 14)
    assert isinstance(release.data, NodeMaintenanceReleased)
    assert not log.state.fault.rows


@pytest.mark.parametrize("healthy", [reported("0", healthy=True), reported(healthy=True)])
def test_a_healthy_report_without_codes_clears_all_of_its_entity(healthy: NodeHealthReported) -> None:
    log = begun()
    log.record("n1", reported("0", codes=["79"]), 10)
    log.record("n1", reported("0"), 11)
    assert log.record("n1", reported("0", codes=["79"], healthy=True), 12) == [], "one named no code"
    assert len(log.record("n1", healthy, 13)) == 1


def test_a_healthy_report_without_entities_clears_its_codes_of_all_of_its_check() -> None:
    log = begun()
    log.record("n1", reported("0", "1", codes=["79"]), 10)
    log.record("n1", reported("1", codes=["94"]), 11)
    assert log.record("n1", reported(codes=["79"], healthy=True), 12) == []
    assert len(log.record("n1", reported("1", codes=["94"], healthy=True), 13)) == 1


def test_late_reports_count_for_their_codes_at_their_times() -> None:
    log = begun()
    log.record("n1", reported("0", codes=["79"]), 10)
    log.record("n1", reported("0", codes=["94"]), 20)
    log.record("n1", reported("0", codes=["79"], healthy=True), 15, recorded_s=21)
    assert log.record("n1", reported("0", codes=["79"]), 14, recorded_s=22) == []
    assert log.record("n1", reported("0", codes=["94"], healthy=True), 19, recorded_s=23) == []
    assert len(log.record("n1", reported("0", codes=["94"], healthy=True), 24)) == 1
    assert log.record("n1", reported("0", codes=["48"]), 23, recorded_s=25) != [], "nobody cleared this one"


def test_another_node_of_the_name_has_the_codes_that_were_reported_since_it_is_there() -> None:
    log = begun()
    log.record("n1", reported("0", codes=["79"]), 10)
    log.record("n1", reported("0", codes=["94"]), 20)
    log.record("n1", labelled("another"), 15, recorded_s=21)
    (row,) = log.state.fault.rows.values()
    assert set(row.code_times()) == {"94"}


def test_codes_that_were_cleared_alone_are_forgotten_in_time_and_beyond_their_bound() -> None:
    log = begun()
    for number in range(HEALTHY_PER_NODE_MAX + 1):
        log.record("n1", reported("0", codes=[f"c{number}"], healthy=True), 10 + number)
    assert len(log.state.healthy_code.rows) == HEALTHY_PER_NODE_MAX
    later_s = 10 + HEALTHY_PER_NODE_MAX + LATE_MAX.total_seconds() + 1
    log.record("n2", reported("0", healthy=True), later_s)
    assert not log.state.healthy_code.rows


def test_a_remedy_stands_until_each_code_of_its_fault_is_cleared() -> None:
    log = RemediationLog()
    log.record("n1", fault("0", codes=["79"]), 10)
    log.record("n1", fault("0", codes=["94"]), 11)
    log.set_aside("n1", 12)
    assert log.record("n1", reported("0", codes=["79"], healthy=True), 13) == []
    assert log.record("n1", fault("0", codes=["79"]), 12, recorded_s=14) == [], "it was cleared after that"
    assert log.fault_states("n1") == [TREATED]
    (cancelled,) = log.record("n1", reported("0", codes=["94"], healthy=True), 15)
    assert isinstance(cancelled.data, RemediationCancelled)
