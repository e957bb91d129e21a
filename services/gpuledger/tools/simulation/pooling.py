"""The simulated agents' part in pools: sets devices up, and releases them once no pod holds them.

A card that is to be divided for a MIG pool is no whole card any more: pods get no more of it from when the pool asks
for it, it is divided once no pod holds it, and offered again once it has left the pool. As an agent, this never changes
a card that somebody uses.
"""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from gpuledger.api.pool_ref import PoolRef
from gpuledger.edge.kube.client import Object
from gpuledger.edge.kube.reflector import Listed
from gpuledger.tools.simulation.agents import Agents
from gpuledger.tools.simulation.assignments import Applied, AssignedDevice, Assignments, DeviceChanges, Refused, set_up
from gpuledger.tools.simulation.decide import FleetPlan, Happening
from gpuledger.tools.simulation.fleet import Fleet, SlotId
from gpuledger.tools.simulation.kubernetes import Cluster


class Division(NamedTuple):
    """A card to divide for a pool into so many partitions, once nobody holds it."""

    device: AssignedDevice
    pool: PoolRef
    partitions: int


class Pooling:
    """Follows the fleet's GPUDevices."""

    def __init__(self, fleet: Fleet, plan: FleetPlan, cluster: Cluster, agents: Agents) -> None:
        self._fleet = fleet
        self._plan = plan
        self._cluster = cluster
        self._agents = agents
        self._assignments = Assignments(fleet)
        self._withdrawn: dict[str, SlotId] = {}
        self._divided: dict[str, AssignedDevice] = {}
        """Devices of MIG pools."""
        self._divisions: dict[str, Division] = {}

    async def follow(self, changes: Iterable[DeviceChanges]) -> None:
        """Set devices up after these changes; reads each pool once."""
        pools: dict[PoolRef, Object | None] = {}
        for one in changes:
            for device in _present(one, self._divided):
                await self._note_division(device, pools)
            for device in self._assignments.follow(one):
                await self._set_up(device, pools)

    async def release(self) -> list[Happening]:
        """Release the devices that no pod holds any more; returns the consequences for pending pods."""
        self._withdraw()
        for division in [one for one in self._divisions.values() if not self._holders(one.device)]:
            device, pool, partitions = division
            del self._divisions[device.name]
            await self._agents.pool_applied(device.node, device.name, pool.id, partitions)
        for device in self._assignments.free(self._holders):
            assert device.pool is not None, "only a device of a pool leaves one"
            await self._agents.pool_released(device.node, device.name, device.pool.id)
        return self._offer()

    async def _note_division(self, device: AssignedDevice, pools: dict[PoolRef, Object | None]) -> None:
        """Whether the device's card is divided for its pool."""
        if device.pool is not None and device.node not in self._fleet.nodes:
            return
        came = None if device.leaves else await self._result(device, pools)
        if isinstance(came, Applied) and came.partitions is not None:
            self._divided[device.name] = device
        else:
            self._divided.pop(device.name, None)
        division = self._divisions.get(device.name)
        if division is not None and (division.pool != device.pool or device.name not in self._divided):
            del self._divisions[device.name]

    async def _set_up(self, device: AssignedDevice, pools: dict[PoolRef, Object | None]) -> None:
        came, ref = await self._result(device, pools), device.pool
        if came is None or ref is None:
            return
        if isinstance(came, Refused):
            await self._agents.pool_refused(device.node, device.name, ref.id, came.reason, came.message)
        elif came.partitions is None:
            await self._agents.pool_applied(device.node, device.name, ref.id, None)
        else:
            self._divisions[device.name] = Division(device, ref, came.partitions)

    async def _result(self, device: AssignedDevice, pools: dict[PoolRef, Object | None]) -> Applied | Refused | None:
        """What setting the device up for its pool gives; None where there is no pool."""
        ref = device.pool
        if ref is None:
            return None
        if ref not in pools:
            pools[ref] = await self._cluster.pool(ref.api_resource, ref.name, ref.namespace)
        pool = pools[ref]
        return None if pool is None else set_up(pool, self._fleet.nodes[device.node].model.mig_profiles)

    def _withdraw(self) -> None:
        for name, device in {**self._divided, **self._assignments.leaving}.items():
            slot_id = self._assignments.slot_id(device)
            if name not in self._withdrawn and slot_id is not None and self._sits_in(device, slot_id):
                self._withdrawn[name] = slot_id
                self._plan.withdraw(slot_id)

    def _offer(self) -> list[Happening]:
        kept = self._assignments.leaving.keys() | self._divided.keys()
        back = [name for name in self._withdrawn if name not in kept]
        return [happening for name in back for happening in self._plan.offer(self._withdrawn.pop(name))]

    def _holders(self, device: AssignedDevice) -> list[str]:
        slot_id = self._assignments.slot_id(device)
        if slot_id is None or not self._sits_in(device, slot_id):
            return []
        return self._plan.allocation.holders(slot_id)

    def _sits_in(self, device: AssignedDevice, slot_id: SlotId) -> bool:
        card = self._plan.allocation.slots[slot_id].card
        return card is not None and card.uuid == device.uuid


def _present(changes: DeviceChanges, before: Iterable[str]) -> Iterator[AssignedDevice]:
    """The devices as they are after the changes; one that is gone belongs to no pool."""
    if isinstance(changes, Listed):
        there = {device.name for device in changes.objects}
        yield from changes.objects
        yield from (AssignedDevice(name) for name in list(before) if name not in there)
        return
    for change in changes.changes:
        device = change.object
        yield AssignedDevice(device.name, device.node) if change.type == "DELETED" else device
