"""What the simulated agents have to do for pools, by what GPUDevices show. Pure.

An agent sets a device up when it shows that it waits for that, and takes it back when it shows that the pool is to let
it go and nothing holds it any more. Each is said once, and again only where the device showed something else between
or where everything was listed anew, so that nothing is missed.
"""

from collections.abc import Callable, Iterator
from typing import Any, Final, NamedTuple

from gpuledger.api.conditions import ConditionStatus, DeviceConditionType
from gpuledger.api.phases import DeviceState
from gpuledger.api.pool_ref import PoolRef
from gpuledger.domain.mig.geometry import partitions_of
from gpuledger.edge.kube.reflector import ChangeBatch, Listed
from gpuledger.tools.simulation.fleet import Fleet, Place

Object = dict[str, Any]

MIG: Final = "MIG"
NO_SUCH_PROFILE: Final = "MigProfileNotSupported"


class Device(NamedTuple):
    """What a GPUDevice shows, as far as agents go by it."""

    name: str
    node: str = ""
    address: str = ""
    uuid: str = ""
    pool: PoolRef | None = None
    waits: bool = False
    leaves: bool = False


def device_of(live: Object) -> Device:
    """What is kept of a GPUDevice."""
    status = live.get("status") or {}
    hardware = status.get("hardware") or {}
    ref = status.get("poolRef")
    pool = PoolRef(ref["name"], ref.get("namespace") or "") if ref else None
    leaves = pool is not None and any(
        one.get("type") == DeviceConditionType.UNASSIGNING and one.get("status") == ConditionStatus.TRUE
        for one in status.get("conditions") or ()
    )
    return Device(
        live["metadata"]["name"],
        status.get("nodeName") or "",
        (hardware.get("pci") or {}).get("address") or "",
        hardware.get("uuid") or "",
        pool,
        pool is not None and not leaves and status.get("state") == DeviceState.PENDING_ASSIGNMENT,
        leaves,
    )


SeenDevices = Listed[Device] | ChangeBatch[Device]


class Assignments:
    """Follows the devices of a fleet. A device is `leaving` from when it is to leave its pool until it has left."""

    def __init__(self, fleet: Fleet) -> None:
        self._nodes = fleet.nodes
        self._places = {
            (node.name, address): Place(node.name, slot)
            for node in fleet.nodes.values()
            for slot, address in enumerate(node.addresses)
        }
        self._set_up: dict[str, PoolRef] = {}
        self._let_go: dict[str, PoolRef] = {}
        self.leaving: dict[str, Device] = {}

    def place(self, device: Device) -> Place | None:
        """Where a device sits; None where that is not known yet."""
        return self._places.get((device.node, device.address))

    def follow(self, seen: SeenDevices) -> list[Device]:
        """The devices that are to be set up, after what was seen."""
        if isinstance(seen, Listed):
            there = {device.name for device in seen.objects}
            self._set_up.clear()
            self._let_go.clear()
            self.leaving = {name: device for name, device in self.leaving.items() if name in there}
            return [device for device in seen.objects if self._changed(device)]
        return [change.object for change in seen.changes if self._changes(change.type, change.object)]

    def free(self, holders: Callable[[Device], object]) -> Iterator[Device]:
        """The devices that nothing holds and that leave their pools now."""
        for device in [device for device in self.leaving.values() if not holders(device)]:
            del self.leaving[device.name]
            assert device.pool is not None, "only a device of a pool leaves one"
            self._let_go[device.name] = device.pool
            yield device

    def _changes(self, kind: str, device: Device) -> bool:
        if kind == "DELETED":
            device = Device(device.name, device.node)
        return self._changed(device)

    def _changed(self, device: Device) -> bool:
        """Take what a device shows; whether it is to be set up."""
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
        known = self._set_up.get(name)
        self._set_up[name] = pool
        return known != pool


class Applied(NamedTuple):
    """A device can be set up for a pool; `partitions` of the pool's MIG profile, or None for a whole card."""

    partitions: int | None


class Refused(NamedTuple):
    """A device cannot be set up for a pool."""

    reason: str
    message: str


def set_up(pool: Object, profiles: tuple[str, ...]) -> Applied | Refused:
    """What comes of setting a card with these MIG profiles up for a pool."""
    resource = (pool.get("spec") or {}).get("resource") or {}
    if resource.get("unit") != MIG:
        return Applied(None)
    profile = str(resource.get("migProfile") or "")
    partitions = partitions_of(profile, profiles)
    if partitions is None:
        return Refused(NO_SUCH_PROFILE, f"The card cannot be divided by {profile or 'no profile'}.")
    return Applied(partitions)
