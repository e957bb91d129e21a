"""What is decided of requests that want a node drained: for whom, since when, and when it is cancelled."""

import pytest

from gpuledger.events.envelope import Decoded
from gpuledger.events.maintenance import (
    LeavingPod,
    NodeDrainChanged,
    NodeDrainFinished,
    NodeDrainProgressed,
    NodeDrainSuperseded,
    NodeDrainTimedOut,
    NodeIsolationChanged,
    NodeMaintenanceRequested,
)
from gpuledger.events.node import NodeGone
from support.maintenance import MaintenanceLog, applied, at, observed, released, requested

ADA, BEN = "operators/ada", "operators/ben"
IMMEDIATE = {"mode": "Immediate"}
DAYS_S = 3 * 24 * 3600
LEFT = (LeavingPod(namespace="team", pod="p", state="Terminating"),)


def drains(events: list[Decoded]) -> list[NodeDrainChanged]:
    return [event.data for event in events if isinstance(event.data, NodeDrainChanged)]


def started() -> tuple[MaintenanceLog, Decoded]:
    """A log with a drain of `n1` for Ada, and its intent."""
    log = MaintenanceLog()
    log.record("n1", observed(), 0)
    decided = log.record("n1", requested(ADA, cordon=False, drain=IMMEDIATE), 1)
    (intent,) = (event for event in decided if isinstance(event.data, NodeDrainChanged))
    return log, intent


def test_a_request_of_an_earlier_build_wants_no_drain() -> None:
    assert NodeMaintenanceRequested.model_validate({"owner": ADA, "reason": "fan"}).drain is None


def test_who_wants_a_drain_gets_the_node_cordoned_as_well() -> None:
    log, intent = started()
    isolation = next(event.data for event in log.log if isinstance(event.data, NodeIsolationChanged))
    assert isolation.isolation.unschedulable
    (decided,) = drains([intent])
    assert [(one.owner, one.since, one.drain.mode) for one in decided.drains] == [(ADA, at(1), "Immediate")]


def test_each_owners_drain_is_in_force_until_it_is_released() -> None:
    log, _ = started()
    (both,) = drains(log.record("n1", requested(BEN, drain={}), 2))
    assert [one.owner for one in both.drains] == [ADA, BEN]
    (one,) = drains(log.record("n1", released(ADA), 3))
    assert [one.owner for one in one.drains] == [BEN]
    assert drains(log.record("n1", requested(BEN), 4))[0].drains == ()
    assert not log.state.drain.rows
    assert drains(log.record("n1", released(BEN), 5)) == []


def test_a_request_that_expires_cancels_its_drain() -> None:
    log = MaintenanceLog()
    log.record("n1", observed(), 0)
    log.record("n1", requested(ADA, drain=IMMEDIATE, expires=at(10)), 1)
    assert drains(log.pass_time(9)) == []
    assert [one.drains for one in drains(log.pass_time(11))] == [()]


def test_how_far_a_drain_is_can_be_read() -> None:
    log, intent = started()
    log.record("n1", NodeDrainProgressed(intent=intent.id, left=1, pods=LEFT), 2)
    row = log.state.drain.rows["n1"]
    assert (row.progress, row.pods_left, row.reported_at) == ("draining", 1, at(2))
    log.record("n1", NodeDrainTimedOut(intent=intent.id, left=1, pods=LEFT), 3)
    log.record("n1", NodeDrainProgressed(intent=intent.id, left=1, pods=LEFT), 4)
    assert log.state.drain.rows["n1"].progress == "timed-out"
    log.record("n1", NodeDrainFinished(intent="another"), 5)
    assert log.state.drain.rows["n1"].progress == "timed-out"
    assert log.record("n1", NodeDrainFinished(intent=intent.id), 6) == []
    assert (log.state.drain.rows["n1"].progress, log.state.drain.rows["n1"].pods_left) == ("finished", 0)


@pytest.mark.parametrize("reason", ["Expired", "Imported", "NotCordoned"])
def test_a_drain_that_came_to_nothing_begins_anew_for_its_own_owner_alone(reason: str) -> None:
    log, intent = started()
    over = NodeDrainSuperseded.model_validate({"intent": intent.id, "reason": reason})
    assert log.record("n1", over, 2) == []
    assert drains(log.record("n1", requested(BEN, labels={"b": "1"}), DAYS_S)) == []
    (bens,) = drains(log.record("n1", requested(BEN, drain={}), DAYS_S + 1))
    assert [one.owner for one in bens.drains] == [BEN]
    (both,) = drains(log.record("n1", requested(ADA, drain=IMMEDIATE), DAYS_S + 2))
    assert [(one.owner, one.since) for one in both.drains] == [(ADA, at(DAYS_S + 2)), (BEN, at(DAYS_S + 1))]


def test_a_drain_that_has_finished_does_not_begin_anew_for_somebody_else() -> None:
    log, intent = started()
    log.record("n1", NodeDrainFinished(intent=intent.id), 2)
    (bens,) = drains(log.record("n1", requested(BEN, drain={}), DAYS_S))
    assert [one.owner for one in bens.drains] == [BEN]


def test_a_drain_that_nobody_works_on_is_not_resumed_for_somebody_else() -> None:
    log, intent = started()
    isolation = next(event for event in log.log if isinstance(event.data, NodeIsolationChanged))
    log.record("n1", applied(isolation), 2)
    log.record("n1", NodeDrainProgressed(intent=intent.id, left=1, pods=LEFT), 600)
    (both,) = drains(log.record("n1", requested(BEN, drain={}), 4000))
    assert [one.owner for one in both.drains] == [ADA, BEN]
    (late,) = drains(log.record("n1", requested("operators/eva", drain={}), 4300))
    assert [one.owner for one in late.drains] == [BEN, "operators/eva"]


def test_who_wants_a_drain_gets_the_node_cordoned_again_though_others_have_it_cordoned() -> None:
    log, intent = started()
    isolation = next(event for event in log.log if isinstance(event.data, NodeIsolationChanged))
    log.record("n1", applied(isolation), 2)
    log.record("n1", NodeDrainSuperseded(intent=intent.id, reason="NotCordoned"), 3)
    decided = log.record("n1", requested(BEN, drain={}), 4)
    assert [type(event.data) for event in decided] == [NodeIsolationChanged, NodeDrainChanged]


def test_who_asks_again_begins_anew() -> None:
    log, _ = started()
    (again,) = drains(log.record("n1", requested(ADA, drain=IMMEDIATE), 9))
    assert again.drains[0].since == at(9)


def test_a_node_that_is_created_anew_is_drained_anew() -> None:
    log, _ = started()
    assert drains(log.record("n1", NodeGone(), 2)) == []
    (again,) = drains(log.record("n1", observed("u2"), 3))
    assert (again.uid, [one.owner for one in again.drains]) == ("u2", [ADA])


OF_CARD = {"mode": "Immediate", "devices": ["GPU-a"]}


def test_a_drain_of_a_device_cordons_its_node_only_where_that_is_requested() -> None:
    log = MaintenanceLog()
    log.record("n1", observed(), 0)
    decided = log.record("n1", requested(ADA, cordon=False, drain=OF_CARD), 1)
    assert [one.drains[0].drain.devices for one in drains(decided)] == [("GPU-a",)]
    assert not [one for one in decided if isinstance(one.data, NodeIsolationChanged)]
    decided = log.record("n1", requested(ADA, cordon=True, drain=OF_CARD), 2)
    (isolation,) = (one.data for one in decided if isinstance(one.data, NodeIsolationChanged))
    assert isolation.isolation.unschedulable


def test_a_node_that_is_not_cordoned_ends_no_drain_of_a_device() -> None:
    log, _ = started()
    (both,) = (
        one
        for one in log.record("n1", requested(BEN, cordon=False, drain=OF_CARD), 2)
        if isinstance(one.data, NodeDrainChanged)
    )
    decided = log.record("n1", NodeDrainSuperseded(intent=both.id, reason="NotCordoned"), 3)
    assert [[one.owner for one in change.drains] for change in drains(decided)] == [[BEN]]
    assert log.state.request.rows["n1", ADA].drain_result == "superseded"
    assert log.state.request.rows["n1", BEN].drain_result == ""
