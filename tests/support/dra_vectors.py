"""Checks availability against verdicts of a real allocator, one cluster state a line.

The objects go the way that they go in the product: read by the watchers into payloads, and from these into the domain.
"""

import json
from collections import defaultdict
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

from gpuledger.domain.dra.capacity import fits
from gpuledger.domain.dra.counters import Balance
from gpuledger.domain.dra.device_state import blockers, taints_of
from gpuledger.domain.dra.facts import holdings_of, rule_of, slice_of
from gpuledger.domain.dra.objects import ClaimId, Holding, LabelledNode, PoolId, Slice, TaintRule
from gpuledger.domain.dra.pools import LocatedDevice, PoolView, seen_everywhere, seen_from
from gpuledger.domain.dra.reach import device_in_reach
from gpuledger.domain.dra.use import UNUSED, Use, uses_of
from gpuledger.domain.quantities import parse_quantity
from gpuledger.edge.watchers.resources import claims, slices, taintrules
from gpuledger.events.claim import ClaimAllocated
from support.dra_capacity import free_of, remaining


class State(NamedTuple):
    """A cluster: pools' slices, what is held of each pool, rules, and the node from which it is looked at."""

    node: LabelledNode
    pools: dict[PoolId, list[Slice]]
    held: dict[PoolId, list[Holding]]
    rules: list[TaintRule]


def vectors(folder: Path, every: int = 1) -> Iterator[dict[str, Any]]:
    """Every line of every file of a folder, or one of so many."""
    for path in sorted(folder.glob("*.jsonl")):
        with path.open() as lines:
            yield from map(json.loads, islice(lines, 0, None, every))


def differences(vector: dict[str, Any]) -> list[str]:
    """Where what we compute is not what the allocator decided."""
    state = _state(vector)
    found: list[str] = []
    for pool, every in state.pools.items():
        view = seen_from(every, state.node)
        uses = uses_of(state.held.get(pool, ()))
        expected = vector["pools"][str(pool)]
        found += _compare(f"{pool}", expected, _pool(expected, view, every, uses))
        for key, decided in vector["verdicts"].items():
            of, _, device = key.rpartition("/")
            if of == str(pool):
                found += _compare(key, decided, _device(state, pool, view, uses, device, decided))
    return found


def _state(vector: dict[str, Any]) -> State:
    pools: dict[PoolId, list[Slice]] = defaultdict(list)
    held: dict[PoolId, list[Holding]] = defaultdict(list)
    for obj in vector["slices"]:
        part = slices.read(obj)
        one = slice_of(str(part.subject), slices.KIND.combine([part.content]))
        pools[one.pool].append(one)
    for obj in vector["claims"]:
        part = claims.read(obj)
        fact = claims.KIND.combine([part.content])
        if isinstance(fact, ClaimAllocated):
            for holding in holdings_of(ClaimId(obj["metadata"]["namespace"], obj["metadata"]["name"], fact.uid), fact):
                held[holding.pool].append(holding)
    parts = [taintrules.read(obj) for obj in vector["deviceTaintRules"]]
    rules = [rule_of(str(part.subject), taintrules.KIND.combine([part.content])) for part in parts if part.subject]
    return State(LabelledNode(vector["node"]["name"], vector["node"]["labels"]), pools, held, rules)


def _pool(expected: dict[str, Any], view: PoolView, every: list[Slice], uses: dict[str, Use]) -> dict[str, Any]:
    everywhere = seen_everywhere(every)
    found: dict[str, Any] = {
        "complete": view.is_complete,
        "valid": view.is_valid,
        "onNode": view.on_node,
        "everywhere": {"complete": everywhere.is_complete, "valid": everywhere.is_valid},
    }
    if "generation" in expected:
        found["generation"] = view.generation
    if left := Balance(view, uses).left:
        found["counters"] = {name: dict(one) for name, one in left.items()}
    return found


def _is_usable(view: PoolView, located: LocatedDevice, node: LabelledNode | None) -> bool:
    """Whether a node (None: any) may have a device of the pool, as far as the pool decides it."""
    return view.gives and located.slice in view.near and (node is None or device_in_reach(*located, node))


def _device(
    state: State, pool: PoolId, view: PoolView, uses: dict[str, Use], name: str, expected: dict[str, Any]
) -> dict[str, Any]:
    near = [
        located for located in view.located() if located.device.name == name and _is_usable(view, located, state.node)
    ]
    use = uses.get(name, UNUSED)
    balance = Balance(view, uses)
    blocked = [blockers(one.device, use, balance, taints_of(pool, one.device, state.rules)) for one in near]
    found: dict[str, Any] = {"allocatable": any(not one.reasons for one in blocked)}
    if "free" not in expected and "plain" not in expected:
        return found
    device = (near or _newest(state.pools[pool], name))[0].device
    if "plain" in expected:
        found["plain"] = found["allocatable"] and fits(device, use, {})
    if "free" in expected:
        found["free"] = free_of(device, use)
        found["remaining"] = remaining(device, use) if found["allocatable"] else dict.fromkeys(device.capacity, 0)
    return found


def _newest(every: list[Slice], name: str) -> list[LocatedDevice]:
    located = [LocatedDevice(one, device) for one in every for device in one.devices if device.name == name]
    return sorted(located, key=lambda one: -one.slice.generation)


def _compare(where: str, expected: Any, found: Any) -> list[str]:
    expected = _plain(expected)
    return [] if expected == found else [f"{where}: the allocator says {expected}, we say {found}"]


def _plain(expected: Any) -> Any:
    """The same with quantities as numbers."""
    if isinstance(expected, dict):
        return {key: _plain(value) for key, value in expected.items()}
    return parse_quantity(expected).nanos if isinstance(expected, str) else expected
