"""Reads the files in which people and vendors' programs declare devices of other types than GPUs and NICs. Pure.

A file is a list of devices as the spec of a Device object has them (seed 002, 4.3), so a new type of device needs no
code. Reading is strict, because a device that is read wrongly would be given to pods: a file with anything wrong in it
is left out as a whole with the reason, and the others count.
"""

import re
from collections.abc import Iterable, Mapping
from itertools import chain
from typing import Any, Final, NamedTuple

import orjson

from gpuledger.api.sharing import GPU, RDMA, WHOLE, SharingNames
from gpuledger.domain.sharing.documents import amount_at, fields_at, list_at, text_at
from gpuledger.events.node_devices import DECLARED_DEVICES_MAX, LeftOutFile, NodeDeclaredDevicesObserved
from gpuledger.events.payload import BIGINT_MAX, TEXT_LENGTH_MAX, truncated
from gpuledger.events.sharing import (
    LABELS_MAX,
    TYPES_MAX,
    VF_GROUPS_MAX,
    VFS_MAX,
    SharedDevice,
    SharedFunction,
    SharedFunctionGroup,
    SharedTopology,
)

JSON_ENDING: Final = ".json"
"""Files of other endings are YAML."""

FOUND_BY_THE_AGENT: Final = frozenset({GPU, RDMA})
DECLARED_TYPES_MAX: Final = TYPES_MAX - len(FOUND_BY_THE_AGENT)
MINOR_MAX: Final = 2**31 - 1

_TYPE: Final = re.compile(r"[a-z0-9]([a-z0-9._-]{0,61}[a-z0-9])?").fullmatch
"""The names of Kubernetes' resources, in lower case."""

_DEVICE: Final = ("type", "id", "minor", "moduleID", "health", "resources", "topology", "labels", "vfGroups")
_TOPOLOGY: Final = ("socketID", "nodeID", "pcieID", "busID")


class Unreadable(NamedTuple):
    """Why the content of a file could not be had."""

    reason: str


Content = bytes | Unreadable


def declared(files: Mapping[str, Content], names: SharingNames) -> NodeDeclaredDevicesObserved:
    """What the files declare, by name; the order in which they come does not matter.

    Files are taken in the order of their names: one that declares a device again, or exceeds a bound, is left out.
    """
    devices: list[SharedDevice] = []
    left_out: list[LeftOutFile] = []
    for file in sorted(files):
        try:
            devices = _with(devices, devices_of(file, files[file], names))
        except ValueError as error:
            left_out.append(LeftOutFile(file=file, reason=truncated(str(error))))
    devices.sort(key=lambda one: (one.type, one.minor))
    return NodeDeclaredDevicesObserved(devices=tuple(devices), left_out=tuple(left_out))


def devices_of(file: str, content: Content, names: SharingNames) -> tuple[SharedDevice, ...]:
    """The devices that a file declares. Raises ValueError with what is wrong, and where."""
    if isinstance(content, Unreadable):
        raise ValueError(content.reason)
    found = _document(file, content)
    if not isinstance(found, list):
        raise ValueError("it has to be a list of devices, as the spec.devices of a Device has it")
    devices = tuple(_device(one, place, names) for one, place in list_at(found, "it", DECLARED_DEVICES_MAX))
    _check_unique(devices)
    return devices


def _with(before: Iterable[SharedDevice], more: Iterable[SharedDevice]) -> list[SharedDevice]:
    """The devices of one more file beside those of others. Raises ValueError."""
    devices = [*before, *more]
    _check_unique(devices)
    if len(devices) > DECLARED_DEVICES_MAX:
        raise ValueError(
            f"with it the node declares {len(devices)} devices; {DECLARED_DEVICES_MAX} at most are allowed"
        )
    types = {one.type for one in devices}
    if len(types) > DECLARED_TYPES_MAX:
        raise ValueError(f"with it the node declares {len(types)} types; {DECLARED_TYPES_MAX} at most are allowed")
    return devices


def _check_unique(devices: Iterable[SharedDevice]) -> None:
    """Minors and ids are unique per type, and no two functions of a type have one bus id. Raises ValueError."""
    seen: set[tuple[str, str, object]] = set()
    for one in devices:
        buses = (vf.bus_id for group in one.function_groups for vf in group.functions)
        keys = chain((("minor", one.minor), ("id", one.id)), (("virtual function", bus) for bus in buses))
        for what, value in keys:
            if (one.type, what, value) in seen:
                raise ValueError(f"the {what} {value!r} of the type {one.type} is declared twice; each is unique")
            seen.add((one.type, what, value))


def _document(file: str, content: bytes) -> Any:  # noqa: ANN401 - whatever the file contains
    if file.endswith(JSON_ENDING):
        try:
            return orjson.loads(content)
        except orjson.JSONDecodeError as error:
            raise ValueError(f"it is not JSON ({error})") from error
    from gpuledger.agent.plain_yaml import read_yaml  # noqa: PLC0415 - few nodes need its memory

    return read_yaml(content)


def _device(value: object, place: str, names: SharingNames) -> SharedDevice:
    given = _fields(value, place, _DEVICE)
    kind = _type(given.get("type"), f"{place}.type", names)
    module_id = given.get("moduleID")
    return SharedDevice(
        type=kind,
        id=text_at(given.get("id"), f"{place}.id"),
        minor=_number(given.get("minor"), f"{place}.minor", MINOR_MAX),
        module_id=None if module_id is None else _number(module_id, f"{place}.moduleID", BIGINT_MAX),
        healthy=_truth(given.get("health"), f"{place}.health"),
        resources={kind: _amount(given.get("resources"), f"{place}.resources", names.resource(kind))},
        topology=_topology(given.get("topology"), f"{place}.topology"),
        labels=_labels(given.get("labels"), f"{place}.labels"),
        function_groups=tuple(
            _group(one, where) for one, where in list_at(given.get("vfGroups"), f"{place}.vfGroups", VF_GROUPS_MAX)
        ),
    )


def _type(value: object, place: str, names: SharingNames) -> str:
    kind = text_at(value, place)
    if kind in FOUND_BY_THE_AGENT:
        raise ValueError(f"{place} is {kind!r}: the agent finds such devices itself; declare only others")
    if not _TYPE(kind) or kind.startswith(("gpu-", "gpu.")):
        raise ValueError(f"{place} is {kind[:80]!r}; it names the resource {names.resource('TYPE')}, such as fpga")
    return kind


def _amount(value: object, place: str, resource: str) -> int:
    """The percentage that a device has of the one resource of its type, which is what pods ask for."""
    given = _fields(value, place, (resource,))
    amount = amount_at(given.get(resource), f"{place}[{resource!r}]")
    if not 0 < amount <= WHOLE:
        raise ValueError(f"{place}[{resource!r}] is {amount}; it is a percentage of the device, 1 to {WHOLE}")
    return amount


def _topology(value: object, place: str) -> SharedTopology | None:
    if value is None:
        return None
    given = _fields(value, place, _TOPOLOGY)
    return SharedTopology(
        socket=_number(given.get("socketID"), f"{place}.socketID", MINOR_MAX),
        numa=_number(given.get("nodeID"), f"{place}.nodeID", MINOR_MAX),
        pcie=text_at(given.get("pcieID"), f"{place}.pcieID"),
        bus_id=text_at(given["busID"], f"{place}.busID") if "busID" in given else None,
    )


def _group(value: object, place: str) -> SharedFunctionGroup:
    given = _fields(value, place, ("labels", "vfs"))
    functions = (_function(one, where) for one, where in list_at(given.get("vfs"), f"{place}.vfs", VFS_MAX))
    return SharedFunctionGroup(labels=_labels(given.get("labels"), f"{place}.labels"), functions=tuple(functions))


def _function(value: object, place: str) -> SharedFunction:
    given = _fields(value, place, ("minor", "busID"))
    minor = _number(given.get("minor"), f"{place}.minor", MINOR_MAX)
    return SharedFunction(minor=minor, bus_id=text_at(given.get("busID"), f"{place}.busID"))


def _labels(value: object, place: str) -> dict[str, str]:
    if value is None:
        return {}
    if not isinstance(value, Mapping) or len(value) > LABELS_MAX:
        raise ValueError(f"{place} has to be an object of {LABELS_MAX} labels at most")
    return {text_at(key, f"a key of {place}"): _label(one, f"{place}[{key!r}]") for key, one in value.items()}


def _label(value: object, place: str) -> str:
    if not isinstance(value, str) or len(value) > TEXT_LENGTH_MAX or "\0" in value:
        raise ValueError(f"{place} has to be a text of {TEXT_LENGTH_MAX} characters at most")
    return value


def _fields(value: object, place: str, allowed: tuple[str, ...]) -> Mapping[str, Any]:
    """The fields of an object that has no others, whose keys YAML may give as anything. Raises ValueError."""
    if isinstance(value, Mapping) and not all(isinstance(key, str) for key in value):
        raise ValueError(f"{place} has a field whose name is no text; allowed are {', '.join(allowed)}")
    return fields_at(value, place, allowed)


def _number(value: object, place: str, most: int) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= most:
        raise ValueError(f"{place} has to be a whole number from 0 to {most}, and is {value!r:.80}")
    return value


def _truth(value: object, place: str) -> bool:
    if not isinstance(value, bool):
        raise ValueError(f"{place} has to be true or false, and is {value!r:.80}")
    return value
