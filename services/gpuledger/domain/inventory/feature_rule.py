"""The labels that a NodeFeatureRule derives from the features that Node Feature Discovery finds on a node. Pure.

A rule's conditions and fixed labels are read from the rule itself. The labels of its templates are computed here a
second time, per rule, on purpose: a check that ran the same template would make the same mistakes.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from gpuledger.api.labels import (
    LABEL_DEVICE_COUNT,
    LABEL_KERNEL_PREFIX,
    LABEL_OS_ID,
    LABEL_OS_VERSION_ID,
    LABEL_PRESENT,
    LABEL_TRUE,
    NFD_KERNEL_VERSION,
    NFD_OS_RELEASE,
    NFD_PCI_DEVICE,
    device_label,
)

Object = dict[str, Any]
OS_LABELS: Final = {"ID": LABEL_OS_ID, "VERSION_ID": LABEL_OS_VERSION_ID}
_VALUE = re.compile(r"([A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?)?").fullmatch

Matches = Mapping[str, Any]
"""What matched, by feature: a list of attributes for `pci.device`, values by name for the others."""


@dataclass(slots=True)
class Features:
    """The features that Node Feature Discovery found on a node, as far as the rule uses them."""

    instances: dict[str, list[dict[str, str]]] = field(default_factory=dict)
    attributes: dict[str, dict[str, str]] = field(default_factory=dict)
    flags: dict[str, set[str]] = field(default_factory=dict)


class UnknownRuleError(Exception):
    """This check does not know the rule."""


def expected_labels(features: Features, rule: Object) -> dict[str, str]:
    """The labels that a NodeFeatureRule derives from features.

    Node Feature Discovery drops labels whose value Kubernetes would not take, and so does this.

    Raises:
        UnknownRuleError: the rule has a template, or an operator, that this check does not know.
    """
    labels: dict[str, str] = {}
    for one in rule["spec"]["rules"]:
        matches = matching(features, one.get("matchFeatures") or ())
        if matches is None:
            continue
        labels |= one.get("labels") or {}
        if "labelsTemplate" in one:
            labels |= _template(one["name"])(matches)
    return {label: value for label, value in labels.items() if len(value) <= 63 and _VALUE(value)}


def matching(features: Features, terms: Sequence[Object]) -> Matches | None:
    """What matches all terms, by feature; None where one of them matches nothing."""
    matches: dict[str, Any] = {}
    for term in terms:
        name, expressions = term["feature"], term.get("matchExpressions") or {}
        found = _matching(features, name, expressions)
        if not found:
            return None
        matches[name] = found
    return matches


def _matching(features: Features, name: str, expressions: Mapping[str, Object]) -> Any:  # noqa: ANN401 - as `Matches`
    if name in features.instances:
        return [one for one in features.instances[name] if holds(one, expressions)]
    values = {**dict.fromkeys(features.flags.get(name, ()), ""), **features.attributes.get(name, {})}
    return {key: values[key] for key in expressions} if holds(values, expressions) else {}


def holds(values: Mapping[str, str], expressions: Mapping[str, Object]) -> bool:
    """Whether attributes satisfy all expressions."""
    return all(_operator(values.get(key), expression) for key, expression in expressions.items())


def _operator(value: str | None, expression: Object) -> bool:
    match expression["op"]:
        case "Exists":
            return value is not None
        case "In":
            return value in expression["value"]
    raise UnknownRuleError(f"The operator {expression['op']!r} of the NodeFeatureRule is unknown to this check.")


def _gpu_labels(matches: Matches) -> dict[str, str]:
    devices = matches[NFD_PCI_DEVICE]
    labels = {LABEL_PRESENT: LABEL_TRUE, LABEL_DEVICE_COUNT: str(len(devices))}
    for index, device in enumerate(devices):
        labels |= {device_label(index, fact): device.get(fact, "") for fact in ("vendor", "device", "class")}
    return labels


def _system_labels(matches: Matches) -> dict[str, str]:
    kernel, release = matches[NFD_KERNEL_VERSION], matches[NFD_OS_RELEASE]
    labels = {f"{LABEL_KERNEL_PREFIX}{name}": value for name, value in kernel.items()}
    return labels | {OS_LABELS[name]: value for name, value in release.items() if name in OS_LABELS}


TEMPLATES: Final[Mapping[str, Callable[[Matches], dict[str, str]]]] = {
    "deckhouse.gpu.nvidia": _gpu_labels,
    "deckhouse.system.kernel-os": _system_labels,
}
"""The labels of the templates of the shipped rule, by the name of the rule that has one."""


def _template(name: str) -> Callable[[Matches], dict[str, str]]:
    if name not in TEMPLATES:
        raise UnknownRuleError(f"The template of the rule {name!r} is unknown to this check.")
    return TEMPLATES[name]
