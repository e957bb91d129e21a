"""The scheduler's part in cordons: no pod of the fleet comes to a cordoned node. Pure."""

from collections.abc import Iterable
from typing import NamedTuple

from gpuledger.edge.kube.client import Object
from gpuledger.edge.kube.reflector import ChangeBatch, Listed
from gpuledger.tools.simulation.decide import FleetPlan, Happening
from gpuledger.tools.simulation.fleet import Fleet


class NodeCordon(NamedTuple):
    """A Node, and whether it is cordoned."""

    node: str
    cordoned: bool


CordonChanges = Listed[NodeCordon] | ChangeBatch[NodeCordon]


def cordon_of(live: Object) -> NodeCordon:
    """The relevant part of a Node."""
    return NodeCordon(live["metadata"]["name"], bool(live["spec"].get("unschedulable")))


class Cordons:
    """Brings the plan to what the fleet's Nodes say."""

    def __init__(self, fleet: Fleet, plan: FleetPlan) -> None:
        self._nodes = fleet.nodes
        self._plan = plan

    def follow(self, changes: Iterable[CordonChanges]) -> list[Happening]:
        """The consequences of these changes; a Node that is gone has no cordon."""
        happenings: list[Happening] = []
        for one in changes:
            for node, cordoned in self._present(one):
                happenings += self._set(node, cordoned=cordoned)
        return happenings

    def _present(self, changes: CordonChanges) -> list[NodeCordon]:
        if isinstance(changes, Listed):
            there = {one.node for one in changes.objects}
            gone = self._plan.allocation.cordoned - there
            return [*changes.objects, *(NodeCordon(node, cordoned=False) for node in sorted(gone))]
        return [NodeCordon(one.object.node, one.object.cordoned and one.type != "DELETED") for one in changes.changes]

    def _set(self, node: str, *, cordoned: bool) -> list[Happening]:
        if node not in self._nodes or cordoned == (node in self._plan.allocation.cordoned):
            return []
        if not cordoned:
            return self._plan.uncordon(node)
        self._plan.cordon(node)
        return []
