"""Finds labels that a PromQL expression uses and its series do not have, from the series that are really served.

A query that names such a label is valid, and silently finds nothing: only whoever serves the series can contradict it.
"""

from collections.abc import Collection, Mapping
from typing import Final

from support.promql import (
    SET_OPERATORS,
    Aggregation,
    Binary,
    Call,
    Literal,
    Matcher,
    Node,
    PromqlError,
    Selector,
)

Series = Mapping[str, Collection[str] | None]
"""The labels that the series of each metric may have; None where nobody here can tell."""

Values = Mapping[str, Collection[str]]
"""The values of a label whose values are an enumeration, for metrics whose labels are given."""

Labels = frozenset[str] | None
"""Labels of an expression; None where nobody here can tell."""

NONE: Final[frozenset[str]] = frozenset()
FUNCTIONS: Final = frozenset(
    {
        "absent",
        "avg_over_time",
        "changes",
        "clamp_max",
        "histogram_quantile",
        "increase",
        "label_join",
        "label_replace",
        "rate",
    }
    | {"max_over_time", "sum_over_time", "time", "vector"}
)
"""Those whose labels `LabelCheck` can tell."""


class LabelCheck:
    """Checks one expression; `problems` are sentences about what cannot be."""

    def __init__(self, series: Series, values: Values | None = None) -> None:
        self.problems: list[str] = []
        self._series = series
        self._values = values or {}

    def labels(self, node: Node) -> Labels:
        """The labels of an expression's series, at most."""
        match node:
            case Literal():
                return NONE
            case Selector():
                return self._of_selector(node)
            case Aggregation():
                return self._of_aggregation(node)
            case Call():
                return self._of_call(node)
            case Binary():
                return self._of_binary(node)

    def _need(self, labels: Labels, names: Collection[str], where: str) -> None:
        missing = [] if labels is None else sorted(set(names) - labels)
        if missing:
            self.problems.append(f"{where} has no label {', '.join(missing)}")

    def _of_selector(self, node: Selector) -> Labels:
        if node.metric not in self._series:
            self.problems.append(f"nobody serves {node.metric}")
            return None
        served = self._series[node.metric]
        labels = None if served is None else frozenset(served)
        self._need(labels, {one.label for one in node.matchers}, node.metric)
        for matcher in node.matchers if labels is not None else ():
            self._check_values(node.metric, matcher)
        return labels

    def _check_values(self, metric: str, matcher: Matcher) -> None:
        values = self._values.get(matcher.label)
        if values is None or "$" in matcher.value:
            return
        alternatives = matcher.value.split("|") if "~" in matcher.operator else [matcher.value]
        for one in sorted(set(alternatives) - set(values) - {""}):
            self.problems.append(f"{matcher.label} of {metric} is never {one}")

    def _of_aggregation(self, node: Aggregation) -> Labels:
        labels = self.labels(node.arguments[-1])
        self._need(labels, node.labels, f"what {node.operator} takes")
        if node.operator in {"topk", "bottomk"}:
            return labels
        if node.by:
            return frozenset(node.labels)
        return None if labels is None else labels - set(node.labels)

    def _of_call(self, node: Call) -> Labels:
        if node.function not in FUNCTIONS:
            raise PromqlError(f"Nobody here can tell which labels {node.function}() leaves: add it to FUNCTIONS.")
        if node.function == "histogram_quantile":
            labels = self.labels(node.arguments[1])
            self._need(labels, {"le"}, "what histogram_quantile takes")
            return None if labels is None else labels - {"le"}
        if node.function in {"label_join", "label_replace"}:
            return self._of_new_label(node)
        labels = self.labels(node.arguments[0]) if node.arguments else NONE
        return NONE if node.function in {"absent", "vector"} else labels

    def _of_new_label(self, node: Call) -> Labels:
        labels = self.labels(node.arguments[0])
        texts = [one.value for one in node.arguments[1:] if isinstance(one, Literal)]
        target, *_ = names = [str(text) for text in texts]
        sources = names[2:] if node.function == "label_join" else names[2:3]
        self._need(labels, {name for name in sources if name}, f"what {node.function} takes")
        return None if labels is None else labels | {target}

    def _of_binary(self, node: Binary) -> Labels:
        left, right = self.labels(node.left), self.labels(node.right)
        if _is_scalar(node.left) or _is_scalar(node.right):
            return right if _is_scalar(node.left) else left
        if node.on is not None:
            for side, labels in (("left", left), ("right", right)):
                self._need(labels, node.labels, f"what stands {side} of {node.operator}")
        if node.operator == "or":
            return None if left is None or right is None else left | right
        if node.operator in SET_OPERATORS:
            return left
        return self._of_arithmetic(node, left, right)

    def _of_arithmetic(self, node: Binary, left: Labels, right: Labels) -> Labels:
        many, one = (right, left) if node.many == "right" else (left, right)
        if node.many is not None:
            self._need(one, node.include, f"the single side of {node.operator}")
            return None if many is None else many | set(node.include)
        if node.on is None and None not in (left, right) and left != right:
            self.problems.append(f"{node.operator} matches by all labels, and its sides have other ones")
        if node.on:
            return frozenset(node.labels)
        return None if left is None else left - set(node.labels)


def _is_scalar(node: Node) -> bool:
    match node:
        case Binary(left=left, right=right):
            return _is_scalar(left) and _is_scalar(right)
        case Call(function, _):
            return function == "time"
        case _:
            return isinstance(node, Literal)


def problems(node: Node, series: Series, values: Values | None = None) -> list[str]:
    """What an expression asks for that there is not."""
    check = LabelCheck(series, values)
    check.labels(node)
    return check.problems
