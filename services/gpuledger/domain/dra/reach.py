"""Decides which nodes can use a slice or a device. Pure.

Rule 2 of the allocator: a slice reaches the nodes that it selects, or those that its devices select where each has a
selection of its own; slices with shared counters are always in reach.
"""

import re
from collections.abc import Mapping
from typing import Final

from gpuledger.domain.dra.objects import DraDevice, LabelledNode, NodeExpression, Reach, Slice

_WHOLE: Final = re.compile(r"[+-]?[0-9]{1,19}", re.ASCII)
"""Whole numbers as Kubernetes reads them; what it cannot hold in 64 bits is none."""

_WHOLE_MAX: Final = 2**63 - 1


def in_reach(one: Slice, node: LabelledNode) -> bool:
    """Whether a slice counts for a node."""
    if one.has_counters:
        return True
    if one.reach is not None:
        return reaches(one.reach, node)
    return any(device_in_reach(one, device, node) for device in one.devices)


def device_in_reach(one: Slice, device: DraDevice, node: LabelledNode) -> bool:
    """Whether a node can use a device of a slice."""
    reach = device.reach if one.reach is None else one.reach
    return reach is not None and reaches(reach, node)


def reaches(reach: Reach, node: LabelledNode) -> bool:
    """Whether a node is selected."""
    return (
        reach.everywhere
        or reach.node == node.name
        or any(term and all(meets(node, one) for one in term) for term in reach.terms)
    )


def meets(node: LabelledNode, requirement: NodeExpression) -> bool:
    """Whether a node meets a requirement; none meets an unknown operator."""
    found = {"metadata.name": node.name} if requirement.is_field else node.labels
    return OPERATORS[requirement.operator](found, requirement) if requirement.operator in OPERATORS else False


def _is_in(found: Mapping[str, str], requirement: NodeExpression) -> bool:
    return found.get(requirement.key) in requirement.values


def _compares(found: Mapping[str, str], requirement: NodeExpression) -> bool:
    """`Gt` and `Lt` compare whole numbers; anything else meets neither."""
    value, bound = whole_number(found.get(requirement.key, "")), whole_number("".join(requirement.values[:1]))
    if value is None or bound is None:
        return False
    return value > bound if requirement.operator == "Gt" else value < bound


def whole_number(text: str) -> int | None:
    """A whole number as Kubernetes reads it; None if the text is none."""
    number = int(text) if _WHOLE.fullmatch(text) else None
    return number if number is not None and -_WHOLE_MAX - 1 <= number <= _WHOLE_MAX else None


OPERATORS = {
    "In": _is_in,
    "NotIn": lambda found, requirement: not _is_in(found, requirement),
    "Exists": lambda found, requirement: requirement.key in found,
    "DoesNotExist": lambda found, requirement: requirement.key not in found,
    "Gt": _compares,
    "Lt": _compares,
}
