"""What events say of shared devices as the JSON texts that rows have, and these texts as the model. Pure."""

from collections.abc import Mapping
from sys import intern
from typing import Any, Final

import orjson

from gpuledger.domain.inventory.state import json_text
from gpuledger.domain.sharing.model import Allocated, Allocation, Device, FunctionGroup, Topology, VirtualFunction
from gpuledger.events.sharing import Allocation as RecordedAllocation
from gpuledger.events.sharing import NodeDevicesShared

Devices = Mapping[str, Mapping[int, Device]]
"""The devices of a node by type and minor."""

_UNSET: Final[Mapping[str, Any]] = {}


def text_of_devices(data: NodeDevicesShared) -> str:
    """The devices that a node shares."""
    return json_text([one.model_dump(exclude_defaults=True) for one in data.devices])


def text_of_not_shared(data: NodeDevicesShared) -> str:
    """The cards of a node that somebody else has."""
    return json_text([one.model_dump(exclude_defaults=True) for one in data.not_shared])


def text_of_allocation(allocation: RecordedAllocation) -> str:
    """What a pod gets, by type of device; types without a device are left out."""
    kinds = {kind: [_device_in(one.model_dump()) for one in ones] for kind, ones in allocation.items() if ones}
    return intern(json_text(kinds))


def _device_in(one: dict[str, Any]) -> dict[str, Any]:
    resources = {name: amount for name, amount in one["resources"].items() if amount}
    return {key: value for key, value in {**one, "resources": resources}.items() if value or key == "minor"}


def allocation_of(text: str) -> Allocation:
    """What a pod gets, of a row's text."""
    return {kind: tuple(map(_allocated, ones)) for kind, ones in orjson.loads(text).items()}


def _allocated(one: Mapping[str, Any]) -> Allocated:
    functions = tuple(VirtualFunction(vf["minor"], vf["bus_id"]) for vf in one.get("functions", ()))
    return Allocated(one["minor"], one.get("resources", _UNSET), functions, one.get("id"))


def devices_of(text: str) -> Devices:
    """The devices of a node, of a row's text; of two with one minor the later one counts."""
    found: dict[str, dict[int, Device]] = {}
    for one in orjson.loads(text):
        device = _device(one)
        found.setdefault(device.type, {})[device.minor] = device
    return found


def _device(one: Mapping[str, Any]) -> Device:
    groups = tuple(map(_function_group, one.get("function_groups", ())))
    topology = one.get("topology")
    where = None if topology is None else Topology(*(topology.get(name) for name in Topology._fields))
    return Device(
        intern(one["type"]),
        one["minor"],
        one["healthy"],
        one["resources"],
        where,
        one.get("labels", _UNSET),
        groups,
        one.get("id"),
    )


def _function_group(one: Mapping[str, Any]) -> FunctionGroup:
    functions = tuple(VirtualFunction(vf["minor"], vf["bus_id"]) for vf in one.get("functions", ()))
    return FunctionGroup(one.get("labels", _UNSET), functions)


def is_same_allocation(one: str, other: str) -> bool:
    """Whether two texts give the same amounts of the same devices, whatever else they say of these."""
    return one == other or _amounts_in(one) == _amounts_in(other)


def _amounts_in(text: str) -> Mapping[tuple[str, int], Any]:
    found = orjson.loads(text).items()
    return {(kind, one["minor"]): one.get("resources", {}) for kind, ones in found for one in ones}
