"""The static rules of a pool's spec: what can be told without looking at anything else. Pure.

Each finding begins with the field that it is about. The CRD's schema refuses most of this already, where the API server
has one; here it is said in words, and rules that a schema cannot know (the module's settings) are added.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final

from gpuledger.api.mig_profile import MigProfile
from gpuledger.api.pool_spec import BACKENDS, PROVIDERS, STRATEGIES, TAINT_EFFECTS, UNITS
from gpuledger.domain.pools.validation import (
    PoolProblem,
    expression_problems,
    is_whole,
    name_problems,
    profile_problems,
    slices_problems,
)
from gpuledger.edge.admission.serving.review import Object, items, part

_PCI_ID: Final = re.compile(r"(?:0x)?[0-9A-Fa-f]{4}").fullmatch
_PREFIX: Final = r"(?:[a-z0-9](?:[a-z0-9.-]{0,251}[a-z0-9])?/)?"
_LABEL_KEY: Final = re.compile(rf"{_PREFIX}[A-Za-z0-9](?:[A-Za-z0-9_.-]{{0,61}}[A-Za-z0-9])?").fullmatch
_LABEL_VALUE: Final = re.compile(r"(?:[A-Za-z0-9](?:[A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?)?").fullmatch


def problems_of(pool: Object, *, slices_max: int) -> Iterator[str]:
    """What is wrong with a pool; `slices_max` is the module's setting `maxSlicesPerDevice`."""
    spec = part(pool, "spec")
    if name := part(pool, "metadata").get("name"):
        yield from _messages(name_problems(str(name)))
    yield from _one_of(spec, "provider", PROVIDERS, "spec.provider")
    yield from _one_of(spec, "backend", BACKENDS, "spec.backend")
    yield from _resource(part(spec, "resource"), "spec.resource", slices_max)
    yield from _selector(spec.get("nodeSelector"), "spec.nodeSelector")
    for name in ("include", "exclude"):
        yield from _devices(part(spec, "deviceSelector", name), f"spec.deviceSelector.{name}")
    yield from _assignment(part(spec, "deviceAssignment"), "spec.deviceAssignment")
    yield from _scheduling(part(spec, "scheduling"), "spec.scheduling")


def _one_of(holder: Object, name: str, known: tuple[str, ...], field: str) -> Iterator[str]:
    if name in holder and holder[name] not in known:
        yield f"{field}: {holder[name]!r} is not known; use {' or '.join(known)}"


def _resource(resource: Object, field: str, slices_max: int) -> Iterator[str]:
    unit, slices, devices = resource.get("unit"), resource.get("slicesPerUnit"), resource.get("maxDevicesPerNode")
    if unit in UNITS:
        yield from _messages(profile_problems(unit, resource.get("migProfile")))
    else:
        yield f"{field}.unit: {unit!r} is not known; use {' or '.join(UNITS)}"
    if slices is not None:
        yield from _messages(slices_problems(slices, slices_max))
    if devices is not None and not (is_whole(devices) and devices >= 1):
        yield f"{field}.maxDevicesPerNode: {devices!r} is not 1 or more"


def _devices(chosen: Object, field: str) -> Iterator[str]:
    for name in ("pciVendors", "pciDevices"):
        yield from _each(items(chosen, name), f"{field}.{name}", _PCI_ID, "a PCI id of four hexadecimal digits")
    yield from _each(
        items(chosen, "migProfiles"), f"{field}.migProfiles", MigProfile.parse, "a MIG profile, such as 1g.10gb"
    )
    for name in ("inventoryIDs", "products"):
        yield from _each(items(chosen, name), f"{field}.{name}", str.strip, "a name")
    capable = chosen.get("migCapable")
    if capable is not None and not isinstance(capable, bool):
        yield f"{field}.migCapable: {capable!r} is neither true nor false"


def _assignment(assignment: Object, field: str) -> Iterator[str]:
    selector = assignment.get("autoApproveSelector")
    if selector is not None and assignment.get("requireAnnotation", True):
        yield f"{field}.autoApproveSelector: it needs requireAnnotation: false; set that, or remove the selector"
    yield from _selector(selector, f"{field}.autoApproveSelector")


def _scheduling(scheduling: Object, field: str) -> Iterator[str]:
    yield from _one_of(scheduling, "strategy", STRATEGIES, f"{field}.strategy")
    if "topologyKey" in scheduling:
        yield from _each([scheduling["topologyKey"]], f"{field}.topologyKey", _LABEL_KEY, "a label's key")
    for index, taint in enumerate(items(scheduling, "taints")):
        at, said = f"{field}.taints[{index}]", part(taint)
        yield from _each([said.get("key")], f"{at}.key", _LABEL_KEY, "a label's key")
        yield from _each([said.get("value") or ""], f"{at}.value", _LABEL_VALUE, "a label's value")
        if said.get("effect") not in TAINT_EFFECTS:
            yield f"{at}.effect: {said.get('effect')!r} is not known; use {', '.join(TAINT_EFFECTS)}"


def _selector(selector: object, field: str) -> Iterator[str]:
    labels = part(selector, "matchLabels")
    yield from _each(list(labels), f"{field}.matchLabels", _LABEL_KEY, "a label's key")
    yield from _each(list(labels.values()), f"{field}.matchLabels", _LABEL_VALUE, "a label's value")
    for index, one in enumerate(items(selector, "matchExpressions")):
        yield from _expression(part(one), f"{field}.matchExpressions[{index}]")


def _expression(one: Mapping[str, Any], at: str) -> Iterator[str]:
    yield from _each([one.get("key")], f"{at}.key", _LABEL_KEY, "a label's key")
    values = items(one, "values")
    yield from _each(values, f"{at}.values", _LABEL_VALUE, "a label's value")
    yield from _messages(expression_problems(at, one.get("operator"), values))


def _messages(problems: Iterable[PoolProblem]) -> Iterator[str]:
    return (one.message for one in problems)


def _each(values: list[Any], field: str, fits: Callable[[str], object], what: str) -> Iterator[str]:
    for value in values:
        if not isinstance(value, str) or not fits(value):
            yield f"{field}: {value!r} is not {what}"
