"""Whether conditions on a node's labels can hold together. Pure; no node is looked at.

What cannot be told (a form that Kubernetes would refuse anyhow) counts as possible.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from gpuledger.domain.dra.objects import NodeExpression
from gpuledger.edge.admission.serving.review import Object, items, part

_WHOLE: Final = re.compile(r"[+-]?[0-9]{1,19}", re.ASCII).fullmatch


def expression(one: NodeExpression) -> dict[str, object]:
    """A requirement as node affinity has it."""
    found: dict[str, object] = {"key": one.key, "operator": one.operator}
    return found | ({"values": list(one.values)} if one.values else {})


def in_words(one: NodeExpression) -> str:
    """A requirement as people read it."""
    return f"{one.key} {one.operator} {', '.join(one.values)}".strip()


def of_labels(labels: Mapping[str, object]) -> list[NodeExpression]:
    """What a pod's `nodeSelector` asks."""
    return [NodeExpression(key, "In", (str(value),)) for key, value in labels.items()]


def of_expressions(term: Object) -> list[NodeExpression]:
    """What the `matchExpressions` of a term ask."""
    found = (part(one) for one in items(term, "matchExpressions"))
    return [
        NodeExpression(str(one.get("key")), str(one.get("operator")), tuple(map(str, items(one, "values"))))
        for one in found
    ]


def contradiction(requirements: Iterable[NodeExpression]) -> str | None:
    """A label of which the requirements cannot all hold on any node; None where they may."""
    by_key: dict[str, list[NodeExpression]] = {}
    for one in requirements:
        by_key.setdefault(one.key, []).append(one)
    return next((key for key, asked in by_key.items() if not _possible(asked)), None)


def _possible(asked: list[NodeExpression]) -> bool:
    operators = {one.operator for one in asked}
    if "DoesNotExist" in operators and operators & {"In", "Exists", "Gt", "Lt"}:
        return False
    choices = [set(one.values) for one in asked if one.operator == "In"]
    if choices:
        return any(all(_holds(one, value) for one in asked) for value in set.intersection(*choices))
    return _some_number_fits(asked)


def _holds(one: NodeExpression, value: str) -> bool:
    match one.operator:
        case "In":
            return value in one.values
        case "NotIn":
            return value not in one.values
        case "Gt" | "Lt":
            number, bound = _number(value), _bound(one)
            if number is None or bound is None:
                return False
            return number > bound if one.operator == "Gt" else number < bound
    return True


def _some_number_fits(asked: list[NodeExpression]) -> bool:
    above, below = list(_bounds(asked, "Gt")), list(_bounds(asked, "Lt"))
    return not above or not below or min(below) - max(above) > 1


def _bounds(asked: list[NodeExpression], operator: str) -> Iterator[int]:
    found = (_bound(one) for one in asked if one.operator == operator)
    return (bound for bound in found if bound is not None)


def _bound(one: NodeExpression) -> int | None:
    return _number("".join(one.values[:1]))


def _number(text: str) -> int | None:
    return int(text) if _WHOLE(text) else None
