"""A simulated node that reboots is down for a while, and no pod comes to it meanwhile."""

from datetime import UTC, datetime
from random import Random

from gpuledger.tools.simulation import objects
from gpuledger.tools.simulation.allocation import SimulatedPod
from gpuledger.tools.simulation.decide import FleetPlan, PodScheduled
from gpuledger.tools.simulation.fleet import Fleet, FleetSpec
from gpuledger.tools.simulation.hardware import GPU_RESOURCE, WHOLE_MILLI
from gpuledger.tools.simulation.nodes import SeenNode, seen_node
from gpuledger.tools.simulation.reboots import NodeBooted, NodeWentDown
from gpuledger.tools.simulation.workload import Rates
from support.simulating import new_fleet

FLEET = Fleet(FleetSpec(2, 1), 1)
ONE, OTHER = FLEET.nodes
_NOW = datetime(2026, 1, 2, tzinfo=UTC)
QUIET = Rates(load=1e-6, failures_per_1000_node_days=0, reboot_s=30.0)


def pod(name: str) -> SimulatedPod:
    return SimulatedPod(name, "team", GPU_RESOURCE, 1, WHOLE_MILLI, 1e6, "Succeeded", of_user=True)


def plan() -> FleetPlan:
    plan = FleetPlan(FLEET, Random(1), QUIET, new_fleet(FLEET))
    plan.advance(0.0, 100)
    return plan


def test_a_node_is_down_until_it_has_booted() -> None:
    fleet_plan = plan()
    assert fleet_plan.reboot(ONE) == [NodeWentDown(0.0, ONE)]
    assert fleet_plan.reboot(ONE) == [], "it is down already"
    assert fleet_plan.allocation.down == {ONE}
    happened = [one for one in fleet_plan.advance(60.0, 100) if isinstance(one, NodeBooted | NodeWentDown)]
    assert happened == [NodeBooted(30.0, ONE)]
    assert fleet_plan.allocation.down == set()
    assert fleet_plan.reboot(ONE) == [NodeWentDown(60.0, ONE)], "it may reboot again"


def test_no_pod_comes_to_a_node_that_is_down_and_the_pending_ones_come_once_it_is_up() -> None:
    fleet_plan = plan()
    fleet_plan.reboot(ONE)
    scheduled = [one for name in ("a", "b") for one in fleet_plan.submitted(pod(name))]
    assert [one.running_pod.node for one in scheduled if isinstance(one, PodScheduled)] == [OTHER]
    after = [one for one in fleet_plan.advance(60.0, 100) if isinstance(one, NodeBooted | PodScheduled)]
    assert isinstance(after[0], NodeBooted)
    assert isinstance(after[1], PodScheduled)
    assert (after[1].running_pod.pod.name, after[1].running_pod.node) == ("b", ONE)


def test_a_kubelet_reports_the_boot_and_whether_the_node_is_up() -> None:
    node = FLEET.nodes[ONE]
    found = {}
    for is_up in (True, False):
        status = objects.node_status(node, (), (), objects.Boot("third", _NOW, is_up), _NOW)["status"]
        assert status["nodeInfo"]["bootID"] == "third"
        found[is_up] = {one["type"]: one["status"] for one in status["conditions"]}["Ready"]
    assert found == {True: "True", False: "False"}


def test_a_node_is_read_with_its_annotations_of_machine_configuration_alone() -> None:
    annotations = {"mco.in-cloud.io/pool": "gpu", "example.com/other": "1"}
    live = {"metadata": {"name": "n", "annotations": annotations}, "spec": {"unschedulable": True}}
    assert seen_node(live) == SeenNode("n", cordoned=True, annotations={"mco.in-cloud.io/pool": "gpu"})
    assert seen_node({"metadata": {"name": "n"}, "spec": {}}) == SeenNode("n")
