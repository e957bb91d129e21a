"""Tells whether requirements on a node's labels can hold together on any node. Pure; reads no node.

A requirement in a form that Kubernetes would refuse counts as possible.
"""

from collections.abc import Iterable, Iterator, Mapping

from gpuledger.domain.dra.objects import LabelledNode, NodeExpression
from gpuledger.domain.dra.reach import OPERATORS, meets, whole_number
from gpuledger.edge.kube.objects import items, mapping
from gpuledger.edge.webhooks.serving.review import Object


def expression(one: NodeExpression) -> dict[str, object]:
    """A requirement as node affinity writes it."""
    found: dict[str, object] = {"key": one.key, "operator": one.operator}
    return found | ({"values": list(one.values)} if one.values else {})


def in_words(one: NodeExpression) -> str:
    """A requirement as people read it."""
    return f"{one.key} {one.operator} {', '.join(one.values)}".strip()


def of_labels(labels: Mapping[str, object]) -> list[NodeExpression]:
    """The requirements of a pod's `nodeSelector`."""
    return [NodeExpression(key, "In", (str(value),)) for key, value in labels.items()]


def of_expressions(term: Object) -> list[NodeExpression]:
    """The requirements of a term's `matchExpressions`."""
    found = map(mapping, items(term, "matchExpressions"))
    return [
        NodeExpression(str(one.get("key")), str(one.get("operator")), tuple(map(str, items(one, "values"))))
        for one in found
    ]


def contradiction(requirements: Iterable[NodeExpression]) -> str | None:
    """A label whose requirements cannot all hold on any node; None if they may."""
    by_key: dict[str, list[NodeExpression]] = {}
    for one in requirements:
        if one.operator in OPERATORS:
            by_key.setdefault(one.key, []).append(one)
    return next((key for key, found in by_key.items() if not _is_possible(key, found)), None)


def _is_possible(key: str, requirements: list[NodeExpression]) -> bool:
    operators = {one.operator for one in requirements}
    if "DoesNotExist" in operators and operators & {"In", "Exists", "Gt", "Lt"}:
        return False
    choices = [set(one.values) for one in requirements if one.operator == "In"]
    if choices:
        nodes = (LabelledNode("", {key: value}) for value in set.intersection(*choices))
        return any(all(meets(node, one) for one in requirements) for node in nodes)
    above, below = list(_bounds(requirements, "Gt")), list(_bounds(requirements, "Lt"))
    return not above or not below or min(below) - max(above) > 1


def _bounds(requirements: list[NodeExpression], operator: str) -> Iterator[int]:
    found = (whole_number("".join(one.values[:1])) for one in requirements if one.operator == operator)
    return (bound for bound in found if bound is not None)
