"""Label selectors of hints: which devices, and which virtual functions, a pod lets itself be given. Pure.

They mean what Kubernetes' label selectors mean: NotIn and DoesNotExist also select what lacks the label.
"""

from collections.abc import Iterator, Mapping
from typing import Final

from gpuledger.api.pool_spec import SELECTOR_OPERATORS
from gpuledger.domain.sharing.documents import fields_at, list_at, object_at, text_at
from gpuledger.domain.sharing.model import LabelRequirement, LabelSelector

REQUIREMENTS_MAX: Final = 64
"""Requirements of one selector, and values of one requirement."""

_PARTS: Final = ("matchLabels", "matchExpressions")
_FIELDS: Final = ("key", "operator", "values")


def selects(selector: LabelSelector, labels: Mapping[str, str]) -> bool:
    """Whether the selector selects what has these labels."""
    return all(_holds(one, labels) for one in selector.requirements)


def read_selector(value: object, place: str) -> LabelSelector:
    """The selector that JSON has at a place; an empty one selects everything. Raises ValueError."""
    given = fields_at(value, place, _PARTS)
    labels = object_at(given.get("matchLabels", {}), f"{place}.matchLabels")
    equal = (
        LabelRequirement(key, "In", frozenset({_value(labels[key], f"{place}.matchLabels.{key}")}))
        for key in sorted(labels)
    )
    return LabelSelector((*equal, *_expressions(given.get("matchExpressions"), f"{place}.matchExpressions")))


def _expressions(value: object, place: str) -> Iterator[LabelRequirement]:
    for one, where in list_at(value, place, REQUIREMENTS_MAX):
        given = fields_at(one, where, _FIELDS)
        operator = text_at(given.get("operator"), f"{where}.operator")
        if operator not in SELECTOR_OPERATORS:
            raise ValueError(f"{where}.operator is {operator!r}; allowed are {', '.join(SELECTOR_OPERATORS)}")
        listed = list_at(given.get("values"), f"{where}.values", REQUIREMENTS_MAX)
        values = frozenset(_value(text, at) for text, at in listed)
        if SELECTOR_OPERATORS[operator] is not bool(values):
            needs = "needs values" if SELECTOR_OPERATORS[operator] else "has no values"
            raise ValueError(f"{where}: the operator {operator} {needs}")
        yield LabelRequirement(text_at(given.get("key"), f"{where}.key"), operator, values)


def _value(value: object, place: str) -> str:
    """A label's value, which may be empty."""
    return "" if value == "" else text_at(value, place)


def _holds(requirement: LabelRequirement, labels: Mapping[str, str]) -> bool:
    value = labels.get(requirement.key)
    match requirement.operator:
        case "In":
            return value in requirement.values
        case "NotIn":
            return value not in requirement.values
        case "Exists":
            return value is not None
        case _:
            return value is None
