"""What follows when nothing has come for too long: drains, agents, releases, and inputs that keep changing."""

from typing import Any

from gpuledger.events.machine_config import (
    MachineConfigPoolGone,
    MachineConfigRendered,
    NodeConfigDrainFailed,
    NodeConfigReported,
    NodeMachineGone,
    RolloutControllerPlaced,
)
from gpuledger.events.maintenance import (
    LeavingPod,
    NodeDrainChanged,
    NodeDrainFinished,
    NodeDrainProgressed,
    NodeIsolationApplied,
    NodeIsolationChanged,
    NodeIsolationSuperseded,
    NodeMaintenanceRequested,
)
from gpuledger.events.node import NodeLabelled, NodeUnlabelled
from support.events import rows_of
from support.machine_configs import config_file, config_pool, machine_config
from support.rollout import RolloutLog, at, data_of, machine, new_fold, phases, released, reloaded

OLD: dict[str, Any] = {"current_revision": "rendered-worker-old", "agent_state": "done"}


def rollout(*nodes: str, runs_on: str | None = None, **fields: Any) -> RolloutLog:
    """A pool whose first nodes drain from second 10 on; retries are 30 s apart, the time-out is 100 s."""
    log = RolloutLog(runs_on=runs_on)
    given = {"debounce_s": 0, "drain_timeout_s": 100, "drain_retry_s": 30, "apply_timeout_s": 60, **fields}
    log.record("worker", config_pool(**given), 0)
    for age, node in enumerate(nodes):
        log.node(node, 1, created_s=age, **OLD)
    log.record("sysctl", machine_config(config_file(content="1\n")), 10)
    return log


def test_a_rendering_waits_until_no_input_has_changed_for_so_long() -> None:
    log = rollout("n1", debounce_s=30)
    assert log.pass_time(35) == []
    log.record("sysctl", machine_config(config_file(content="2\n")), 38)
    assert log.pass_time(45) == []
    assert log.pass_time(67) == []
    assert len(data_of(log.pass_time(68), MachineConfigRendered)) == 1
    assert log.pass_time(200) != []  # The drain of the node, not the rendering again.
    assert not data_of(log.pass_time(300), MachineConfigRendered)


def test_the_wait_survives_a_restart() -> None:
    log = rollout("n1", debounce_s=30)
    log.fold = reloaded(log.fold)
    assert log.pass_time(39) == []
    assert len(data_of(log.pass_time(40), MachineConfigRendered)) == 1


def test_a_drain_that_does_not_finish_is_reported_at_each_interval_with_what_blocks_it() -> None:
    log = rollout("n1")
    intent = log.drains("n1", 11)
    pod = LeavingPod(namespace="ns", pod="p", state="blocked by ns/budget")
    log.record("n1", NodeDrainProgressed(intent=intent, left=2, pods=(pod,)), 12)
    assert log.pass_time(39) == []
    (first,) = data_of(log.pass_time(40), NodeConfigDrainFailed)
    assert (first.attempt, first.left, first.message, first.is_stuck) == (1, 2, "ns/p: blocked by ns/budget", False)
    (second,) = data_of(log.pass_time(70), NodeConfigDrainFailed)
    assert (second.attempt, log.row("n1").drain_retries) == (2, 2)
    assert log.last(NodeMaintenanceRequested).time == at(10), "it is drained, and needs no other request"


def test_a_drain_that_takes_longer_than_the_time_out_is_stuck_and_goes_on() -> None:
    log = rollout("n1")
    log.drains("n1", 11)
    for second in (40, 70, 100, 111):
        stuck = log.pass_time(second)
    assert [one.is_stuck for one in data_of(stuck, NodeConfigDrainFailed)] == [True]
    assert log.row("n1").reason == "DrainStuck"
    assert '"status":"True","type":"DrainStuck"' in log.status("worker").conditions
    assert phases(log.record("n1", _finished(log), 120)) == [("n1", "Applying")]
    assert '"status":"False","type":"DrainStuck"' in log.status("worker").conditions


def _finished(log: RolloutLog) -> NodeDrainFinished:
    return NodeDrainFinished(intent=log.last(NodeDrainChanged).id)


def test_a_node_that_somebody_uncordons_is_requested_again_at_the_next_interval() -> None:
    log = rollout("n1")
    log.drains("n1", 11)
    assert log.uncordoned_by_hand("n1", 15) == []
    again = log.pass_time(40)
    assert len(data_of(again, NodeMaintenanceRequested)) == 1
    assert data_of(again, NodeConfigDrainFailed)[0].message == "NotCordoned: "
    assert phases(log.drained("n1", 41)) == [("n1", "Applying")]


def test_a_drain_that_the_maintenance_service_gives_up_is_requested_again() -> None:
    log = rollout("n1")
    log.drains("n1", 11)
    log.record("n1", NodeDrainChanged(uid="uid-n1"), 12)
    assert len(data_of(log.pass_time(40), NodeMaintenanceRequested)) == 1


def test_a_request_that_nobody_answers_is_made_again_once_in_an_interval() -> None:
    log = rollout("n1")
    log.isolation_fails("n1", 12, unschedulable=True)
    assert len(data_of(log.pass_time(40), NodeMaintenanceRequested)) == 1
    assert log.pass_time(69) == []
    assert len(data_of(log.pass_time(70), NodeMaintenanceRequested)) == 1


def test_a_finished_drain_of_an_earlier_request_does_not_count() -> None:
    log = rollout("n1")
    log.drains("n1", 11)
    early = _finished(log)
    log.uncordoned_by_hand("n1", 15)
    log.pass_time(40)
    assert log.record("n1", early, 41) == []
    assert log.row("n1").phase == "Draining"


def test_an_agent_that_is_not_done_in_time_fails_and_recovers_when_it_is() -> None:
    log = rollout("n1")
    log.drained("n1", 20)
    assert log.pass_time(79) == []
    assert phases(log.pass_time(80)) == [("n1", "Failed")]
    assert (log.row("n1").reason, log.row("n1").cordoned) == ("ApplyTimeout", True)
    assert log.status("worker").degraded_count == 1
    assert released(log.reports("n1", 90)) == ["n1"]


def test_an_agent_that_waits_to_reboot_has_longer() -> None:
    log = rollout("n1", reboot_min_interval_s=500)
    log.drained("n1", 20)
    log.reports("n1", 30, state="rebooting", current_revision="rendered-worker-old")
    assert log.pass_time(579) == []
    assert phases(log.pass_time(580)) == [("n1", "Failed")]


def test_a_report_that_comes_before_the_end_of_the_wait_counts() -> None:
    log = rollout("n1")
    log.drained("n1", 20)
    log.fold.due(at(80))
    (ended,) = log.fold.take_decided()
    log.reports("n1", 79)
    log._append(ended, at(80))
    assert log.row("n1").phase == "Idle"


def test_an_agent_that_had_nothing_to_do_for_so_long_is_at_rest() -> None:
    log = rollout("n1")
    log.drained("n1", 20)
    log.reports("n1", 21)
    log.isolated("n1", 22, unschedulable=False)
    log.record("sysctl", machine_config(config_file(content="2\n")), 30)
    log.drained("n1", 31)
    log.record("sysctl", machine_config(config_file(content="1\n")), 32)
    assert log.row("n1").phase == "Applying"
    assert released(log.pass_time(92)) == ["n1"]


def test_a_node_that_is_not_given_back_is_released_again() -> None:
    log = rollout("n1", "n2")
    log.record("worker", config_pool(debounce_s=0, drain_retry_s=30, paused=True), 12)
    log.isolation_fails("n1", 20, unschedulable=False)
    assert log.pass_time(49) == []
    assert released(log.pass_time(50)) == ["n1"]
    log.isolated("n1", 51, unschedulable=False)
    assert log.pass_time(500) == []


def test_a_node_that_nobody_gave_back_in_time_is_released_again() -> None:
    log = rollout("n1")
    log.record("worker", MachineConfigPoolGone(), 12)
    log.isolated("n1", 13)
    log.record("n1", NodeIsolationChanged.model_validate({"uid": "uid-n1", "isolation": {}}), 14)
    expired = NodeIsolationSuperseded(intent=log.last(NodeIsolationChanged).id, reason="Expired")
    log.record("n1", expired, 20)
    assert released(log.pass_time(50)) == ["n1"]


def test_a_node_that_was_never_set_aside_is_available_again_after_a_while() -> None:
    log = rollout("n1")
    log.record("worker", config_pool(debounce_s=0, drain_retry_s=30, paused=True), 12)
    log.record("worker", config_pool(debounce_s=0, drain_retry_s=30, paused=True, max_unavailable="2"), 13)
    held = log.state.maintenance.get("n1")
    assert held is not None
    assert held.may_be_cordoned
    log.pass_time(3611)
    assert log.state.maintenance.rows["n1"].may_be_cordoned
    log.pass_time(3612)
    assert not log.state.maintenance.rows["n1"].may_be_cordoned


def test_what_is_left_of_a_node_that_is_gone_is_forgotten() -> None:
    log = rollout("n1")
    log.record("n1", NodeMachineGone(), 12)
    log.record("n1", NodeLabelled(uid="uid-n1", labels={}), 13)
    log.pass_time(4000)
    assert not log.state.maintenance.rows


def test_nothing_is_left_of_a_node_that_goes_after_its_update() -> None:
    log = rollout("n1")
    log.drained("n1", 20)
    log.reports("n1", 21)
    log.isolated("n1", 22, unschedulable=False)
    log.record("n1", NodeMachineGone(), 30)
    log.record("n1", NodeUnlabelled(), 31)
    log.record("n1", NodeConfigReported(state="done", current_revision="rendered-worker-old"), 32)
    assert not log.state.maintenance.rows
    assert not log.state.node.rows
    assert not log.state.uses("rendered-worker-old")


def test_nodes_that_are_to_be_given_back_take_their_place_in_the_budget_until_they_are() -> None:
    log = rollout("n1", "n2")
    log.drained("n1", 20)
    assert released(log.reports("n1", 21)) == ["n1"]
    assert log.row("n2").phase == "Idle"
    log.record("n1", machine("n1", unschedulable=False, **OLD), 22)
    assert log.row("n2").phase == "Idle"
    assert phases(log.isolated("n1", 23, unschedulable=False)) == [("n2", "Draining")]


def test_a_service_says_where_it_runs_when_that_changes() -> None:
    log = RolloutLog(runs_on="n1")
    (placed,) = data_of(log.pass_time(1), RolloutControllerPlaced)
    assert placed.node == "n1"
    assert log.pass_time(2) == []
    again = RolloutLog(runs_on="")
    assert again.pass_time(1) == []


def test_a_node_is_given_back_to_which_the_service_moves() -> None:
    log = rollout("n1", runs_on="n1")
    assert log.row("n1").cordoned
    moved = log.pass_time(12)
    assert released(moved) == ["n1"]
    assert (log.row("n1").phase, log.row("n1").cordoned) == ("Applying", False)


def test_a_pool_that_goes_right_after_a_restart_gives_its_nodes_back() -> None:
    log = rollout("n1")
    log.fold = reloaded(log.fold)
    assert released(log.record("worker", MachineConfigPoolGone(), 12)) == ["n1"]


def test_a_revision_that_the_node_of_another_pool_lets_go_of_is_withdrawn() -> None:
    log = RolloutLog()
    for pool in ("a", "b"):
        log.record(pool, config_pool(debounce_s=0, history_limit=1, node_selector={"labels": {"pool": pool}}), 0)
    log.record("sysctl", machine_config(config_file(content="1\n")), 1)
    log.node("n1", 2, labels={"pool": "a"})
    log.reports("n1", 3)
    first = log.row("n1").current_revision
    log.record("n1", NodeLabelled(uid="uid-n1", labels={"pool": "b"}), 4)
    log.record("sysctl", machine_config(config_file(content="2\n")), 5)
    assert first in log.state.rendered.rows
    log.drained("n1", 6)
    log.reports("n1", 7)
    assert first not in log.state.rendered.rows


def test_a_replay_of_waits_decides_the_same() -> None:
    log = rollout("n1", "n2")
    log.drains("n1", 11)
    for second in (40, 70, 111):
        log.pass_time(second)
    again = new_fold()
    again.apply_all(log.messages())
    assert rows_of(again) == rows_of(log.fold)
    assert not again.outstanding()


def test_an_isolation_of_before_the_request_gives_nothing_back() -> None:
    log = rollout("n1", "n2")
    early = NodeIsolationChanged.model_validate({"uid": "uid-n1", "isolation": {}})
    log.record("n1", early, 11)
    log.record("n1", NodeIsolationApplied(intent=log.last(NodeIsolationChanged).id, written=True), 12)
    log.record("worker", config_pool(debounce_s=0, paused=True), 13)
    assert log.state.maintenance.rows["n1"].may_be_cordoned
    log.isolated("n1", 14)
    log.isolated("n1", 15, unschedulable=False)
    assert not log.state.maintenance.rows["n1"].may_be_cordoned
