"""GPUs near each other: the tree of a node, its NUMA nodes and PCIe switches, and the place that is best in it. Pure.

The rule (vectors of sharing, Choice of devices): the deepest scope with enough fitting GPUs; among equals the one whose
path has more scopes in use, so that broken-up places are filled first; then the lower NUMA node and switch.
"""

from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Final

from gpuledger.domain.sharing.candidates import FittingDevice, Offer, ranked
from gpuledger.domain.sharing.model import Device, NodeState, Scope, TypeRequest

Place = tuple[int | tuple[int, str], ...]
"""A scope of the tree, in the order of preference: () is the node, (numa,) and (numa, switch) are inside it."""

_DEPTHS: Final = {Scope.PCIE: 2, Scope.NUMA: 1, Scope.NODE: 0}
"""How many steps each scope is below the node, the deepest first."""

_SWITCHES_MAX: Final = 4096
"""Places that are remembered: a cluster has few kinds of machines, and their switches have the same names."""


def tree(devices: Iterable[Device]) -> Mapping[int, Mapping[str, list[int]]]:
    """Minors by NUMA node and PCIe switch; devices whose place nobody knows are left out."""
    found: dict[int, dict[str, list[int]]] = {}
    for one in devices:
        if one.topology is not None:
            found.setdefault(one.topology.numa, {}).setdefault(one.topology.pcie, []).append(one.minor)
    return found


def numa_index(node: NodeState) -> Mapping[str, Mapping[int, int]]:
    """The NUMA node of every device, by type and minor, as far as it is known."""
    return {
        kind: {minor: one.topology.numa for minor, one in devices.items() if one.topology is not None}
        for kind, devices in node.devices.items()
    }


def has_tree(offer: Offer, asked: TypeRequest) -> bool:
    """Whether the tree decides: all devices of the type have a place, and it is no share on several of them."""
    if asked.shared and asked.number > 1:
        return False
    return all(one.topology is not None for one in offer.devices(asked.type))


def nearest(offer: Offer, asked: TypeRequest, candidates: Sequence[FittingDevice]) -> list[FittingDevice] | None:
    """The candidates that the pod gets; None: no scope that is allowed has enough. All candidates have a place."""
    for depth in _depths(asked.hint.required_scope):
        scopes = _with_enough(candidates, depth, asked.number)
        if scopes:
            return _best(offer, asked, scopes)
    return None


def within(devices: Sequence[Device], scope: Scope | None) -> bool:
    """Whether these devices are in one scope of that kind; None: they need not be."""
    if scope is Scope.DEVICE:
        return len(devices) == 1
    depth = 0 if scope is None else _DEPTHS[scope]
    if not depth:
        return True
    return all(one.topology is not None for one in devices) and len({_place(one, depth) for one in devices}) == 1


def _depths(required: Scope | None) -> list[int]:
    """Where to search, the deepest first: no wider than the required scope. One device is in any scope."""
    least = 0 if required is None else _DEPTHS.get(required, 0)
    return [depth for depth in _DEPTHS.values() if depth >= least]


def _with_enough(candidates: Sequence[FittingDevice], depth: int, number: int) -> dict[Place, list[FittingDevice]]:
    """The scopes of one depth that have enough candidates, each with them by minor."""
    scopes: dict[Place, list[FittingDevice]] = {}
    for one in candidates:
        scopes.setdefault(_place(one.device, depth), []).append(one)
    return {place: inside for place, inside in scopes.items() if len(inside) >= number}


def _best(offer: Offer, asked: TypeRequest, scopes: Mapping[Place, list[FittingDevice]]) -> list[FittingDevice]:
    """Devices of the scope that is most in use. The strategy counts for a share of one device alone."""
    in_use = _in_use(offer, asked.type)
    steps = {place: _steps_in_use(place, in_use) for place in sorted(scopes)}
    most = max(steps.values())
    equal = [place for place, used in steps.items() if used == most]
    if asked.shared:
        return ranked(offer, asked, [one for place in equal for one in scopes[place]])[: asked.number]
    return scopes[equal[0]][: asked.number]


def _in_use(offer: Offer, kind: str) -> set[Place]:
    """All scopes of the tree of which pods hold something."""
    held = [one for one in offer.devices(kind) if offer.in_use(one)]
    return {_place(one, depth) for one in held for depth in _DEPTHS.values()}


def _steps_in_use(place: Place, in_use: set[Place]) -> int:
    """How many scopes on the way from the node to this one, itself included, are in use."""
    return sum([place[:depth] in in_use for depth in range(len(place) + 1)])


def _place(device: Device, depth: int) -> Place:
    """The scope of that depth in which the device is; it has a topology."""
    where = device.topology
    assert where is not None
    return _switch_place(where.numa, where.pcie)[:depth]


@lru_cache(maxsize=_SWITCHES_MAX)
def _switch_place(numa: int, switch: str) -> Place:
    """The place of a switch; switches go by number where they have numbers, and else by name."""
    return (numa, (int(switch), switch) if switch.isdecimal() else (-1, switch))
