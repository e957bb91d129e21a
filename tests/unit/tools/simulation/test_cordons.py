"""The fleet's scheduler follows the cordons of its Nodes, and of no others."""

from random import Random

import pytest

from gpuledger.edge.kube.reflector import ChangeBatch, Changed, ChangeType, Listed
from gpuledger.tools.simulation.cordons import Cordons
from gpuledger.tools.simulation.decide import FleetPlan
from gpuledger.tools.simulation.fleet import Fleet, FleetSpec
from gpuledger.tools.simulation.nodes import NodeChanges, SeenNode, seen_node
from gpuledger.tools.simulation.workload import Rates
from support.simulating import new_fleet

FLEET = Fleet(FleetSpec(2, 1), 1)
ONE, OTHER = FLEET.nodes


def changed(kind: ChangeType, node: str, *, cordoned: bool) -> NodeChanges:
    return ChangeBatch((Changed(kind, SeenNode(node, cordoned)),), "2")


@pytest.mark.parametrize(
    ("changes", "cordoned"),
    [
        ([Listed([SeenNode(ONE, True), SeenNode(OTHER, False)], "1")], {ONE}),
        ([Listed([SeenNode(ONE, True)], "1"), Listed([SeenNode(OTHER, True)], "2")], {OTHER}),
        ([changed("MODIFIED", ONE, cordoned=True), changed("MODIFIED", ONE, cordoned=False)], set()),
        ([changed("MODIFIED", ONE, cordoned=True), changed("DELETED", ONE, cordoned=True)], set()),
        ([changed("ADDED", "another", cordoned=True)], set()),
    ],
    ids=["listed", "gone meanwhile", "uncordoned", "deleted", "not of the fleet"],
)
def test_the_plan_follows_the_nodes(changes: list[NodeChanges], cordoned: set[str]) -> None:
    plan = FleetPlan(FLEET, Random(1), Rates(), new_fleet(FLEET))
    Cordons(FLEET, plan).follow(changes)
    assert plan.allocation.cordoned == cordoned


@pytest.mark.parametrize(("spec", "cordoned"), [({}, False), ({"unschedulable": True}, True)])
def test_a_node_says_whether_it_is_cordoned(spec: dict[str, bool], cordoned: bool) -> None:
    assert seen_node({"metadata": {"name": "n"}, "spec": spec}) == SeenNode("n", cordoned)
