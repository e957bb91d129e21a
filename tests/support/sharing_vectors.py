"""Checks shared devices against recorded outcomes: a request, the state of a node, and what has to come of them.

A check computes what we make of a line, in the form of its `expect`; what `expect` does not name is not compared. The
checks about nodes are in `sharing_vectors_nodes`.
"""

import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from gpuledger.api.sharing import GPU, GPU_SHARED, SharingNames
from gpuledger.domain.quantities import parse_quantity
from gpuledger.domain.sharing.admission import admitted
from gpuledger.domain.sharing.annotation import minors_list, read_allocation, write_allocation
from gpuledger.domain.sharing.hints import PodHints, hints_of, read_partition_spec
from gpuledger.domain.sharing.model import (
    Allocated,
    Allocation,
    Device,
    FunctionGroup,
    PodRequest,
    Refusal,
    Topology,
    VirtualFunction,
)
from gpuledger.domain.sharing.requests import normalised, on_devices, request_of

Vector = Mapping[str, Any]
Check = Callable[[Vector], dict[str, Any]]
"""What we make of a line: `ok`, and whatever else `expect` may name."""

NAMES: Final = SharingNames()
REFUSED: Final = {"ok": False}
_UNORDERED: Final = ("allocation", "devices", "vfs")


def lines(folder: Path) -> Iterator[Vector]:
    """Every line of every file of a folder that is about shared devices."""
    for path in sorted(folder.glob("*.jsonl")):
        with path.open() as given:
            yield from (line for line in map(json.loads, given) if is_about_sharing(line))


def is_about_sharing(line: Vector) -> bool:
    """Whether a line is one of these; those of DRA have no kind."""
    return "kind" in line


def op_of(line: Vector) -> tuple[str, str]:
    """What a line is about: its kind and its operation, empty for placing a request on the node."""
    return line["kind"], line.get("config", {}).get("op", "")


def differences(line: Vector, checks: Mapping[tuple[str, str], Check]) -> list[str]:
    """Where what we compute is not what the line expects; `expect` leaves things out, and those may be anything."""
    check = checks.get(op_of(line))
    if check is None:
        return [f"no check for {op_of(line)}"]
    found = check(line)
    expected = {key: one for key, one in line["expect"].items() if key not in ("code", "reason")}
    if line["expect"].get("code") and not found["ok"]:
        expected["code"] = line["expect"]["code"]
    return [
        f"{key}: expected {compared(one, key)}, found {compared(found.get(key), key)}"
        for key, one in expected.items()
        if compared(one, key) != compared(found.get(key), key)
    ]


def compared(value: Any, key: str = "") -> Any:
    """The same in a form in which equal things are equal: quantities as numbers, sets in one order."""
    if isinstance(value, Mapping):
        return {name: compared(one, name) for name, one in sorted(value.items()) if one not in ({}, [], None)}
    if isinstance(value, list | tuple):
        found = [compared(one) for one in value]
        return sorted(found, key=repr) if key in _UNORDERED else found
    if isinstance(value, str) or (isinstance(value, int) and not isinstance(value, bool)):
        try:
            return parse_quantity(value).nanos
        except ValueError:
            return value
    return value


def refused(refusal: Refusal) -> dict[str, Any]:
    """A refusal as a line expects it."""
    code = "UnschedulableAndUnresolvable" if refusal.unresolvable else "Unschedulable"
    return REFUSED | {"code": code, "reason": refusal.reason}


def amounts_of(resources: Mapping[str, Any]) -> dict[str, int]:
    """Amounts by short name, of quantities."""
    return {name: parse_quantity(value).whole for name, value in resources.items()}


def hints_in(request: Mapping[str, Any]) -> PodHints | Refusal:
    """The hints of a request, read as the annotations that they are."""
    texts = (request.get(key) for key in ("hints", "jointAllocate", "partitionSpec"))
    return hints_of(*(None if one is None else json.dumps(one) for one in texts))


def device_of(given: Mapping[str, Any]) -> Device:
    """A device of a node."""
    where = given.get("topology")
    topology = None if where is None else Topology(where["socket"], where["numa"], where["pcie"], where.get("busID"))
    groups = tuple(
        FunctionGroup(one.get("labels", {}), tuple(map(function_of, one["vfs"]))) for one in given.get("vfGroups", ())
    )
    healthy, resources = given.get("health", True), amounts_of(given.get("resources", {}))
    return Device(
        given["type"], given["minor"], healthy, resources, topology, given.get("labels", {}), groups, given.get("id")
    )


def function_of(given: Mapping[str, Any]) -> VirtualFunction:
    """A virtual function."""
    return VirtualFunction(given["minor"], given["busID"])


def devices_of(line: Vector) -> dict[str, dict[int, Device]]:
    """The devices of the node, by type and minor."""
    found: dict[str, dict[int, Device]] = {}
    for one in map(device_of, line.get("node", {}).get("devices", ())):
        found.setdefault(one.type, {})[one.minor] = one
    return found


def allocation_of(given: list[Mapping[str, Any]]) -> Allocation:
    """An allocation, of the list that lines have."""
    found: dict[str, tuple[Allocated, ...]] = {}
    for one in given:
        functions = tuple(map(function_of, one.get("vfs", ())))
        allocated = Allocated(one["minor"], amounts_of(one.get("resources", {})), functions, one.get("id"))
        found[one["type"]] = (*found.get(one["type"], ()), allocated)
    return found


def allocation_list(allocation: Allocation) -> list[dict[str, Any]]:
    """An allocation as lines have it."""
    return [
        {
            "type": kind,
            "minor": one.minor,
            "resources": dict(one.resources),
            "vfs": [{"minor": vf.minor, "busID": vf.bus_id} for vf in one.functions],
            "id": one.id,
        }
        for kind, devices in allocation.items()
        for one in devices
    ]


def _request(line: Vector) -> dict[str, Any]:
    given = line["request"]
    hints, amounts = hints_in(given), amounts_of(given.get("resources", {}))
    if isinstance(hints, Refusal):
        return refused(hints)
    request = request_of(amounts, hints)
    if request is None:
        return {"ok": True, "skip": True}
    if isinstance(request, Refusal):
        return refused(request)
    return _meaning(request, amounts, devices_of(line))


def _meaning(
    request: PodRequest, amounts: Mapping[str, int], devices: Mapping[str, Mapping[int, Device]]
) -> dict[str, Any]:
    first = on_devices(request.types[0], devices.get(request.types[0].type, {}).values())
    if isinstance(first, Refusal):
        return refused(first)
    by_type, spec = normalised(amounts), request.partition
    assert not isinstance(by_type, Refusal)
    policy = None if spec is None else {"honor": True, "restricted": spec.restricted}
    return {
        "ok": True,
        "count": first.number,
        "perDevice": first.per_device,
        "shared": first.shared,
        "resources": {
            kind: {name: one for name, one in given.items() if name != GPU_SHARED} for kind, given in by_type.items()
        },
        "partition": None if policy is None or spec is None else policy | {"ringBusBandwidth": spec.ring_bus_bandwidth},
        "topologyScope": first.hint.required_scope,
    }


def _admission(line: Vector) -> dict[str, Any]:
    found = admitted(amounts_of(line["request"]["resources"]))
    return refused(found) if isinstance(found, Refusal) else {"ok": True, "resources": found}


def _allocation_annotation(line: Vector) -> dict[str, Any]:
    try:
        allocation = read_allocation(line["request"]["annotation"], NAMES)
    except ValueError:
        return REFUSED
    return {"ok": True, "allocation": allocation_list(allocation)}


def _write_annotation(line: Vector) -> dict[str, Any]:
    written = json.loads(write_allocation(allocation_of(line["request"]["allocation"]), devices_of(line), NAMES))
    for devices in written.values():
        for one in devices:
            one["resources"] = {NAMES.short(name): value for name, value in one["resources"].items()}
    return {"ok": True, "annotation": written}


def _minors_list(line: Vector) -> dict[str, Any]:
    return {"ok": True, "value": minors_list(allocation_of(line["request"]["allocation"])[GPU])}


def _parse_spec(line: Vector) -> dict[str, Any]:
    try:
        spec = read_partition_spec(line["request"]["annotation"])
    except ValueError:
        return REFUSED
    policy = "Restricted" if spec.restricted else "BestEffort"
    return {"ok": True, "spec": {"allocatePolicy": policy, "ringBusBandwidth": spec.ring_bus_bandwidth}}


OF_REQUESTS: Final[Mapping[tuple[str, str], Check]] = {
    ("validate", "request"): _request,
    ("validate", "admission"): _admission,
    ("validate", "allocation-annotation"): _allocation_annotation,
    ("normalize", "request"): _request,
    ("normalize", "admission"): _admission,
    ("normalize", "write-annotation"): _write_annotation,
    ("normalize", "minors-list"): _minors_list,
    ("partition", "request"): _request,
    ("partition", "parse-spec"): _parse_spec,
}
"""The checks of what requests and annotations mean."""
