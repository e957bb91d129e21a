"""Checks a pool's manifest for what its CRD's schema cannot say: the domain's rules, labels, related fields. Pure.

The API server has validated the manifest against the schema before it asks. Each finding begins with its field.
"""

import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final

from gpuledger.api.mig_profile import MigProfile
from gpuledger.domain.pools.validation import (
    A_PROFILE,
    PoolProblem,
    expression_problems,
    name_problems,
    profile_problems,
    slices_problems,
)
from gpuledger.edge.kube.objects import items, mapping
from gpuledger.edge.webhooks.serving.review import Object

_PREFIX: Final = r"(?:[a-z0-9](?:[a-z0-9.-]{0,251}[a-z0-9])?/)?"
_LABEL_KEY: Final = re.compile(rf"{_PREFIX}[A-Za-z0-9](?:[A-Za-z0-9_.-]{{0,61}}[A-Za-z0-9])?").fullmatch
_LABEL_VALUE: Final = re.compile(r"(?:[A-Za-z0-9](?:[A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?)?").fullmatch


def manifest_problems(pool: Object, *, slices_max: int) -> Iterator[str]:
    """What is wrong with a pool; `slices_max` is the module's setting `maxSlicesPerDevice`."""
    spec, resource = mapping(pool, "spec"), mapping(pool, "spec", "resource")
    if name := mapping(pool, "metadata").get("name"):
        yield from _messages(name_problems(str(name)))
    yield from _messages(profile_problems(resource.get("unit"), resource.get("migProfile")))
    if (slices := resource.get("slicesPerUnit")) is not None:
        yield from _messages(slices_problems(slices, slices_max))
    yield from _selector(spec.get("nodeSelector"), "spec.nodeSelector")
    for name in ("include", "exclude"):
        profiles = items(spec, "deviceSelector", name, "migProfiles")
        yield from _each(profiles, f"spec.deviceSelector.{name}.migProfiles", MigProfile.parse, A_PROFILE)
    yield from _assignment(mapping(spec, "deviceAssignment"), "spec.deviceAssignment")
    yield from _scheduling(mapping(spec, "scheduling"), "spec.scheduling")


def _assignment(assignment: Object, field: str) -> Iterator[str]:
    selector = assignment.get("autoApproveSelector")
    if selector is not None and assignment.get("requireAnnotation", True):
        yield f"{field}.autoApproveSelector: it needs requireAnnotation: false; set that, or remove the selector"
    yield from _selector(selector, f"{field}.autoApproveSelector")


def _scheduling(scheduling: Object, field: str) -> Iterator[str]:
    if "topologyKey" in scheduling:
        yield from _each([scheduling["topologyKey"]], f"{field}.topologyKey", _LABEL_KEY, "a label's key")
    for index, taint in enumerate(map(mapping, items(scheduling, "taints"))):
        yield from _each([taint.get("key")], f"{field}.taints[{index}].key", _LABEL_KEY, "a label's key")
        yield from _each([taint.get("value") or ""], f"{field}.taints[{index}].value", _LABEL_VALUE, "a label's value")


def _selector(selector: object, field: str) -> Iterator[str]:
    labels = mapping(selector, "matchLabels")
    yield from _each(labels, f"{field}.matchLabels", _LABEL_KEY, "a label's key")
    yield from _each(labels.values(), f"{field}.matchLabels", _LABEL_VALUE, "a label's value")
    for index, one in enumerate(map(mapping, items(selector, "matchExpressions"))):
        at, values = f"{field}.matchExpressions[{index}]", items(one, "values")
        yield from _each([one.get("key")], f"{at}.key", _LABEL_KEY, "a label's key")
        yield from _each(values, f"{at}.values", _LABEL_VALUE, "a label's value")
        yield from _messages(expression_problems(at, one.get("operator"), values))


def _messages(problems: Iterable[PoolProblem]) -> Iterator[str]:
    return (one.message for one in problems)


def _each(values: Iterable[Any], field: str, fits: Callable[[str], object], what: str) -> Iterator[str]:
    for value in values:
        if not isinstance(value, str) or not fits(value):
            yield f"{field}: {value!r} is not {what}"
