"""DeviceAllocations, the annotation that says which devices a pod has (seed 002, 4.2.2): reads and writes it. Pure.

Others write it too. Their resources have other domains (`koordinator.sh/`, `kubernetes.io/`), numbers in place of
quantities, no id, and functions that nobody numbers; what is read is what the last part of a resource's name says.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

import orjson

from gpuledger.api.sharing import GPU_MEMORY, NVIDIA_GPU, SharingNames
from gpuledger.domain.quantities import UNIT, Quantity
from gpuledger.domain.sharing.documents import amount_at, json_object, list_at, object_at, text_at
from gpuledger.domain.sharing.model import Allocated, Allocation, Device, VirtualFunction
from gpuledger.events.sharing import RESOURCES_MAX, SHARED_DEVICES_MAX, TYPES_MAX, VFS_MAX

MINOR_MAX: Final = 2**31 - 1
UNNUMBERED: Final = -1
"""The minor of a virtual function that nobody numbers."""


def read_allocation(text: str, names: SharingNames) -> Allocation:
    """What the annotation says that its pod has, by type of device. Raises ValueError, which says what is wrong."""
    given = json_object(text)
    if len(given) > TYPES_MAX:
        raise ValueError(f"it has {len(given)} types of devices; {TYPES_MAX} at most are allowed")
    return {
        text_at(kind, "a type of device"): found
        for kind, devices in given.items()
        if (found := tuple(_allocated(one, at, names) for one, at in list_at(devices, kind, SHARED_DEVICES_MAX)))
    }


def write_allocation(allocation: Allocation, devices: Mapping[str, Mapping[int, Device]], names: SharingNames) -> str:
    """The text of the annotation; a device's id comes from the allocation, or else from the node's devices.

    The same allocation always gives the same text.
    """
    document = {
        kind: [
            _device(one, devices.get(kind, {}).get(one.minor), names)
            for one in sorted(allocation[kind], key=lambda one: one.minor)
        ]
        for kind in sorted(allocation)
    }
    return orjson.dumps(document).decode()


def minors_list(allocated: Iterable[Allocated]) -> str:
    """The minors in the form of `NVIDIA_VISIBLE_DEVICES`: `0,1`."""
    return ",".join(str(one.minor) for one in allocated)


def _allocated(value: object, place: str, names: SharingNames) -> Allocated:
    given = object_at(value, place)
    identity = given.get("id")
    return Allocated(
        _minor(given.get("minor"), f"{place}.minor", 0),
        _resources(given.get("resources"), f"{place}.resources", names),
        tuple(_functions(given.get("extension"), f"{place}.extension")),
        text_at(identity, f"{place}.id") if identity else None,
    )


def _resources(value: object, place: str, names: SharingNames) -> Mapping[str, int]:
    """The amounts by short name; our domain counts where two domains have one resource."""
    given = object_at({} if value is None else value, place)
    found: dict[str, int] = {}
    for resource in sorted(given, key=lambda one: names.short(one) is not None):
        amount = amount_at(given[resource], f"{place}.{resource}")
        if amount:
            found[_short(resource, place)] = amount
    if len(found) > RESOURCES_MAX:
        raise ValueError(f"{place} has {len(found)} resources; {RESOURCES_MAX} at most are allowed")
    return found


def _short(resource: str, place: str) -> str:
    return resource if resource == NVIDIA_GPU else text_at(resource.rpartition("/")[2], f"{place}: a resource's name")


def _functions(value: object, place: str) -> Iterator[VirtualFunction]:
    if value is None:
        return
    for one, where in list_at(object_at(value, place).get("vfs"), f"{place}.vfs", VFS_MAX):
        given = object_at(one, where)
        minor = _minor(given.get("minor", UNNUMBERED), f"{where}.minor", UNNUMBERED)
        yield VirtualFunction(minor, text_at(given.get("busID"), f"{where}.busID"))


def _minor(value: object, place: str, least: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= MINOR_MAX:
        raise ValueError(f"{place} has to be a whole number from {least} to {MINOR_MAX}, and is {value!r}")
    return value


def _device(one: Allocated, device: Device | None, names: SharingNames) -> dict[str, Any]:
    identity = one.id or (None if device is None else device.id)
    resources = {names.resource(short): quantity_text(short, one.resources[short]) for short in sorted(one.resources)}
    written: dict[str, Any] = {"minor": one.minor, "resources": resources}
    if identity is not None:
        written["id"] = identity
    if one.functions:
        written["extension"] = {"vfs": [{"minor": vf.minor, "busID": vf.bus_id} for vf in one.functions]}
    return written


def quantity_text(resource: str, amount: int) -> str:
    """An amount as Kubernetes writes it: bytes as `16Gi`, everything else as a number."""
    return str(Quantity(amount * UNIT, "binary")) if resource == GPU_MEMORY else str(amount)
