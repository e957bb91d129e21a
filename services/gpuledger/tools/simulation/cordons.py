"""The scheduler's part in cordons: no pod of the fleet comes to a cordoned node. Pure."""

from collections.abc import Iterable

from gpuledger.tools.simulation.decide import FleetPlan, Happening
from gpuledger.tools.simulation.fleet import Fleet
from gpuledger.tools.simulation.nodes import NodeChanges, present_nodes


class Cordons:
    """Brings the plan to what the fleet's Nodes say."""

    def __init__(self, fleet: Fleet, plan: FleetPlan) -> None:
        self._nodes = fleet.nodes
        self._plan = plan

    def follow(self, changes: Iterable[NodeChanges]) -> list[Happening]:
        """The consequences of these changes; a Node that is gone has no cordon."""
        happenings: list[Happening] = []
        for one in changes:
            for seen in present_nodes(one, self._plan.allocation.cordoned):
                happenings += self._set(seen.node, cordoned=seen.cordoned)
        return happenings

    def _set(self, node: str, *, cordoned: bool) -> list[Happening]:
        if node not in self._nodes or cordoned == (node in self._plan.allocation.cordoned):
            return []
        if not cordoned:
            return self._plan.uncordon(node)
        self._plan.cordon(node)
        return []
