"""The simulated agents' part in pools: they set devices up, and take them back once no pod of the fleet holds them.

A card that is to leave its pool is offered to no further pod meanwhile, so that it does get free.
"""

from collections.abc import Iterable

from gpuledger.api.pool_ref import PoolRef
from gpuledger.edge.kube.client import Object
from gpuledger.tools.simulation.agents import Agents
from gpuledger.tools.simulation.decide import Happening, Plan
from gpuledger.tools.simulation.fleet import Fleet, Place
from gpuledger.tools.simulation.kubernetes import Cluster
from gpuledger.tools.simulation.pools import Applied, Assignments, Device, SeenDevices, set_up


class Pooling:
    """Follows the GPUDevices of the fleet, and has their agents answer."""

    def __init__(self, fleet: Fleet, plan: Plan, cluster: Cluster, agents: Agents) -> None:
        self._fleet = fleet
        self._plan = plan
        self._cluster = cluster
        self._agents = agents
        self._assignments = Assignments(fleet)
        self._withdrawn: dict[str, Place] = {}

    async def follow(self, seen: Iterable[SeenDevices]) -> None:
        """Set up what is to be set up, after what was seen; each pool is looked up once."""
        asked: dict[PoolRef, list[Device]] = {}
        for device in (device for one in seen for device in self._assignments.follow(one)):
            assert device.pool is not None, "only a device of a pool is set up"
            asked.setdefault(device.pool, []).append(device)
        for ref, devices in asked.items():
            pool = await self._cluster.pool(ref.api_resource, ref.name, ref.namespace)
            if pool is not None:
                for device in devices:
                    await self._set_up(device, ref, pool)

    async def release(self) -> list[Happening]:
        """Take back what nothing holds any more; what follows from that for the pods that wait."""
        self._withdraw()
        for device in self._assignments.free(self._holders):
            assert device.pool is not None, "only a device of a pool leaves one"
            await self._agents.pool_released(device.node, device.name, device.pool.id)
        return self._offer()

    async def _set_up(self, device: Device, ref: PoolRef, pool: Object) -> None:
        came = set_up(pool, self._fleet.nodes[device.node].model.mig_profiles)
        if isinstance(came, Applied):
            await self._agents.pool_applied(device.node, device.name, ref.id, came.partitions)
        else:
            await self._agents.pool_refused(device.node, device.name, ref.id, came.reason, came.message)

    def _withdraw(self) -> None:
        for name, device in self._assignments.leaving.items():
            place = self._assignments.place(device)
            if name not in self._withdrawn and place is not None and self._sits_in(device, place):
                self._withdrawn[name] = place
                self._plan.withdraw(place)

    def _offer(self) -> list[Happening]:
        back = [name for name in self._withdrawn if name not in self._assignments.leaving]
        return [happening for name in back for happening in self._plan.offer(self._withdrawn.pop(name))]

    def _holders(self, device: Device) -> list[str]:
        place = self._assignments.place(device)
        if place is None or not self._sits_in(device, place):
            return []
        return self._plan.allocation.holders(place)

    def _sits_in(self, device: Device, place: Place) -> bool:
        card = self._plan.allocation.slots[place].card
        return card is not None and card.uuid == device.uuid
