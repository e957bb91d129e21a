"""Validates ResourceSlices: names, placement, and limits on devices, attributes and counters."""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from gpuledger.edge.kube.schema.causes import Cause, Object, invalid, required, too_long, too_many
from gpuledger.local.kubeapi.strategies import dra_checks as check
from gpuledger.local.kubeapi.strategies.core_shared import immutable

DEVICES_MAX = 128
ADVANCED_DEVICES_MAX = 64
"""The limit if a device has taints, consumes counters or has attributes that are lists."""

ATTRIBUTES_MAX = 32
"""Attributes and capacities of one device together."""

ATTRIBUTE_MAX = 64
"""Bytes of an attribute's value."""

TAINTS_MAX = 16
COUNTER_SETS_MAX = 8
COUNTERS_MAX = 32
CONSUMPTIONS_MAX = 2

_VERSION = re.compile(
    r"(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)"
    r"(-(0|[1-9]\d*|\d*[A-Za-z-][0-9A-Za-z-]*)(\.(0|[1-9]\d*|\d*[A-Za-z-][0-9A-Za-z-]*))*)?"
    r"(\+[0-9A-Za-z-]+(\.[0-9A-Za-z-]+)*)?",
    re.ASCII,
)
_PLACES = ("nodeName", "nodeSelector", "allNodes", "perDeviceNodeSelection")
_SCALARS = ("bool", "int", "string", "version")
_LISTS = ("bools", "ints", "strings", "versions")
_FIXED = ("driver", "nodeName")


def slice_causes(spec: Mapping[str, Any], old: Mapping[str, Any] | None) -> Iterator[Cause]:
    """Everything wrong with a slice's spec, and forbidden changes of it."""
    pool = spec.get("pool") or {}
    yield from check.driver(spec.get("driver"), "spec.driver")
    yield from check.pool(pool.get("name"), "spec.pool.name")
    if (count := pool.get("resourceSliceCount") or 0) <= 0:
        yield invalid("spec.pool.resourceSliceCount", count, "must be greater than zero")
    if old is not None:
        yield from immutable(pool, old.get("pool") or {}, ("name",), "spec.pool.")
        yield from immutable(spec, old, _FIXED, "spec.")
    yield from _place_causes(spec)
    if spec.get("sharedCounters") is not None and spec.get("devices") is not None:
        yield invalid("spec", "", "only one of `sharedCounters` or `devices` is allowed")
    devices = spec.get("devices") or ()
    limit = ADVANCED_DEVICES_MAX if any(map(_is_advanced, devices)) else DEVICES_MAX
    yield from check.unique_items(devices, limit, "spec.devices", _device, lambda one: one.get("name") or "")
    yield from check.unique_items(
        spec.get("sharedCounters"), COUNTER_SETS_MAX, "spec.sharedCounters", _counter_set, lambda one: one.get("name")
    )


def _place_causes(spec: Mapping[str, Any]) -> Iterator[Cause]:
    message = "exactly one of `nodeName`, `nodeSelector`, `allNodes`, `perDeviceNodeSelection` is required"
    given = [name for name in _PLACES if spec.get(name)]
    if not given:
        yield required("spec", message)
    elif len(given) > 1:
        found = "{" + ", ".join(f"`{name}`" for name in given) + "}"
        yield invalid("spec", found, f"{message}, but multiple fields are set")


def _is_advanced(device: Mapping[str, Any]) -> bool:
    attributes = (device.get("attributes") or {}).values()
    has_list = any(one.get(name) is not None for one in attributes for name in _LISTS)
    return bool(device.get("taints") or device.get("consumesCounters") or has_list)


def _device(device: Object, field: str) -> Iterator[Cause]:
    attributes, capacity = device.get("attributes") or {}, device.get("capacity") or {}
    yield from check.label_name(device.get("name"), f"{field}.name")
    if len(attributes) + len(capacity) > ATTRIBUTES_MAX:
        message = f"the total number of attributes and capacities must not exceed {ATTRIBUTES_MAX}"
        yield invalid(field, len(attributes) + len(capacity), message)
    for name, value in attributes.items():
        yield from check.qualified(name, f"{field}.attributes")
        yield from _attribute(value, f"{field}.attributes[{name}]")
    for name in capacity:
        yield from check.qualified(name, f"{field}.capacity")
    yield from check.items(device.get("taints"), TAINTS_MAX, f"{field}.taints", check.taint)
    consumed, field = device.get("consumesCounters"), f"{field}.consumesCounters"
    yield from check.unique_items(consumed, CONSUMPTIONS_MAX, field, _consumption, lambda one: one.get("counterSet"))


def _attribute(value: Object, field: str) -> Iterator[Cause]:
    given = [name for name in (*_SCALARS, *_LISTS) if value.get(name) is not None]
    if len(given) != 1:
        yield invalid(field, value if given else "", "exactly one value must be specified")
    for name in given:
        if name in _SCALARS:
            yield from _text_causes(value[name], name, f"{field}.{name}")
            continue
        if not value[name]:
            yield invalid(f"{field}.{name}", value[name], "must not be empty if specified")
        for index, one in enumerate(value[name]):
            yield from _text_causes(one, name.removesuffix("s"), f"{field}.{name}[{index}]")


def _text_causes(value: Any, kind: str, field: str) -> Iterator[Cause]:
    if kind == "version" and not _VERSION.fullmatch(value):
        yield invalid(field, value, "must be a string compatible with semver.org spec 2.0.0")
    if kind in {"string", "version"} and len(value.encode()) > ATTRIBUTE_MAX:
        yield too_long(field, ATTRIBUTE_MAX)


def _counter_set(value: Object, field: str) -> Iterator[Cause]:
    yield from check.label_name(value.get("name"), f"{field}.name")
    yield from _counters(value.get("counters"), f"{field}.counters")


def _consumption(value: Object, field: str) -> Iterator[Cause]:
    yield from check.label_name(value.get("counterSet"), f"{field}.counterSet")
    yield from _counters(value.get("counters"), f"{field}.counters")


def _counters(counters: Mapping[str, Any] | None, field: str) -> Iterator[Cause]:
    if not counters:
        yield required(field)
    elif len(counters) > COUNTERS_MAX:
        yield too_many(field, len(counters), COUNTERS_MAX)
    else:
        for name in counters:
            yield from check.label_name(name, field)
