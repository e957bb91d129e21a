"""What is decided of requests about nodes: who holds a node, what they want together, and when it is given back."""

from datetime import datetime, timedelta
from typing import Any

from gpuledger.domain.maintenance.rows import NOT_ISOLATED
from gpuledger.events.envelope import Decoded
from gpuledger.events.maintenance import (
    Isolation,
    NodeIsolationChanged,
    NodeIsolationFailed,
    NodeIsolationSuperseded,
    NodeMaintenanceExpired,
)
from gpuledger.events.node import NodeGone
from support.maintenance import MaintenanceLog, applied, at, observed, released, requested

ADA, BEN = "operators/ada", "operators/ben"
TAINT = {"key": "gpu/broken", "effect": "NoSchedule"}
HOUR_S, DAYS_S = 3600, 3 * 24 * 3600


def intent(log: MaintenanceLog) -> NodeIsolationChanged:
    data = log.intents()[-1].data
    assert isinstance(data, NodeIsolationChanged)
    return data


def test_the_last_owners_release_gives_the_node_back() -> None:
    log = MaintenanceLog()
    log.record("n1", observed(), 0)
    (first,) = log.record("n1", requested(ADA), 1)
    assert (intent(log).uid, intent(log).owners, intent(log).isolation.unschedulable) == ("u1", (ADA,), True)
    assert first.causation_id == log.log[1].id
    assert log.record("n1", requested(BEN), 2) == []
    assert log.record("n1", released(ADA), 3) == []
    assert len(log.record("n1", released(BEN), 4)) == 1
    assert intent(log).isolation.is_none()


def test_owners_that_want_different_things_get_all_of_them_whoever_asks_first() -> None:
    wishes: dict[str, dict[str, Any]] = {
        ADA: {"taints": [TAINT], "labels": {"state": "a"}},
        BEN: {"taints": [{**TAINT, "value": "b"}]},
    }
    found = []
    for owners in ((ADA, BEN), (BEN, ADA)):
        log = MaintenanceLog()
        log.record("n1", observed(), 0)
        for second, owner in enumerate(owners, 1):
            log.record("n1", requested(owner, cordon=owner == BEN, **wishes[owner]), second)
        found.append(intent(log).isolation)
    assert found[0] == found[1]
    assert (found[0].unschedulable, [one.value for one in found[0].taints]) == (True, [""])


def test_a_request_about_a_node_that_does_not_exist_is_kept_until_it_does() -> None:
    log = MaintenanceLog()
    assert log.record("n1", requested(ADA), 1) == []
    assert [row.owner for row in log.state.requests_about("n1")] == [ADA]
    assert len(log.record("n1", observed(), 2)) == 1
    assert intent(log).uid == "u1"


def test_a_node_that_is_created_again_is_set_aside_again() -> None:
    log = MaintenanceLog()
    log.record("n1", observed(), 0)
    (first,) = log.record("n1", requested(ADA), 1)
    log.record("n1", applied(first), 2)
    assert log.record("n1", NodeGone(), 3) == []
    assert len(log.record("n1", observed("u2"), 4)) == 1
    assert (intent(log).uid, intent(log).isolation.unschedulable) == ("u2", True)


def test_a_node_that_was_given_back_while_it_was_gone_comes_back_as_it_is() -> None:
    log = MaintenanceLog()
    log.record("n1", observed(), 0)
    log.record("n1", requested(ADA), 1)
    log.record("n1", NodeGone(), 3)
    log.record("n1", released(ADA), 4)
    assert log.record("n1", observed("u2"), 5) == []


def test_who_asks_again_gets_another_intent_though_nothing_differs() -> None:
    log = MaintenanceLog()
    log.record("n1", observed(), 0)
    (first,) = log.record("n1", requested(ADA), 1)
    log.record("n1", applied(first), 2)
    assert len(log.record("n1", requested(ADA), 3)) == 1
    assert log.record("n1", requested(BEN), 4) == []


def test_after_a_failure_the_next_fact_about_it_tries_again() -> None:
    log = MaintenanceLog()
    log.record("n1", observed(), 0)
    (first,) = log.record("n1", requested(ADA), 1)
    log.record("n1", NodeIsolationFailed(intent=first.id, reason="Forbidden"), 2)
    assert log.state.isolation.rows["n1"].result == "failed"
    assert len(log.record("n1", requested(BEN), 3)) == 1


def expired(intent: Decoded) -> NodeIsolationSuperseded:
    return NodeIsolationSuperseded(intent=intent.id, reason="Expired")


def test_what_came_to_nothing_is_decided_anew_for_its_own_owner_alone() -> None:
    log = MaintenanceLog()
    log.record("n1", observed(), 0)
    (first,) = log.record("n1", requested(ADA, labels={"a": "1"}), 1)
    assert log.record("n1", expired(first), 2 * HOUR_S) == []
    assert [row.has_lapsed for row in log.state.requests_about("n1")] == [True]
    log.record("n1", requested(BEN, cordon=False, labels={"b": "1"}), DAYS_S)
    assert (intent(log).owners, intent(log).isolation) == ((BEN,), Isolation(labels={"b": "1"}))
    log.record("n1", requested(ADA, labels={"a": "1"}), DAYS_S + 1)
    assert intent(log).isolation == Isolation(unschedulable=True, labels={"a": "1", "b": "1"})


def test_what_stands_applied_stays_when_something_else_comes_to_nothing() -> None:
    log = MaintenanceLog()
    log.record("n1", observed(), 0)
    (first,) = log.record("n1", requested(ADA), 1)
    log.record("n1", applied(first), 2)
    (second,) = log.record("n1", requested(BEN, cordon=False, labels={"b": "1"}), 3)
    log.record("n1", expired(second), 2 * HOUR_S)
    (third,) = log.record("n1", requested(ADA, labels={"a": "1"}), 3 * HOUR_S)
    log.record("n1", expired(third), 5 * HOUR_S)
    log.record("n1", requested("operators/eva", cordon=False, labels={"e": "1"}), DAYS_S)
    assert intent(log).isolation == Isolation(unschedulable=True, labels={"e": "1"})


def test_what_nobody_carried_out_in_time_lapses_before_its_outcome_is_there() -> None:
    log = MaintenanceLog()
    log.record("n1", observed(), 0)
    log.record("n1", requested(ADA), 1)
    log.record("n1", requested(BEN, cordon=False, labels={"b": "1"}), HOUR_S - 60)
    assert intent(log).isolation.unschedulable
    log.record("n1", requested("operators/eva", cordon=False, labels={"e": "1"}), HOUR_S + 60)
    assert intent(log).isolation == Isolation(labels={"b": "1", "e": "1"})


def test_who_joined_an_intent_that_expired_is_served_by_another_one() -> None:
    log = MaintenanceLog()
    log.record("n1", observed(), 0)
    (first,) = log.record("n1", requested(ADA), 1)
    assert log.record("n1", requested(BEN), HOUR_S - 60) == []
    assert len(log.record("n1", expired(first), HOUR_S + 60)) == 1
    assert (intent(log).owners, intent(log).isolation.unschedulable) == ((BEN,), True)


def test_a_node_that_is_created_anew_revives_nothing_that_lapsed() -> None:
    log = MaintenanceLog()
    log.record("n1", observed(), 0)
    (first,) = log.record("n1", requested(ADA), 1)
    log.record("n1", expired(first), 2 * HOUR_S)
    log.record("n1", NodeGone(), DAYS_S)
    assert log.record("n1", observed("u2"), DAYS_S + 1) == []


def test_a_request_ends_at_its_expiry_at_that_place_of_the_log() -> None:
    log = MaintenanceLog()
    log.record("n1", observed(), 0)
    log.record("n1", requested(ADA, expires=at(10)), 1)
    assert log.pass_time(9) == []
    expiry, change = log.pass_time(11)
    assert isinstance(expiry.data, NodeMaintenanceExpired)
    assert isinstance(change.data, NodeIsolationChanged)
    assert (change.data.isolation.is_none(), expiry.time) == (True, at(10))
    assert log.pass_time(12) == []


def test_who_comes_to_an_expiry_late_gives_the_node_back_all_the_same() -> None:
    log = MaintenanceLog()
    log.record("n1", observed(), 0)
    log.record("n1", requested(ADA, expires=at(10)), 1)
    expiry, change = log.pass_time(DAYS_S)
    assert (expiry.time, change.time) == (at(10), at(DAYS_S))


def test_a_request_that_was_renewed_does_not_expire() -> None:
    log = MaintenanceLog()
    log.record("n1", observed(), 0)
    log.record("n1", requested(ADA, expires=at(10)), 1)
    log.record("n1", requested(ADA, expires=at(20)), 9)
    assert log.pass_time(11) == []
    assert not intent(log).isolation.is_none()


def test_what_is_imported_asks_for_nothing() -> None:
    log = MaintenanceLog()
    log.record("n1", observed(), 0)
    assert log.record("n1", requested(ADA), 1, imported=True) == []
    assert not log.state.request.rows


def test_what_ended_long_ago_is_forgotten() -> None:
    log, week_s = MaintenanceLog(), 8 * 24 * 3600
    log.record("n1", observed(), 0)
    log.record("n1", requested(ADA), 1)
    (back,) = log.record("n1", released(ADA), 2)
    log.record("n1", applied(back), 3)
    assert log.state.isolation.rows["n1"].isolation == NOT_ISOLATED
    log.record("n2", observed("u9"), week_s)
    (other,) = log.record("n2", requested(BEN), week_s)
    log.record("n2", applied(other), week_s)
    assert list(log.state.request.rows) == [("n2", BEN)]
    assert list(log.state.isolation.rows) == ["n2"]


def test_an_end_that_no_table_takes_is_kept_as_one_that_it_takes() -> None:
    log = MaintenanceLog()
    log.record("n1", observed(), 0)
    log.record("n1", requested(ADA, expires=datetime.fromisoformat("9999-12-31T23:59:59-14:00")), 1)
    (row,) = log.state.requests_about("n1")
    assert row.expires_at is not None
    assert (row.expires_at.utcoffset(), row.expires_at.year) == (timedelta(0), 9999)
