"""Checks status documents against verdicts of a real allocator: the same states, folded as facts of the ledger."""

import re
from collections import Counter
from collections.abc import Iterator
from typing import Any

from gpuledger.domain.dra.objects import PoolId
from gpuledger.domain.quantities import parse_quantity
from gpuledger.edge.watchers.resources import claims, slices, taintrules
from gpuledger.events.node import NodeLabelled
from support.dra import Document, RecordedSlices

KINDS = ((slices, "slices"), (claims, "claims"), (taintrules, "deviceTaintRules"))
"""The watchers' modules, and where their objects are in a vector."""

LOOKED_FOR = re.compile(r"(device|counter set) \S+ (appears|in \S+ consumes)")
"""The errors that make the allocator refuse a pool."""

SLICES_DIFFER = re.compile(rf"{LOOKED_FOR.pattern}|slices? .* of generation|the slices announce|\d+ slices of")
"""All errors about slices; the others are about claims and counters."""

CAN_BE_HAD = ("Available", "PartiallyAllocated")


def recorded_slices(vector: dict[str, Any]) -> RecordedSlices:
    """The facts of a vector's cluster, as watchers record them."""
    node = vector["node"]
    recorded = RecordedSlices((node["name"], NodeLabelled(uid="u", labels=node["labels"])))
    for module, key in KINDS:
        for obj in vector[key]:
            part = module.read(obj)
            if part.subject is not None:
                recorded.record((part.subject, module.KIND.combine([part.content])))
    return recorded


def compared(vector: dict[str, Any]) -> Iterator[tuple[str, Any, Any]]:
    """What the allocator decided and what the status of the node's own slices says, and about what.

    A name that several slices publish has one verdict and several statuses, and is left out. What is free counts from
    nothing to all of a capacity, and nothing is of a device that somebody holds.
    """
    recorded = recorded_slices(vector)
    rows = [row for row in recorded.state.slice.rows.values() if row.node == vector["node"]["name"]]
    statuses = {row.name: recorded.status(row.name) for row in recorded.state.slice.rows.values()}
    times = Counter(
        (row.driver, row.pool, one["name"])
        for row in recorded.state.slice.rows.values()
        for one in statuses[row.name]["devices"]
    )
    for row in rows:
        pool = f"{row.driver}/{row.pool}"
        for device in statuses[row.name]["devices"]:
            decided = vector["verdicts"].get(f"{pool}/{device['name']}")
            if decided is not None and times[row.driver, row.pool, device["name"]] == 1:
                is_held = recorded.state.index(PoolId(row.driver, row.pool)).use(device["name"]).is_exclusive
                yield from _device(f"{pool}/{device['name']}", device, decided, is_held=is_held)
        if "poolStatus" in statuses[row.name]:
            yield from _pool(pool, statuses[row.name]["poolStatus"], vector["pools"][pool])


def _device(where: str, device: Document, decided: dict[str, Any], *, is_held: bool) -> Iterator[tuple[str, Any, Any]]:
    yield f"{where} allocatable", decided["allocatable"], device["state"] in CAN_BE_HAD
    if "availableCapacity" in device and "free" in decided and not is_held:
        total = {name: _nanos(text) for name, text in device["capacity"].items()}
        free = {name: max(0, min(_nanos(text), total[name])) for name, text in decided["free"].items()}
        yield f"{where} free", free, {name: _nanos(text) for name, text in device["availableCapacity"].items()}


def _pool(where: str, recorded: Document, decided: dict[str, Any]) -> Iterator[tuple[str, Any, Any]]:
    """A pool's conditions; of `Valid` the part that the allocator decides, who looks at complete pools and for less."""
    conditions = {one["type"]: one["status"] for one in recorded["conditions"]}
    is_complete, errors = conditions["Complete"] == "True", recorded.get("validationErrors", ())
    is_refused = is_complete and any(LOOKED_FOR.match(one) for one in errors)
    yield where, {"Complete": decided["complete"], "Valid": decided["valid"]}, {
        "Complete": is_complete, "Valid": not is_refused,
    }  # fmt: skip
    yield f"{where} agrees", conditions["Valid"] == "True", is_complete and not any(map(SLICES_DIFFER.match, errors))


def _nanos(text: str) -> int:
    return parse_quantity(text).nanos
