"""What is decided of reports about nodes: who is set aside, when it is given back, and what history never does."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from gpuledger.domain.quarantine.checks import KEY_TEXT_BYTES_MAX
from gpuledger.domain.quarantine.rows import ACCEPTED, OVERRIDDEN, STALE
from gpuledger.domain.quarantine.state import FAULTS_PER_NODE_MAX
from gpuledger.events.device import DeviceHealthChanged
from gpuledger.events.maintenance import Drain, NodeDrainChanged, NodeMaintenanceReleased, NodeMaintenanceRequested
from gpuledger.events.node import NodeUnlabelled
from gpuledger.events.quarantine import QUARANTINE, QuarantineRulesApplied
from support.events import rows_of
from support.maintenance import MaintenanceLog, observed
from support.quarantine import (
    FATAL_RULESET,
    GPU_FATAL,
    OWNER,
    QuarantineLog,
    at,
    given_back,
    labelled,
    reported,
    rules,
)

TAINT = {"key": "gpu/broken", "effect": "NoSchedule"}
OTHER: dict[str, Any] = {
    "name": "A second one",
    "match": {"any": [{"expression": "event.checkName == 'GpuXidError' && node.metadata.name != ''"}]},
    "taints": [TAINT],
}


def begun(document: QuarantineRulesApplied | None = None) -> QuarantineLog:
    return QuarantineLog("n1", "n2", document=document or rules())


def test_a_fatal_report_sets_its_node_aside() -> None:
    log = begun()
    (request,) = log.record("n1", reported("0"), 10)
    assert isinstance(request.data, NodeMaintenanceRequested)
    assert (request.subject, request.data.owner, request.data.cordon) == ("n1", OWNER, True)
    assert request.causation_id == "/nodes/n1/agent/1"
    assert "gpu-health-monitor reports GpuXidError of GPU/0 unhealthy" in request.data.message
    assert request.data.rules == "a" * 64
    assert [(row.cause, row.version) for row in log.state.in_force("n1")] == [(request.causation_id, "a" * 64)]
    assert log.fault_states("n1") == [ACCEPTED]


def test_without_rules_nothing_is_set_aside_not_even_by_force() -> None:
    log = QuarantineLog("n1")
    assert log.record("n1", reported("0", quarantine={"force": True}), 10) == []
    assert log.record(QUARANTINE, rules(), 11) == []
    assert log.set_aside() == set()


@pytest.mark.parametrize(
    "fields",
    [
        {"fatal": False},
        {"component": "NIC"},
        {"strategy": "store-only"},
        {"strategy": "store-and-analyse"},
        {"quarantine": {"skip": True}},
        {"quarantine": {"skip": True, "force": True}},
    ],
)
def test_what_does_not_match_or_may_not_act_does_nothing(fields: dict[str, Any]) -> None:
    log = begun()
    assert log.record("n1", reported("0", **fields), 10) == []
    assert not log.state.fault.rows


def test_a_label_of_the_node_keeps_it_from_being_set_aside() -> None:
    log = begun()
    log.record("n1", labelled("uid-n1", **{"example.com/managed": "false"}), 1)
    assert log.record("n1", reported("0"), 10) == []
    assert len(log.record("n2", reported("0"), 10)) == 1


def test_force_acts_without_a_rule_that_matches() -> None:
    log = begun()
    (request,) = log.record("n1", reported("0", fatal=False, quarantine={"force": True}), 10)
    assert isinstance(request.data, NodeMaintenanceRequested)
    assert (request.data.owner, request.data.cordon) == ("health/forced", True)
    assert len(log.record("n1", reported(healthy=True), 11)) == 1


def test_the_last_entity_that_is_healthy_again_gives_the_node_back() -> None:
    log = begun()
    log.record("n1", reported("0", "1"), 10)
    assert log.record("n1", reported("0", healthy=True), 11) == []
    assert log.record("n1", reported("1", healthy=True, check="Other"), 12) == []
    (release,) = log.record("n1", reported("1", healthy=True), 13)
    assert isinstance(release.data, NodeMaintenanceReleased)
    assert (release.data.owner, release.data.reason) == (OWNER, "Healthy")
    assert release.causation_id == "/nodes/n1/agent/4"
    assert log.set_aside() == set()


def test_a_healthy_report_without_entities_clears_its_check() -> None:
    log = begun()
    log.record("n1", reported("0", "1"), 10)
    log.record("n1", reported("2", check="Thermal"), 11)
    assert log.record("n1", reported(healthy=True), 12) == []
    assert len(log.record("n1", reported(healthy=True, check="Thermal"), 13)) == 1


def test_each_ruleset_asks_and_releases_for_itself() -> None:
    log = begun(rules(OTHER, FATAL_RULESET))
    decided = log.record("n1", reported("0"), 10)
    owners = [event.data.owner for event in decided if isinstance(event.data, NodeMaintenanceRequested)]
    assert owners == [OWNER, "health/A second one"], "the higher priority first"
    assert len({event.id for event in decided}) == 2
    assert len(log.record("n1", reported("0", healthy=True), 11)) == 2


def test_what_is_reported_again_is_requested_once() -> None:
    log = begun()
    log.record("n1", reported("0"), 10)
    for second in range(11, 20):
        assert log.record("n1", reported("0"), second) == []
    assert log.record("n1", reported("1"), 20) == []
    assert log.fault_states("n1") == [ACCEPTED] * 2


def test_an_older_report_that_comes_late_turns_nothing_back() -> None:
    log = begun()
    log.record("n1", reported("0"), 10)
    assert log.record("n1", reported("0", healthy=True), 9, recorded_s=11) == []
    assert len(log.record("n1", reported("0", healthy=True), 20)) == 1
    assert log.record("n1", reported("0"), 15, recorded_s=21) == []
    assert log.record("n1", reported("1", healthy=True), 30) == []
    assert log.record("n1", reported("1"), 25, recorded_s=31) == []
    assert len(log.record("n1", reported("0"), 40)) == 1, "it failed again"


def test_an_operator_who_gives_a_node_back_is_not_contradicted_by_the_same_fault() -> None:
    log = begun()
    log.record("n1", reported("0"), 10)
    assert log.record("n1", given_back(), 20) == []
    assert log.fault_states("n1") == [OVERRIDDEN]
    assert log.record("n1", reported("0"), 30) == []
    assert len(log.record("n1", reported("1"), 40)) == 1, "another one is another matter"
    assert len(log.record("n1", reported("1", healthy=True), 41)) == 1
    assert log.record("n1", reported("0", healthy=True), 50) == []
    assert len(log.record("n1", reported("0"), 60)) == 1, "it was healthy meanwhile"


def test_a_request_never_lies_before_the_release_that_it_follows() -> None:
    log = begun()
    log.record("n1", reported("0"), 10)
    log.record("n1", given_back(), 3600, recorded_s=20)
    (request,) = log.record("n1", reported("1"), 30)
    assert request.time == log.log[-3][0].time.replace(hour=1, minute=0, second=0)


def test_a_node_that_is_deleted_takes_its_faults_along() -> None:
    log = begun()
    log.record("n1", reported("0"), 10)
    (release,) = log.record("n1", NodeUnlabelled(), 20)
    assert isinstance(release.data, NodeMaintenanceReleased)
    assert release.data.reason == "NodeGone"
    assert log.record("n1", labelled("u2"), 30) == []
    assert log.set_aside() == set()


def test_a_report_about_a_node_that_is_yet_to_come_waits_for_it() -> None:
    log = begun()
    assert log.record("n3", reported("0"), 10) == []
    assert len(log.record("n3", labelled("u3"), 20)) == 1
    assert log.record("n4", reported("0"), 30) == []
    assert log.pass_time(1000) == []
    assert log.fault_states("n4") == [], "nobody looks at a Node that does not exist"
    assert log.record("n4", labelled("u4"), 1001) == []


def test_a_ruleset_that_cannot_be_evaluated_matches_nothing_and_is_counted() -> None:
    broken = {**OTHER, "match": {"all": [{"expression": "event.metadata['nvidia.com/missing'] == 'x'"}]}}
    wrong = {**OTHER, "name": "wrong", "match": {"all": [{"expression": "((("}]}}
    log = begun(rules(broken, wrong, FATAL_RULESET))
    assert len(log.record("n1", reported("0"), 10)) == 1
    counts = log.state.count.rows
    assert (counts[GPU_FATAL].matched, counts[GPU_FATAL].failed) == (1, 0)
    assert counts["A second one"].failure == "there is no key 'nvidia.com/missing'"
    assert counts["wrong"].failure.startswith("it does not compile")


def test_other_rules_leave_what_stands_until_it_is_healthy() -> None:
    log = begun()
    log.record("n1", reported("0"), 10)
    assert log.record(QUARANTINE, rules({**FATAL_RULESET, "enabled": False}), 20) == []
    assert log.set_aside() == {"n1"}
    assert log.record("n2", reported("0"), 30) == []
    assert len(log.record("n1", reported("0", healthy=True), 40)) == 1


def test_faults_of_one_node_are_bounded() -> None:
    log = begun()
    for first in range(0, FAULTS_PER_NODE_MAX + 200, 200):
        log.record("n1", reported(*(str(number) for number in range(first, first + 200))), 10)
    assert len(log.state.fault.rows) == FAULTS_PER_NODE_MAX
    assert log.state.count.rows[GPU_FATAL].dropped == 800 - FAULTS_PER_NODE_MAX


def test_names_of_any_length_make_keys_that_postgresql_takes() -> None:
    log, longest = begun(), "\N{SNOWMAN}" * 253
    names: dict[str, Any] = {"monitor": longest, "check": longest, "component": "GPU"}
    entities = [{"type": longest, "value": longest[:-1] + end} for end in "ab"]
    log.record("n1", reported(entities=entities, **names), 10)
    keys = [log.state.fault.key_of(row) for row in log.state.fault.rows.values()]
    assert len(keys) == 2
    assert max(len(part.encode()) for key in keys for part in key) <= KEY_TEXT_BYTES_MAX
    assert log.record("n1", reported(healthy=True, entities=entities[:1], **names), 11) == []
    assert len(log.record("n1", reported(healthy=True, **names), 12)) == 1


def test_imported_reports_are_history() -> None:
    log = begun()
    assert log.record("n1", reported("0"), 10, imported=True) == []
    assert not log.state.fault.rows
    log.record("n1", reported("0"), 11)
    assert log.record("n1", reported("0", healthy=True), 12, imported=True) == []
    assert log.set_aside() == {"n1"}


def test_a_report_that_was_recorded_too_late_leads_to_nothing_until_a_fresh_one() -> None:
    log = begun()
    assert log.record("n1", reported("0"), 10, recorded_s=10 + 601) == []
    assert log.fault_states("n1") == [STALE]
    assert len(log.record("n1", reported("0"), 700)) == 1


def test_a_report_that_waited_long_on_its_node_leads_to_nothing() -> None:
    """An agent never dates an event before its last one, so the time of the event alone does not show it."""
    log = begun()
    assert log.record("n1", reported("0", first_at=at(0)), 601) == []
    assert log.fault_states("n1") == [STALE]
    assert len(log.record("n2", reported("0", first_at=at(2)), 601)) == 1


def test_the_age_of_a_report_counts_from_its_monitors_time_when_the_decider_comes_late() -> None:
    log = begun()
    log.runs = False
    log.record("n1", reported("0", first_at=at(0)), 300)
    log.record("n2", reported("0", first_at=at(200)), 300)
    assert [one.subject for one in log.pass_time(700)] == ["n2"]


def test_an_agents_own_verdict_on_a_card_counts_as_a_report_of_a_monitor() -> None:
    log, agent = begun(), "/nodes/n1/agent"
    fault = DeviceHealthChanged(healthy=False, kind="XID 79", message="fallen off the bus")
    (request,) = log.record("GPU-1", fault, 10, source=agent)
    assert isinstance(request.data, NodeMaintenanceRequested)
    assert (request.subject, request.data.owner) == ("n1", OWNER)
    assert "gpuledger-agent reports DeviceHealth of GPU-1 unhealthy" in request.data.message
    assert log.record("GPU-2", DeviceHealthChanged(healthy=True), 11, source=agent) == []
    (release,) = log.record("GPU-1", DeviceHealthChanged(healthy=True), 12, source=agent)
    assert isinstance(release.data, NodeMaintenanceReleased)
    assert (release.data.reason, log.set_aside()) == ("Healthy", set())


def test_a_decider_that_was_away_for_days_acts_on_nothing_old() -> None:
    log = begun()
    log.runs = False
    log.record("n1", reported("0"), 10)
    log.record("n2", reported("0"), 20)
    log.record("n2", reported("0", healthy=True), 30)
    assert log.pass_time(10 * 24 * 3600) == []
    assert log.fault_states("n1") == [STALE]
    assert log.requests() == []


def test_a_decider_that_was_away_for_a_moment_acts_on_what_stands() -> None:
    log = begun()
    log.runs = False
    log.record("n1", reported("0"), 10)
    log.record("n2", reported("0"), 20)
    log.record("n2", reported("0", healthy=True), 30)
    (request,) = log.pass_time(60)
    assert request.subject == "n1"


def test_a_report_of_a_clock_that_is_ahead_is_as_old_as_its_recording() -> None:
    log = begun()
    log.runs = False
    log.record("n1", reported("0"), 3600 * 5, recorded_s=10)
    assert log.pass_time(3600) == []
    assert log.fault_states("n1") == [STALE]


def test_a_clock_that_was_ahead_keeps_no_node_from_being_healthy_again() -> None:
    log = begun()
    log.record("n1", reported("0"), 3600 * 5, recorded_s=10)
    assert len(log.record("n1", reported("0", healthy=True), 20)) == 1
    log.record("n1", reported("0", healthy=True), 3600 * 5, recorded_s=30)
    assert len(log.record("n1", reported("0"), 40)) == 1


def test_rows_that_are_built_anew_ask_for_nothing_again() -> None:
    log = begun()
    log.record("n1", reported("0"), 10)
    log.record("n1", reported("0", healthy=True), 20)
    log.record("n2", reported("0"), 30)
    again = log.new_fold()
    again.apply_all(log.messages())
    assert not again.outstanding(), "everything that it decides is in the log"
    assert rows_of(again) == rows_of(log.fold)
    again.due(log.log[-1][0].time.replace(year=2027))
    assert not again.outstanding()


@pytest.mark.parametrize("first_at", ["0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59-14:00"])
def test_a_first_time_that_no_table_takes_is_one_that_it_takes(first_at: str) -> None:
    log = begun()
    log.record("n1", reported("0", first_at=first_at), 10)
    (fault,) = log.state.fault.rows.values()
    assert fault.observed_at.utcoffset() == timedelta(0)
    assert at(10) >= fault.observed_at >= datetime(1970, 1, 1, tzinfo=UTC)
    assert fault.state == (STALE if first_at.startswith("0") else ACCEPTED)


def test_a_ruleset_asks_for_a_drain_which_ends_with_its_fault() -> None:
    drains = {"name": "Drains", "match": {"all": [{"expression": "event.isFatal"}]}, "drain": {"mode": "Immediate"}}
    log = begun(rules(drains))
    (request,) = log.record("n1", reported("0"), 10)
    assert isinstance(request.data, NodeMaintenanceRequested)
    assert (request.data.cordon, request.data.drain) == (False, Drain(mode="Immediate"))
    (release,) = log.record("n1", reported("0", healthy=True), 11)
    maintenance = MaintenanceLog()
    maintenance.record("n1", observed(), 0)
    (intent,) = [one for one in maintenance.record("n1", request.data, 10) if isinstance(one.data, NodeDrainChanged)]
    assert isinstance(intent.data, NodeDrainChanged)
    assert [(one.owner, one.drain.mode) for one in intent.data.drains] == [("health/Drains", "Immediate")]
    cancelled = [one.data for one in maintenance.record("n1", release.data, 11)]
    assert NodeDrainChanged(uid=intent.data.uid) in cancelled


def test_the_breaker_counts_nodes_that_are_only_drained() -> None:
    drains = {"name": "Drains", "match": {"all": [{"expression": "event.isFatal"}]}, "drain": {}}
    log = begun(rules(drains, percentage=50))
    assert len(log.record("n1", reported("0"), 10)) == 1
    log.record("n2", reported("0"), 11)
    assert (log.state.is_open(), log.set_aside()) == (True, {"n1"})
