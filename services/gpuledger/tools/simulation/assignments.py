"""Decides what the simulated agents do for pools, from the statuses of GPUDevices. Pure.

An agent sets a device up when its status requests that, and releases it when its pool is to give it up and no pod holds
it. Each request is handled once, and again only if the device showed something else in between or was listed again.
"""

from collections.abc import Callable, Iterator
from typing import Any, Final, NamedTuple

from gpuledger.api.conditions import ConditionStatus, DeviceConditionType
from gpuledger.api.phases import DeviceState
from gpuledger.api.pool_ref import PoolRef
from gpuledger.domain.mig.geometry import partitions_of
from gpuledger.edge.kube.reflector import ChangeBatch, Listed
from gpuledger.tools.simulation.fleet import Fleet, SlotId

Object = dict[str, Any]

MIG: Final = "MIG"
NO_SUCH_PROFILE: Final = "MigProfileNotSupported"


class AssignedDevice(NamedTuple):
    """The part of a GPUDevice's status that agents act on."""

    name: str
    node: str = ""
    address: str = ""
    uuid: str = ""
    pool: PoolRef | None = None
    waits: bool = False
    leaves: bool = False


def device_of(live: Object) -> AssignedDevice:
    """The relevant part of a GPUDevice."""
    status = live.get("status") or {}
    hardware = status.get("hardware") or {}
    ref = status.get("poolRef")
    pool = PoolRef(ref["name"], ref.get("namespace") or "") if ref else None
    leaves = pool is not None and any(
        one.get("type") == DeviceConditionType.UNASSIGNING and one.get("status") == ConditionStatus.TRUE
        for one in status.get("conditions") or ()
    )
    return AssignedDevice(
        live["metadata"]["name"],
        status.get("nodeName") or "",
        (hardware.get("pci") or {}).get("address") or "",
        hardware.get("uuid") or "",
        pool,
        pool is not None and not leaves and status.get("state") == DeviceState.PENDING_ASSIGNMENT,
        leaves,
    )


DeviceChanges = Listed[AssignedDevice] | ChangeBatch[AssignedDevice]


class Assignments:
    """Tracks the devices of a fleet. A device is `leaving` from its release request until it has left its pool."""

    def __init__(self, fleet: Fleet) -> None:
        self._nodes = fleet.nodes
        self._slots = {
            (node.name, address): SlotId(node.name, slot)
            for node in fleet.nodes.values()
            for slot, address in enumerate(node.addresses)
        }
        self._set_up: dict[str, PoolRef] = {}
        self._let_go: dict[str, PoolRef] = {}
        self.leaving: dict[str, AssignedDevice] = {}

    def slot_id(self, device: AssignedDevice) -> SlotId | None:
        """The slot of a device; None where it is not known yet."""
        return self._slots.get((device.node, device.address))

    def follow(self, changes: DeviceChanges) -> list[AssignedDevice]:
        """The devices to set up after these changes."""
        if isinstance(changes, Listed):
            there = {device.name for device in changes.objects}
            self._set_up.clear()
            self._let_go.clear()
            self.leaving = {name: device for name, device in self.leaving.items() if name in there}
            return [device for device in changes.objects if self._changed(device)]
        return [change.object for change in changes.changes if self._changes(change.type, change.object)]

    def free(self, holders: Callable[[AssignedDevice], object]) -> Iterator[AssignedDevice]:
        """The leaving devices that no pod holds any more; they leave their pools now."""
        for device in [device for device in self.leaving.values() if not holders(device)]:
            del self.leaving[device.name]
            assert device.pool is not None, "only a device of a pool leaves one"
            self._let_go[device.name] = device.pool
            yield device

    def _changes(self, kind: str, device: AssignedDevice) -> bool:
        if kind == "DELETED":
            device = AssignedDevice(device.name, device.node)
        return self._changed(device)

    def _changed(self, device: AssignedDevice) -> bool:
        """Update a device; returns whether to set it up."""
        if device.node not in self._nodes:
            return False
        name, pool = device.name, device.pool
        if device.leaves and pool is not None and self._let_go.get(name) != pool:
            self.leaving[name] = device
        elif not device.leaves:
            self.leaving.pop(name, None)
            self._let_go.pop(name, None)
        if not device.waits or pool is None:
            self._set_up.pop(name, None)
            return False
        previous = self._set_up.get(name)
        self._set_up[name] = pool
        return previous != pool


class Applied(NamedTuple):
    """A device can be set up for a pool; `partitions` of the pool's MIG profile, or None for a whole card."""

    partitions: int | None


class Refused(NamedTuple):
    """A device cannot be set up for a pool."""

    reason: str
    message: str


def set_up(pool: Object, profiles: tuple[str, ...]) -> Applied | Refused:
    """The result of setting up a card with these MIG profiles for a pool."""
    resource = (pool.get("spec") or {}).get("resource") or {}
    if resource.get("unit") != MIG:
        return Applied(None)
    profile = str(resource.get("migProfile") or "")
    partitions = partitions_of(profile, profiles)
    if partitions is None:
        return Refused(NO_SUCH_PROFILE, f"The card cannot be divided by {profile or 'no profile'}.")
    return Applied(partitions)
