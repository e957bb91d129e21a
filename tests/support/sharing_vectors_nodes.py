"""Checks what nodes make of requests against recorded outcomes: choice of devices, scores, partitions, accounts."""

from collections.abc import Mapping
from typing import Any, Final

from gpuledger.api.sharing import GPU_MEMORY, GPU_MEMORY_RATIO, Strategy
from gpuledger.domain.sharing.allocation import allocate
from gpuledger.domain.sharing.annotation import read_allocation
from gpuledger.domain.sharing.candidates import FittingDevice, Offer, fitting, in_order
from gpuledger.domain.sharing.conversion import memory_to_ratio, ratio_to_memory
from gpuledger.domain.sharing.joint import by_switch
from gpuledger.domain.sharing.model import (
    Allocated,
    Allocation,
    Device,
    NodeState,
    Partition,
    PodRequest,
    Refusal,
    Topology,
    TypeRequest,
)
from gpuledger.domain.sharing.partition_tables import built_in_table, policy_of, read_table, written_table
from gpuledger.domain.sharing.requests import request_of
from gpuledger.domain.sharing.scores import WEIGHTS, Scoring, node_score, normalized, score
from gpuledger.domain.sharing.topology import numa_index, tree
from gpuledger.domain.sharing.usage import (
    Accounts,
    free_accounts,
    preemptible_accounts,
    total_accounts,
    usage_of,
    used_accounts,
)
from support.sharing_vectors import (
    NAMES,
    REFUSED,
    Check,
    Vector,
    allocation_list,
    allocation_of,
    amounts_of,
    devices_of,
    hints_in,
    refused,
)

VICTIM: Final = "victim"
"""The pod that holds what a line calls preemptible."""


def node_of(line: Vector) -> NodeState:
    """The node of a line: one pod holds what is preemptible, and one the rest of what is used."""
    given = line.get("node", {})
    node = NodeState("node-1")
    node.set_devices(devices_of(line))
    node.labels = given.get("labels", {})
    node.partition_policy = given.get("partitionPolicy")
    node.partitions = {
        int(size): tuple(
            Partition(frozenset(row["minors"]), row["gpuLinkType"], row["allocationScore"]) for row in rows
        )
        for size, rows in given.get("partitions", {}).items()
    }
    victim = _held(given.get("preemptible", {}))
    node.hold(VICTIM, victim)
    node.hold("other", _without(_held(given.get("used", {})), victim))
    return node


def _held(by_type: Mapping[str, Any]) -> Allocation:
    return allocation_of([{**one, "type": kind} for kind, devices in by_type.items() for one in devices])


def _without(held: Allocation, part: Allocation) -> Allocation:
    less = {(kind, one.minor): one for kind, devices in part.items() for one in devices}
    return {kind: tuple(_less(one, less.get((kind, one.minor))) for one in devices) for kind, devices in held.items()}


def _less(one: Allocated, part: Allocated | None) -> Allocated:
    if part is None:
        return one
    left = {name: amount - part.resources.get(name, 0) for name, amount in one.resources.items()}
    return one._replace(resources=left, functions=tuple(vf for vf in one.functions if vf not in part.functions))


def request_in(line: Vector) -> PodRequest:
    """The request of a line."""
    given = line["request"]
    hints = hints_in(given)
    assert not isinstance(hints, Refusal), hints
    request = request_of(amounts_of(given["resources"]), hints)
    assert isinstance(request, PodRequest), request
    numa_nodes, designated = given.get("numaNodes"), given.get("designated")
    return request._replace(
        numa_nodes=None if numa_nodes is None else frozenset(numa_nodes),
        designated=None if designated is None else _held(designated),
    )


def scoring_of(line: Vector) -> Scoring:
    """How the line compares devices."""
    config = line["config"]
    return Scoring(Strategy(config["strategy"]), config.get("weights", WEIGHTS))


def _place(line: Vector) -> dict[str, Any]:
    found = allocate(node_of(line), request_in(line), scoring_of(line), preempted=frozenset({VICTIM}))
    return refused(found) if isinstance(found, Refusal) else {"ok": True, "allocation": allocation_list(found)}


def _free(line: Vector) -> dict[str, Any]:
    designated = _held(line["request"]["designated"])
    return {"ok": True, "free": _listed(free_accounts(node_of(line), designated=designated))}


def _node_score(line: Vector) -> dict[str, Any]:
    points = node_score(node_of(line), request_in(line), scoring_of(line), preempted=frozenset({VICTIM}))
    return {"ok": True, "score": points}


def _device_score(line: Vector) -> dict[str, Any]:
    node = node_of(line)
    ((device,),) = (devices.values() for devices in node.devices.values())
    used = usage_of(node).of(device.type, device.minor)
    return {
        "ok": True,
        "score": score(device.resources, used, amounts_of(line["request"]["resources"]), scoring_of(line)),
    }


def _normalize(line: Vector) -> dict[str, Any]:
    return {"ok": True, "scores": normalized(line["request"]["scores"])}


def _rank(line: Vector) -> dict[str, Any]:
    given = line["request"]
    scored = [(_ranked(one), one["score"]) for one in given["candidates"]]
    order = by_switch(in_order(scored, frozenset(given.get("preferred", ()))), given.get("preferredPCIe", ()))
    return {"ok": True, "order": [one.device.minor for one in order]}


def _ranked(given: Mapping[str, Any]) -> FittingDevice:
    where = Topology(0, 0, given["pcie"]) if "pcie" in given else None
    return FittingDevice(Device("gpu", given["minor"], healthy=True, resources={}, topology=where))


def _complete(line: Vector) -> dict[str, Any]:
    """What a pod gets that is given so much of each of these devices."""
    node, given = node_of(line), allocation_of(line["request"]["allocation"])
    found = {kind: tuple(_given(node, kind, one) for one in devices) for kind, devices in given.items()}
    gets = {kind: tuple(one for one in devices if one is not None) for kind, devices in found.items()}
    return {"ok": True, "allocation": allocation_list(gets)} if None not in found["gpu"] else REFUSED


def _given(node: NodeState, kind: str, one: Allocated) -> Allocated | None:
    asked = TypeRequest(kind, 1, one.resources, shared=True)
    offer = Offer(node, usage_of(node), PodRequest((asked,)), Scoring())
    return next((found.allocated for found in fitting(offer, asked) if found.device.minor == one.minor), None)


def _ratio_to_memory(line: Vector) -> dict[str, Any]:
    given = amounts_of(line["request"])
    return {"ok": True, "resources": {GPU_MEMORY: ratio_to_memory(given[GPU_MEMORY_RATIO], given["total"])}}


def _memory_to_ratio(line: Vector) -> dict[str, Any]:
    given = amounts_of(line["request"])
    return {"ok": True, "resources": {GPU_MEMORY_RATIO: memory_to_ratio(given[GPU_MEMORY], given["total"])}}


def _tree(line: Vector) -> dict[str, Any]:
    found = tree(node_of(line).devices["gpu"].values())
    return {"ok": True, "tree": {str(numa): dict(switches) for numa, switches in found.items()}}


def _numa_index(line: Vector) -> dict[str, Any]:
    found = numa_index(node_of(line))
    return {
        "ok": True,
        "numa": {kind: {str(key): one for key, one in of_type.items()} for kind, of_type in found.items()},
    }


def _parse_table(line: Vector) -> dict[str, Any]:
    text = line["request"].get("annotation")
    return {"ok": True, "partitions": {} if text is None else written_table(read_table(text))}


def _policy(line: Vector) -> dict[str, Any]:
    return {"ok": True, "policy": policy_of(line["node"]["labels"].get("gpu-partition-policy"))}


def _built_in_table(line: Vector) -> dict[str, Any]:
    table = built_in_table(line["node"]["labels"].get("gpu-model"))
    return REFUSED if table is None else {"ok": True, "partitions": written_table(table)}


def _account(line: Vector) -> dict[str, Any]:
    node, preempted = node_of(line), set[str]()
    for event in line["request"]["events"]:
        _apply(node, preempted, event)
    return {
        "ok": True,
        "total": _listed(total_accounts(node)),
        "used": _listed(used_accounts(node)),
        "free": _listed(free_accounts(node)),
        "preemptible": _listed(preemptible_accounts(node, preempted)),
    }


def _apply(node: NodeState, preempted: set[str], event: Mapping[str, Any]) -> None:
    match event["event"]:
        case "reserve":
            node.hold(event["pod"], _held(event["allocation"]))
        case "unreserve" | "pod-delete":
            node.release(event["pod"])
        case "preempt":
            preempted.add(event["pod"])
        case "reprieve":
            preempted.discard(event["pod"])
        case "device-update":
            node.set_devices(devices_of({"node": event}))
        case "pod-add" | "pod-update":
            _see(node, event)
        case unexpected:
            raise ValueError(f"no meaning for the event {unexpected}")


def _see(node: NodeState, event: Mapping[str, Any]) -> None:
    """A pod counts while it is assigned to the node and its annotation can be read."""
    try:
        held = read_allocation(event["annotation"], NAMES) if event["assigned"] else {}
    except ValueError:
        held = {}
    if held:
        node.hold(event["pod"], held)
    else:
        node.release(event["pod"])


def _listed(accounts: Accounts) -> dict[str, list[dict[str, Any]]]:
    return {
        kind: [{"minor": minor, "resources": dict(amounts)} for minor, amounts in devices.items()]
        for kind, devices in accounts.items()
    }


OF_NODES: Final[Mapping[tuple[str, str], Check]] = {
    ("allocate", ""): _place,
    ("allocate", "free"): _free,
    ("joint", ""): _place,
    ("partition", ""): _place,
    ("partition", "parse-table"): _parse_table,
    ("partition", "policy"): _policy,
    ("partition", "built-in-table"): _built_in_table,
    ("score", "node"): _node_score,
    ("score", "device"): _device_score,
    ("score", "normalize"): _normalize,
    ("score", "rank"): _rank,
    ("normalize", "complete-allocation"): _complete,
    ("normalize", "ratio-to-memory"): _ratio_to_memory,
    ("normalize", "memory-to-ratio"): _memory_to_ratio,
    ("normalize", "topology-tree"): _tree,
    ("normalize", "numa-index"): _numa_index,
    ("normalize", "account"): _account,
}
"""The checks of what nodes make of requests."""
