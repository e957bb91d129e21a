"""The course of a rollout: who is updated when, one step after the other."""

from typing import Any

import pytest

from gpuledger.deciders.rollout.budget import max_unavailable
from gpuledger.events.machine_config import (
    MachineConfigGone,
    MachineConfigPoolChanged,
    MachineConfigPoolGone,
    MachineConfigPoolWithdrawn,
    MachineConfigRendered,
    MachineConfigRenderedWithdrawn,
    NodeConfigChanged,
    NodeConfigReported,
    NodeMachineGone,
)
from gpuledger.events.maintenance import NodeMaintenanceReleased, NodeMaintenanceRequested
from gpuledger.events.node import NodeLabelled
from gpuledger.events.pod import PodObserved
from support.events import rows_of
from support.machine_configs import config_file, config_pool, machine_config
from support.rollout import RolloutLog, data_of, machine, new_fold, phases, released

OLD: dict[str, Any] = {"current_revision": "rendered-worker-old", "agent_state": "done"}
"""The annotations of a node that some older configuration was applied to."""


def worker(**fields: Any) -> Any:
    return config_pool(**{"debounce_s": 0, **fields})


def rollout(*nodes: str, **fields: Any) -> RolloutLog:
    """A pool with nodes that have an old configuration, and a new one that is rolled out from second 10 on."""
    log = RolloutLog()
    log.record("worker", worker(**fields), 0)
    for age, node in enumerate(nodes):
        log.node(node, 1, created_s=age, **OLD)
    log.record("sysctl", machine_config(config_file(content="1\n")), 10)
    return log


def change(log: RolloutLog, content: str, at_s: float) -> list[Any]:
    """Another content of the configuration; what is decided then."""
    return log.record("sysctl", machine_config(config_file(content=content)), at_s)


def test_a_node_is_set_aside_and_drained_before_it_is_to_have_anything_new() -> None:
    log = rollout("n1", "n2")
    request = log.last(NodeMaintenanceRequested)
    assert isinstance(request.data, NodeMaintenanceRequested)
    assert (request.subject, request.data.owner, request.data.drain and request.data.drain.mode) == (
        "n1",
        "rollout/worker",
        "Immediate",
    )
    assert (log.row("n1").phase, log.row("n1").desired_revision) == ("Draining", None)
    assert phases(log.drained("n1", 20)) == [("n1", "Applying")]
    assert log.row("n1").desired_revision == log.status("worker").target_revision
    assert not phases(log.reports("n1", 21, state="applying", current_revision="rendered-worker-old"))
    assert phases(log.reports("n1", 22)) == [("n1", "Idle")]
    assert not phases(log.reports("n1", 22))
    assert phases(log.isolated("n1", 23, unschedulable=False)) == [("n2", "Draining")]


def test_all_nodes_have_it_in_the_end() -> None:
    log = rollout("n1", "n2", "n3", max_unavailable="50%")
    assert [log.row(node).phase for node in ("n1", "n2", "n3")] == ["Draining", "Draining", "Idle"]
    for node, second in (("n2", 20), ("n1", 30), ("n3", 40)):
        log.drained(node, second)
        log.reports(node, second + 1)
        log.isolated(node, second + 2, unschedulable=False)
    status = log.status("worker")
    assert (status.machine_count, status.ready_count, status.unavailable) == (3, 3, 0)
    assert status.current_revision == status.target_revision == status.last_successful_revision
    assert '{"message":"3 of 3 nodes updated","reason":"RolloutComplete","status":"True","type":"Ready"}' in (
        status.conditions
    )


@pytest.mark.parametrize(
    ("given", "nodes", "most"),
    [
        ("1", 10, 1),
        ("0", 10, 1),
        ("3", 2, 3),
        ("25%", 10, 3),
        ("10%", 10, 1),
        ("0%", 10, 1),
        ("100%", 7, 7),
        ("1%", 0, 1),
    ],
)
def test_a_percentage_is_rounded_up_and_one_node_may_always_be_unavailable(given: str, nodes: int, most: int) -> None:
    assert max_unavailable(given, nodes) == most


def test_zones_come_one_after_the_other_the_oldest_node_first_and_those_without_a_zone_last() -> None:
    log = RolloutLog()
    log.record("worker", worker(paused=True, max_unavailable="9"), 0)
    zone = "topology.kubernetes.io/zone"
    for node, of, age in (("a", "", 0), ("b", "z2", 1), ("c", "z1", 3), ("d", "z1", 2)):
        log.node(node, 1, labels={zone: of} if of else {}, created_s=age, **OLD)
    log.record("sysctl", machine_config(config_file()), 2)
    begun = log.record("worker", worker(max_unavailable="9"), 3)
    assert [node for node, phase in phases(begun) if phase == "Draining"] == ["d", "c", "b", "a"]


def test_idle_nodes_come_first_where_that_is_preferred() -> None:
    log = RolloutLog()
    log.record("worker", worker(prefers_idle=True), 0)
    for node in ("n1", "n2"):
        log.node(node, 1, **OLD)
    log.record("ns/p", PodObserved(uid="p", node="n1", requests={"nvidia.com/gpu": 1}), 2, source="/watchers/pods")
    assert ("n2", "Draining") in phases(log.record("sysctl", machine_config(config_file()), 3))


def test_a_new_node_is_not_drained_and_takes_its_place_in_the_budget() -> None:
    log = RolloutLog()
    log.record("worker", worker(), 0)
    log.record("sysctl", machine_config(config_file()), 1)
    assert phases(log.node("n1", 2))[-1] == ("n1", "Applying")
    assert not any(isinstance(one.data, NodeMaintenanceRequested) for one, _ in log.log)
    log.node("n2", 3)
    assert log.row("n2").phase == "Idle"
    assert ("n2", "Applying") in phases(log.reports("n1", 4))


def test_a_new_node_that_runs_something_is_drained() -> None:
    log = RolloutLog()
    log.record("worker", worker(), 0)
    log.record("sysctl", machine_config(config_file()), 1)
    log.record("ns/p", PodObserved(uid="p", node="n1", requests={"nvidia.com/gpu": 1}), 2, source="/watchers/pods")
    assert phases(log.node("n1", 3))[-1] == ("n1", "Draining")


@pytest.mark.parametrize(
    ("strategy", "required", "phase"),
    [("IfRequired", True, "Draining"), ("IfRequired", False, "Applying"), ("Never", True, "Applying")],
)
def test_a_new_node_that_reboots_is_drained(strategy: str, required: bool, phase: str) -> None:
    """A cluster that takes up machine configuration has nodes without a revision that run pods without devices."""
    log = RolloutLog()
    log.record("worker", worker(reboot_strategy=strategy), 0)
    log.record("sysctl", machine_config(config_file(), reboot_required=required), 1)
    assert phases(log.node("n1", 2))[-1] == ("n1", phase)


def test_the_node_of_the_service_itself_is_neither_cordoned_nor_drained() -> None:
    log = RolloutLog(runs_on="n1")
    log.pass_time(0)
    log.record("worker", worker(), 0)
    log.node("n1", 1, **OLD)
    assert phases(log.record("sysctl", machine_config(config_file()), 2)) == [("n1", "Applying")]
    assert not log.row("n1").cordoned
    assert log.pass_time(3) == []


def test_a_node_that_somebody_cordoned_counts() -> None:
    log = RolloutLog()
    log.record("worker", worker(), 0)
    for node in ("n1", "n2"):
        log.node(node, 1, **OLD)
    log.record("n2", machine("n2", unschedulable=True, **OLD), 2)
    assert phases(log.record("sysctl", machine_config(config_file()), 3)) == [("n2", "Draining")]
    assert log.status("worker").unavailable == 1


def test_a_paused_pool_gives_back_what_drains_and_finishes_what_applies() -> None:
    log = rollout("n1", "n2", max_unavailable="2")
    log.drained("n1", 20)
    paused = log.record("worker", worker(max_unavailable="2", paused=True), 21)
    assert released(paused) == ["n2"]
    assert (log.row("n1").phase, log.row("n2").phase, log.row("n2").reason) == ("Applying", "Idle", "Paused")
    assert log.status("worker").unavailable == 0
    assert released(log.reports("n1", 22)) == ["n1"]
    for node in ("n1", "n2"):
        log.isolated(node, 23, unschedulable=False)
    assert ("n2", "Draining") in phases(log.record("worker", worker(max_unavailable="2"), 24))


def test_another_target_is_given_to_nodes_that_apply_and_drains_go_on_towards_it() -> None:
    log = rollout("n1", "n2", max_unavailable="2")
    log.drained("n1", 20)
    first = log.row("n1").desired_revision
    changed = change(log, "2\n", 21)
    assert phases(changed) == [("n1", "Applying")]
    assert log.row("n1").desired_revision == log.status("worker").target_revision != first
    assert not phases(log.reports("n1", 22, revision=first, current_revision=first))
    log.drained("n2", 23)
    assert log.row("n2").desired_revision == log.status("worker").target_revision


def test_a_drain_towards_what_the_node_has_is_given_up() -> None:
    log = rollout("n1")
    log.drained("n1", 20)
    log.reports("n1", 21)
    log.isolated("n1", 22, unschedulable=False)
    change(log, "2\n", 23)
    assert log.row("n1").phase == "Draining"
    back = change(log, "1\n", 24)
    assert released(back) == ["n1"]
    assert log.row("n1").phase == "Idle"


def test_an_error_fails_the_update_until_the_agent_succeeds() -> None:
    log = rollout("n1", "n2")
    log.drained("n1", 20)
    failed = log.reports("n1", 21, state="error", error="no space", current_revision="rendered-worker-old")
    assert phases(failed) == [("n1", "Failed")]
    assert (log.row("n1").message, log.row("n1").cordoned) == ("no space", True)
    assert log.status("worker").degraded_count == 1
    assert "NodesFailed" in log.status("worker").conditions
    assert released(log.reports("n1", 22)) == ["n1"]
    assert log.status("worker").degraded_count == 0


def test_an_error_about_another_revision_fails_nothing() -> None:
    log = rollout("n1")
    log.drained("n1", 20)
    first = log.row("n1").desired_revision
    log.reports("n1", 21, state="error", error="no space", current_revision="rendered-worker-old")
    assert phases(change(log, "2\n", 22)) == [("n1", "Applying")]
    late = log.reports("n1", 23, state="error", revision=first, current_revision="rendered-worker-old")
    assert not phases(late)


def test_a_pinned_revision_is_rolled_out_and_what_is_newest_again_without_it() -> None:
    log = rollout("n1")
    first = log.status("worker").target_revision
    change(log, "2\n", 11)
    newest = log.status("worker").target_revision
    log.record("worker", worker(pinned_revision=first), 12)
    assert log.status("worker").target_revision == first
    log.record("worker", worker(pinned_revision="rendered-worker-none"), 13)
    assert log.status("worker").target_revision == newest
    assert "PinnedRevisionMissing" in log.status("worker").conditions


def test_the_configuration_of_before_is_the_newest_again_under_its_name() -> None:
    log = rollout("n1")
    first = log.status("worker").target_revision
    change(log, "2\n", 11)
    rendered = data_of(change(log, "1\n", 12), MachineConfigRendered)
    assert [one.name for one in rendered] == [first]
    assert log.status("worker").target_revision == first


def test_the_history_has_what_is_in_use_and_the_newest() -> None:
    log = rollout("n1", history_limit=1)
    first = log.status("worker").target_revision
    log.drained("n1", 20)
    log.reports("n1", 21)
    log.isolated("n1", 22, unschedulable=False)
    change(log, "2\n", 23)
    second = log.status("worker").target_revision
    assert set(log.state.rendered.rows) == {first, second}
    gone = data_of(change(log, "3\n", 24), MachineConfigRenderedWithdrawn)
    assert [one.name for one in gone] == [second]


def test_what_cannot_be_rendered_leaves_the_target_as_it_is() -> None:
    log = rollout("n1")
    before = log.status("worker").target_revision
    log.record("broken", machine_config(config_file("/proc/x")), 11)
    assert log.status("worker").target_revision == before
    assert "RenderFailed" in log.status("worker").conditions
    assert "broken" in log.status("worker").conditions
    log.record("broken", MachineConfigGone(), 12)
    assert "RenderFailed" not in log.status("worker").conditions


def test_nothing_to_apply_drains_no_node() -> None:
    log = RolloutLog()
    log.record("worker", worker(), 0)
    assert not data_of(log.node("n1", 1, **OLD), MachineConfigRendered)
    assert (log.status("worker").target_revision, log.row("n1").phase) == (None, "Idle")


def test_a_node_of_two_pools_is_not_updated_and_both_say_so() -> None:
    log = rollout("n1", "n2", max_unavailable="2")
    log.drained("n1", 20)
    both = log.record("other", worker(), 21)
    assert released(both) == ["n2"]
    assert (log.row("n1").phase, log.row("n2").phase) == ("Applying", "Idle")
    for pool in ("worker", "other"):
        assert "n1 is in other, worker" in log.status(pool).conditions
    assert released(log.reports("n1", 22)) == ["n1"]
    assert log.row("n2").pool is None
    apart = log.record("other", MachineConfigPoolGone(), 30)
    assert ("n2", "Idle") not in phases(apart)
    assert log.row("n2").pool == "worker"


def test_a_pool_whose_nodes_have_the_target_is_not_ready_where_another_has_them_too() -> None:
    log = rollout("n1")
    log.drained("n1", 20)
    log.reports("n1", 21)
    log.record("other", worker(), 22)
    ready = '{"message":"1 of 1 nodes updated","reason":"NodesInSeveralPools","status":"False","type":"Ready"}'
    assert ready in log.status("worker").conditions


def test_a_node_that_leaves_its_pool_is_given_back_and_nobodys() -> None:
    log = rollout("n1", node_selector={"labels": {}})
    log.record("worker", worker(node_selector={"labels": {"gpu": "yes"}}), 11)
    assert (log.row("n1").phase, log.row("n1").decided_pool, log.row("n1").desired_revision) == ("Idle", None, None)
    assert log.last(NodeMaintenanceReleased).subject == "n1"
    back = log.record("n1", NodeLabelled(uid="uid-n1", labels={"gpu": "yes"}), 12)
    assert data_of(back, NodeConfigChanged)[0].pool == "worker"


def test_a_pool_that_goes_takes_its_configurations_with_it() -> None:
    log = rollout("n1")
    gone = log.record("worker", MachineConfigPoolGone(), 11)
    assert released(gone) == ["n1"]
    assert data_of(gone, MachineConfigPoolWithdrawn)
    assert len(data_of(gone, MachineConfigRenderedWithdrawn)) == 1
    assert not log.state.rendered.rows
    assert not log.state.status.rows


def test_the_request_for_a_node_that_is_gone_is_released() -> None:
    log = rollout("n1", "n2")
    gone = log.record("n1", NodeMachineGone(), 11)
    assert released(gone) == ["n1"]
    assert phases(gone) == [("n2", "Draining")]


def test_a_machine_that_is_made_anew_begins_anew() -> None:
    log = rollout("n1")
    anew = log.record("n1", machine("n1", uid="another"), 11)
    assert released(anew) == ["n1"]
    assert (log.row("n1").uid, log.row("n1").current_revision) == ("another", None)


def test_what_is_imported_leads_to_nothing() -> None:
    log = RolloutLog()
    assert log.record("worker", worker(), 0, imported=True) == []
    assert not log.state.pool.rows


def test_an_old_annotation_beside_a_new_cordon_takes_nothing_back() -> None:
    log = rollout("n1")
    log.drained("n1", 20)
    log.reports("n1", 21)
    log.record("n1", machine("n1", unschedulable=True, **OLD), 22)
    assert log.row("n1").current_revision == log.status("worker").target_revision


def test_the_annotations_do_where_no_agent_of_the_node_relays() -> None:
    log = rollout("n1")
    log.drained("n1", 20)
    desired = log.row("n1").desired_revision
    done = log.record("n1", machine("n1", unschedulable=True, current_revision=desired, agent_state="done"), 21)
    assert released(done) == ["n1"]


def test_a_report_of_before_the_last_one_changes_nothing() -> None:
    log = rollout("n1")
    log.drained("n1", 20)
    log.reports("n1", 25)
    late = NodeConfigReported(state="applying", revision=log.row("n1").desired_revision)
    assert log.record("n1", late, 24, recorded_s=30) == []


def test_every_change_of_a_pool_is_decided_once() -> None:
    log = rollout("n1")
    count = sum(isinstance(one.data, MachineConfigPoolChanged) for one, _ in log.log)
    log.record("worker", worker(), 11)
    assert sum(isinstance(one.data, MachineConfigPoolChanged) for one, _ in log.log) == count


def test_a_replay_decides_the_same() -> None:
    log = rollout("n1", "n2")
    log.drained("n1", 20)
    log.reports("n1", 21)
    log.isolated("n1", 22, unschedulable=False)
    again = new_fold()
    again.apply_all(log.messages())
    assert rows_of(again) == rows_of(log.fold)
    assert not again.outstanding()
