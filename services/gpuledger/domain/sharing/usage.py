"""What pods hold of a node's devices, and what is left, with some pods thought away (preemption). Pure."""

from collections.abc import Mapping, Set
from typing import Final, NamedTuple

from gpuledger.domain.sharing.conversion import completed
from gpuledger.domain.sharing.model import NOTHING, Allocated, Allocation, Amounts, Device, NodeState

Accounts = dict[str, dict[int, Amounts]]
"""Amounts by type and minor; types, minors and resources with nothing are left out."""

NO_DEVICES: Final[Mapping[int, Amounts]] = {}
NO_FUNCTIONS: Final[Set[str]] = frozenset()


class Usage(NamedTuple):
    """What is held: amounts by type and minor, and virtual functions, by bus id, by (type, minor)."""

    amounts: Mapping[str, Mapping[int, Amounts]]
    functions: Mapping[tuple[str, int], Set[str]]

    def of(self, kind: str, minor: int) -> Amounts:
        """What is held of one device."""
        return self.amounts.get(kind, NO_DEVICES).get(minor, NOTHING)

    def in_use(self, kind: str, minor: int) -> bool:
        """Whether anybody holds anything of the device."""
        held = self.of(kind, minor)
        return bool(held and any(held.values())) or bool(self.functions.get((kind, minor)))


def usage_of(node: NodeState, preempted: Set[str] = frozenset()) -> Usage:
    """What pods hold on the node; what the `preempted` ones hold, by their UIDs, counts as free."""
    if preempted.isdisjoint(node.holders):
        return Usage(node.used, node.functions_held)
    left = NodeState(node.name)
    for pod, allocation in node.holders.items():
        if pod not in preempted:
            left.hold(pod, allocation)
    return Usage(left.used, left.functions_held)


def limit_of(device: Device, designated: Allocated | None) -> Amounts:
    """How much of a device a pod may get to which this was designated; without memory, that of its ratio."""
    return NOTHING if designated is None else completed(designated.resources, device.resources)


def designation(designated: Allocation | None, kind: str) -> Mapping[int, Allocated] | None:
    """By minor what was designated of one type; None: the pod may have any device of it."""
    if designated is None or kind not in designated:
        return None
    return {one.minor: one for one in designated[kind]}


def total_accounts(node: NodeState) -> Accounts:
    """What the healthy devices have."""
    return _accounts(
        {
            kind: {minor: one.resources for minor, one in devices.items() if one.healthy}
            for kind, devices in node.devices.items()
        }
    )


def used_accounts(node: NodeState) -> Accounts:
    """What pods hold."""
    return _accounts(node.used)


def preemptible_accounts(node: NodeState, preempted: Set[str]) -> Accounts:
    """What these pods would give back."""
    given = NodeState(node.name)
    for pod in preempted:
        given.hold(pod, node.holders.get(pod, {}))
    return _accounts(given.used)


def free_accounts(
    node: NodeState, *, preempted: Set[str] = frozenset(), designated: Allocation | None = None
) -> Accounts:
    """What is left of healthy devices, never below 0; of types with a designation, no more than that."""
    usage = usage_of(node, preempted)
    return _accounts(
        {
            kind: {minor: _left(one, usage, designation(designated, kind)) for minor, one in devices.items()}
            for kind, devices in node.devices.items()
        }
    )


def _left(device: Device, usage: Usage, limits: Mapping[int, Allocated] | None) -> Amounts:
    if not device.healthy:
        return NOTHING
    used = usage.of(device.type, device.minor)
    left = {resource: max(0, total - used.get(resource, 0)) for resource, total in device.resources.items()}
    if limits is None:
        return left
    limit = limit_of(device, limits.get(device.minor))
    return {resource: min(amount, limit.get(resource, 0)) for resource, amount in left.items()}


def _accounts(amounts: Mapping[str, Mapping[int, Amounts]]) -> Accounts:
    found: Accounts = {}
    for kind, devices in amounts.items():
        for minor, of_device in sorted(devices.items()):
            some = {resource: amount for resource, amount in of_device.items() if amount}
            if some:
                found.setdefault(kind, {})[minor] = some
    return found
