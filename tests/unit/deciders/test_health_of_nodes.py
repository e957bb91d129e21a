"""What is decided of Nodes and cards that come and go, how names count, and what bounds hold."""

import pytest

from gpuledger.deciders.health.decide import ASSESSMENTS_PER_CALL_MAX, on_assessed, on_due
from gpuledger.domain.fact import Fact, ns_of_time
from gpuledger.domain.quarantine.state import HEALTHY_PER_NODE_MAX, Quarantine
from gpuledger.events.device import DeviceDetached, DeviceHealthChanged
from gpuledger.events.maintenance import NodeMaintenanceReleased
from gpuledger.events.node import NodeUnlabelled
from gpuledger.events.quarantine import QUARANTINE, NodeFaultAssessed
from gpuledger.projection.definition import event_of
from support.quarantine import OWN, QuarantineLog, at, labelled, reported, rules


@pytest.mark.parametrize(("reported_s", "recorded_s"), [(95, 102), (120, 121)])
def test_what_was_reported_of_a_node_before_sets_none_aside_that_comes_under_its_name(
    reported_s: int, recorded_s: int
) -> None:
    """An agent goes on reporting for a while after its Node is gone, and what it recorded last may come late."""
    log = QuarantineLog("n1", "n2", document=rules())
    log.record("n1", NodeUnlabelled(), 100)
    assert log.record("n1", reported("0"), reported_s, recorded_s=recorded_s) == []
    assert log.record("n1", labelled("uid-new"), 160) == []
    assert not log.state.fault.rows
    assert log.record("n1", reported("0"), 99, recorded_s=170) == []
    assert len(log.record("n1", reported("0"), 171)) == 1


def test_a_fault_of_another_node_of_that_name_stands_though_the_node_is_learnt_of_later() -> None:
    log = QuarantineLog("n1", "n2", document=rules())
    log.record("n1", reported("0"), 10)
    log.record("n1", reported("1"), 30)
    assert log.record("n1", labelled("uid-new"), 20, recorded_s=31) == []
    assert [row.entity for row in log.state.fault.rows.values()] == ["GPU/1"]
    (release,) = log.record("n1", reported("1", healthy=True), 40)
    assert release.subject == "n1"


def test_a_node_that_is_first_learnt_of_when_it_goes_is_gone() -> None:
    log = QuarantineLog("n1", document=rules())
    log.record("n2", reported("0"), 95)
    log.record("n2", NodeUnlabelled(), 100)
    assert log.record("n2", reported("1"), 95, recorded_s=102) == []
    assert not log.state.fault.rows


def test_faults_of_nodes_that_never_come_are_not_kept() -> None:
    log = QuarantineLog("n1", "n2", document=rules())
    log.record("n9", reported("0"), 10)
    assert log.record("n9", reported("1"), 20, recorded_s=2000) == []
    assert log.pass_time(2000) == []
    assert not log.state.fault.rows


def test_reports_of_nodes_that_are_yet_to_come_keep_no_other_from_being_assessed() -> None:
    log = QuarantineLog("n1", "n2", document=rules())
    log.runs = False
    for number in range(ASSESSMENTS_PER_CALL_MAX):
        log.record(f"n{8 + number % 2}", reported(str(number)), 10)
    log.record("n1", reported("0"), 11)
    (request,) = log.pass_time(12)
    assert request.subject == "n1"


def test_what_is_reported_healthy_all_the_time_takes_no_more_room() -> None:
    log, day_s = QuarantineLog("n1", "n2", document=rules()), 24 * 3600
    for second in range(100):
        log.record("n1", reported("0", healthy=True), second)
    assert (len(log.state.ends()), len(log.state.healthy.rows)) == (1, 1)
    log.record("n1", reported("1", healthy=True), 6 * day_s)
    assert [row.entity for row in log.state.healthy.rows.values()] == ["GPU/0", "GPU/1"]
    log.record("n2", reported("0", healthy=True), 8 * day_s)
    assert [row.entity for row in log.state.healthy.rows.values()] == ["GPU/1", "GPU/0"]
    log.record("n2", reported("0", healthy=True), 14 * day_s)
    assert [row.node for row in log.state.healthy.rows.values()] == ["n2"]
    assert len(log.state.ends()) == 1


def test_a_node_has_as_many_ends_as_rows_of_requests_say_whoever_loads_them() -> None:
    log, day_s = QuarantineLog("n1", "n2", document=rules()), 24 * 3600
    for second in range(10, 20, 2):
        log.record("n1", reported("0"), second)
        log.record("n1", reported("0", healthy=True), second + 1)
    loaded = Quarantine()
    for name, table in loaded.tables().items():
        table.load(log.state.tables()[name].rows.values())
    assert len(loaded.ends()) == len(log.state.ends()) == 1
    for state in (loaded, log.state):
        state.forget(at(19 + 7 * day_s))
        assert (len(state.request.rows), len(state.healthy.rows)) == (1, 1)
        state.forget(at(20 + 7 * day_s))
        assert (len(state.request.rows), len(state.healthy.rows), len(state.ends())) == (0, 0, 0)


def test_the_latest_of_what_is_healthy_again_is_kept() -> None:
    log = QuarantineLog("n1", "n2", document=rules())
    for first in range(0, HEALTHY_PER_NODE_MAX + 200, 200):
        names = [str(number) for number in range(first, first + 200)]
        log.record("n1", reported(*names, healthy=True), 800 - first)
    entities = {int(row.entity.removeprefix("GPU/")) for row in log.state.healthy.rows.values()}
    assert len(entities) == HEALTHY_PER_NODE_MAX
    assert entities >= set(range(400)), "those that were reported last"


def test_a_card_that_is_taken_out_takes_its_faults_along() -> None:
    log, inventory = QuarantineLog("n1", "n2", document=rules()), "/services/inventory"
    log.record("n1", reported("0", devices=["GPU-1"]), 10)
    log.record("GPU-2", DeviceHealthChanged(healthy=False, kind="XID 79"), 11, source="/nodes/n1/agent")
    assert log.record("GPU-1", DeviceDetached(slot="n2/0", name="n2-0"), 12, source=inventory) == []
    assert log.record("GPU-1", DeviceDetached(slot="n1/0", name="n1-0"), 13, source=inventory) == []
    (release,) = log.record("GPU-2", DeviceDetached(slot="n1/1", name="n1-1"), 14, source=inventory)
    assert isinstance(release.data, NodeMaintenanceReleased)
    assert (release.subject, release.data.reason) == ("n1", "CardLeft")
    assert log.record("n1", reported("0", devices=["GPU-1"]), 12, recorded_s=15) == []
    assert log.set_aside() == set()
    assert len(log.record("n1", reported("0", devices=["GPU-1"]), 16)) == 1, "it is in again"


@pytest.mark.parametrize(
    ("unhealthy", "healthy"),
    [
        ({"type": "PCI", "value": "0000:17:00"}, {"type": "PCI", "value": "00000000:17:00.0"}),
        ({"type": "GPU_UUID", "value": "GPU-1"}, {"type": "GPU", "value": "GPU-1"}),
    ],
)
def test_a_card_is_the_same_however_its_monitor_spells_it(unhealthy: dict[str, str], healthy: dict[str, str]) -> None:
    log = QuarantineLog("n1", "n2", document=rules())
    log.record("n1", reported(entities=[unhealthy]), 10)
    assert len(log.record("n1", reported(entities=[healthy], healthy=True), 11)) == 1


@pytest.mark.parametrize(("at_first", "later"), [((), ("GPU-1",)), (("GPU-1",), ())])
def test_a_card_is_the_same_whether_or_not_the_agent_has_found_it(
    at_first: tuple[str, ...], later: tuple[str, ...]
) -> None:
    """After a reboot a monitor may report before the agent has looked which cards there are."""
    log = QuarantineLog("n1", "n2", document=rules())
    log.record("n1", reported("0", devices=at_first), 10)
    assert log.record("n1", reported("1", devices=later and ("GPU-2",), healthy=True), 11) == []
    assert len(log.record("n1", reported("0", devices=later, healthy=True), 12)) == 1


def test_the_number_of_a_card_that_was_found_is_no_name_of_another_one() -> None:
    log = QuarantineLog("n1", "n2", document=rules())
    log.record("n1", reported("0", devices=["GPU-1"]), 10)
    assert log.record("n1", reported("0", devices=["GPU-2"], healthy=True), 11) == []


def test_what_is_only_stored_gives_no_node_back() -> None:
    log = QuarantineLog("n1", "n2", document=rules())
    log.record("n1", reported("0"), 10)
    assert log.record("n1", reported("0", healthy=True, strategy="store-only"), 11) == []
    assert log.set_aside() == {"n1"}


def test_the_breaker_may_open_twice_after_one_reset() -> None:
    log = QuarantineLog("n1", "n2", document=rules(percentage=1))
    log.record("n1", reported("0"), 10)
    log.record("n2", reported("0"), 10)
    log.runs = False
    log.reset(11)
    openings = []
    for due in list(on_due(log.state, at(11))):
        assessment = event_of(due, "/services/health", OWN)
        assert isinstance(assessment.data, NodeFaultAssessed)
        decisions = on_assessed(log.state, Fact(assessment, 100, ns_of_time(at(11))), assessment.data)
        openings += [event_of(one, "/services/health", OWN) for one in decisions if one.subject == QUARANTINE]
    assert len({event.id for event in openings}) == len(openings) == 2
