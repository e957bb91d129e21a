"""What a ResourceSlice may say of a driver's devices, and a device taint rule of their taints."""

import re
from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

from gpuledger.edge.kube.schema.causes import Cause, Object, duplicate, forbidden, invalid, required, too_long, too_many
from gpuledger.local.kubeapi.strategies import dra_checks as check
from gpuledger.local.kubeapi.strategies.core_quantities import amount
from gpuledger.local.kubeapi.strategies.core_shared import immutable

DEVICES_MAX = 128
ADVANCED_DEVICES_MAX = 64
"""Where a device has taints, consumes counters or has attributes that are lists."""

ATTRIBUTES_MAX = 32
"""Attributes and capacities of one device together."""

ATTRIBUTE_VALUES_MAX = 48
ATTRIBUTE_MAX = 64
"""Bytes of an attribute's value."""

TAINTS_MAX = 16
COUNTER_SETS_MAX = 8
COUNTERS_MAX = 32
CONSUMPTIONS_MAX = 2
BINDING_CONDITIONS_MAX = 4
VALID_VALUES_MAX = 10

_VERSION = re.compile(
    r"(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)"
    r"(-(0|[1-9]\d*|\d*[A-Za-z-][0-9A-Za-z-]*)(\.(0|[1-9]\d*|\d*[A-Za-z-][0-9A-Za-z-]*))*)?"
    r"(\+[0-9A-Za-z-]+(\.[0-9A-Za-z-]+)*)?",
    re.ASCII,
)
_PLACES = ("nodeName", "nodeSelector", "allNodes", "perDeviceNodeSelection")
_DEVICE_PLACES = _PLACES[:3]
_SCALARS = ("bool", "int", "string", "version")
_LISTS = ("bools", "ints", "strings", "versions")
_FIXED = ("driver", "nodeName")


def slice_causes(spec: Mapping[str, Any], old: Mapping[str, Any] | None) -> Iterator[Cause]:
    """What is wrong with a slice's spec, and with what it was changed from."""
    yield from check.driver(spec.get("driver"), "spec.driver")
    yield from _pool_causes(spec.get("pool") or {}, "spec.pool")
    if old is not None:
        yield from immutable(spec.get("pool") or {}, old.get("pool") or {}, ("name",), "spec.pool.")
        yield from immutable(spec, old, _FIXED, "spec.")
    yield from _place_causes(spec)
    if spec.get("sharedCounters") is not None and spec.get("devices") is not None:
        yield invalid("spec", "", "only one of `sharedCounters` or `devices` is allowed")
    yield from _devices_causes(spec, old or {})
    yield from check.unique_items(
        spec.get("sharedCounters"), COUNTER_SETS_MAX, "spec.sharedCounters", _counter_set, lambda one: one.get("name")
    )


def rule_causes(spec: Mapping[str, Any]) -> Iterator[Cause]:
    """What is wrong with a device taint rule's spec."""
    selector = spec.get("deviceSelector") or {}
    for name, checks in (("driver", check.driver), ("pool", check.pool), ("device", check.label_name)):
        if selector.get(name) is not None:
            yield from checks(selector[name], f"spec.deviceSelector.{name}")
    yield from check.taint(spec.get("taint") or {}, "spec.taint")


def binding_causes(holder: Mapping[str, Any], field: str) -> Iterator[Cause]:
    """Conditions that say whether a device is bound: both lists or none, without an overlap."""
    good, bad = holder.get("bindingConditions") or (), holder.get("bindingFailureConditions") or ()
    for name, values in (("bindingConditions", good), ("bindingFailureConditions", bad)):
        yield from check.unique_items(values, BINDING_CONDITIONS_MAX, f"{field}.{name}", check.label_key, str)
    for index, value in enumerate(bad):
        if value in good:
            message = "bindingFailureConditions must not overlap with bindingConditions"
            yield invalid(f"{field}.bindingFailureConditions[{index}]", value, message)
    if bad and not good:
        message = "bindingConditions are required to use bindingFailureConditions"
        yield invalid(f"{field}.bindingConditions", None, message)
    if good and not bad:
        message = "bindingFailureConditions are required to use bindingConditions"
        yield invalid(f"{field}.bindingFailureConditions", None, message)


def _pool_causes(pool: Mapping[str, Any], field: str) -> Iterator[Cause]:
    yield from check.pool(pool.get("name"), f"{field}.name")
    count, generation = pool.get("resourceSliceCount") or 0, pool.get("generation") or 0
    if count <= 0:
        yield invalid(f"{field}.resourceSliceCount", count, "must be greater than zero")
    if generation < 0:
        yield invalid(f"{field}.generation", generation, "must be greater than or equal to zero")


def _place_causes(spec: Mapping[str, Any]) -> Iterator[Cause]:
    yield from _place_value_causes(spec, "spec", _PLACES, "must be either unset or set to a non-empty string")
    terms = (spec.get("nodeSelector") or {}).get("nodeSelectorTerms") or ()
    if spec.get("nodeSelector") is not None and len(terms) != 1:
        yield invalid("spec.nodeSelector.nodeSelectorTerms", list(terms), "must have exactly one node selector term")
    message = "exactly one of `nodeName`, `nodeSelector`, `allNodes`, `perDeviceNodeSelection` is required"
    yield from _one_place(spec, "spec", _PLACES, message, f"{message}, but multiple fields are set")


def _place_value_causes(holder: Mapping[str, Any], field: str, places: tuple[str, ...], empty: str) -> Iterator[Cause]:
    name, selector = holder.get("nodeName"), holder.get("nodeSelector")
    if name:
        yield from check.node_name(name, f"{field}.nodeName")
    elif name is not None:
        yield invalid(f"{field}.nodeName", name, empty)
    if selector is not None:
        yield from check.node_selector(selector, f"{field}.nodeSelector")
    for flag in places[2:]:
        if holder.get(flag) is False:
            yield invalid(f"{field}.{flag}", False, "must be either unset or set to true")


def _one_place(holder: Mapping[str, Any], field: str, places: tuple[str, ...], none: str, many: str) -> Iterator[Cause]:
    given = [name for name in places if holder.get(name) or (name == "nodeSelector" and holder.get(name) is not None)]
    if not given:
        yield required(field, none)
    elif len(given) > 1:
        yield invalid(field, "{" + ", ".join(f"`{name}`" for name in given) + "}", many)


def _devices_causes(spec: Mapping[str, Any], old: Mapping[str, Any]) -> Iterator[Cause]:
    devices = spec.get("devices") or ()
    limit = ADVANCED_DEVICES_MAX if any(map(_is_advanced, devices)) else DEVICES_MAX
    before = {device.get("name"): device for device in old.get("devices") or ()}
    checks = partial(_device, before=before, is_placed=bool(spec.get("perDeviceNodeSelection")))
    yield from check.unique_items(devices, limit, "spec.devices", checks, lambda one: one.get("name") or "")


def _is_advanced(device: Mapping[str, Any]) -> bool:
    attributes = (device.get("attributes") or {}).values()
    has_list = any(one.get(name) is not None for one in attributes for name in _LISTS)
    return bool(device.get("taints") or device.get("consumesCounters") or has_list)


def _device(device: Object, field: str, *, before: Mapping[str | None, Object], is_placed: bool) -> Iterator[Cause]:
    old = before.get(device.get("name"), {})
    yield from check.label_name(device.get("name"), f"{field}.name")
    yield from _count_causes(device, field)
    for name, value in (device.get("attributes") or {}).items():
        yield from check.qualified(name, f"{field}.attributes")
        yield from _attribute(value, f"{field}.attributes[{name}]")
    if device.get("capacity") != old.get("capacity"):
        is_shared = bool(device.get("allowMultipleAllocations"))
        for name, value in (device.get("capacity") or {}).items():
            yield from check.qualified(name, f"{field}.capacity")
            yield from _capacity(value, f"{field}.capacity[{name}]", is_shared=is_shared)
    if device.get("taints") != old.get("taints"):
        yield from check.items(device.get("taints"), TAINTS_MAX, f"{field}.taints", check.taint)
    yield from check.unique_items(
        device.get("consumesCounters"),
        CONSUMPTIONS_MAX,
        f"{field}.consumesCounters",
        _consumption,
        lambda one: one.get("counterSet"),
    )
    yield from _device_place(device, field, is_placed=is_placed)
    yield from binding_causes(device, field)


def _device_place(device: Object, field: str, *, is_placed: bool) -> Iterator[Cause]:
    if is_placed:
        yield from _place_value_causes(device, field, _DEVICE_PLACES, "must not be empty")
        message = (
            "exactly one of `nodeName`, `nodeSelector`, or `allNodes` is required when `perDeviceNodeSelection` is set "
            "to true in the ResourceSlice spec"
        )
        yield from _one_place(device, field, _DEVICE_PLACES, message, message)
    elif any(device.get(name) is not None for name in _DEVICE_PLACES):
        message = (
            "`nodeName`, `nodeSelector` and `allNodes` can only be set if `perDeviceNodeSelection` is set to true "
            "in the ResourceSlice spec"
        )
        yield invalid(field, None, message)


def _count_causes(device: Object, field: str) -> Iterator[Cause]:
    attributes = device.get("attributes") or {}
    count = len(attributes) + len(device.get("capacity") or {})
    if count > ATTRIBUTES_MAX:
        message = f"the total number of attributes and capacities must not exceed {ATTRIBUTES_MAX}"
        yield invalid(field, count, message)
    values = sum(sum(len(one.get(name) or ()) for name in _LISTS) or 1 for one in attributes.values())
    if values > ATTRIBUTE_VALUES_MAX:
        yield invalid(field, values, f"the total number of attribute values must not exceed {ATTRIBUTE_VALUES_MAX}")


def _attribute(value: Object, field: str) -> Iterator[Cause]:
    given = [name for name in (*_SCALARS, *_LISTS) if value.get(name) is not None]
    for name in given:
        if name in _LISTS and not value[name]:
            yield invalid(f"{field}.{name}", value[name], "must not be empty if specified")
        whole = enumerate(value[name]) if name in _LISTS else [(None, value[name])]
        for index, one in whole:
            tail = "" if index is None else f"[{index}]"
            yield from _text_causes(one, name.removesuffix("s"), f"{field}.{name}{tail}")
    if len(given) != 1:
        yield invalid(field, value if given else "", "exactly one value must be specified")


def _text_causes(value: Any, kind: str, field: str) -> Iterator[Cause]:
    if kind == "version" and not _VERSION.fullmatch(value):
        yield invalid(field, value, "must be a string compatible with semver.org spec 2.0.0")
    if kind in {"string", "version"} and len(value.encode()) > ATTRIBUTE_MAX:
        yield too_long(field, ATTRIBUTE_MAX)


def _capacity(value: Object, field: str, *, is_shared: bool) -> Iterator[Cause]:
    policy, field = value.get("requestPolicy"), f"{field}.requestPolicy"
    if policy is None:
        return
    if not is_shared:
        yield forbidden(field, "allowMultipleAllocations must be true")
    elif policy.get("validValues") and policy.get("validRange") is not None:
        message = 'exactly one policy can be specified, cannot specify "validValues" and "validRange" at the same time'
        yield forbidden(field, message)
    elif policy.get("validValues"):
        yield from _valid_values(policy, value.get("value"), field)
    elif policy.get("validRange") is not None:
        yield from _valid_range(policy, value.get("value"), field)


def _valid_values(policy: Object, whole: object, field: str) -> Iterator[Cause]:
    values, default = policy["validValues"], policy.get("default")
    if default is None:
        yield required(f"{field}.default", "required when validValues is defined")
        return
    field = f"{field}.validValues"
    if len(values) > VALID_VALUES_MAX:
        yield too_many(field, len(values), VALID_VALUES_MAX)
        return
    amounts = [amount(value) for value in values]
    for index, one in enumerate(amounts):
        if index and amounts[index - 1] > one:
            yield invalid(f"{field}[{index}]", values[index], "values must be sorted in ascending order")
        if one > amount(whole):
            yield invalid(f"{field}[{index}]", values[index], f"option is larger than capacity value: {whole}")
        if one in amounts[:index]:
            yield duplicate(f"{field}[{index}]", values[index])
    if amount(default) not in amounts:
        yield invalid(field, default, "default value is not valid according to the requestPolicy")


def _valid_range(policy: Object, whole: object, field: str) -> Iterator[Cause]:
    limits, default = policy["validRange"], policy.get("default")
    if default is None:
        yield required(f"{field}.default", "required when validRange is defined")
        return
    field = f"{field}.validRange"
    if limits.get("min") is None:
        yield required(f"{field}.min", "required when validRange is defined")
        return
    least, most = amount(limits["min"]), amount(limits["max"]) if limits.get("max") is not None else None
    if least > amount(whole):
        yield invalid(f"{field}.min", limits["min"], f"min is larger than capacity value: {whole}")
    if amount(default) < least:
        yield invalid(f"{field}.default", default, f"default is less than min: {limits['min']}")
    if most is not None and least > most:
        yield invalid(f"{field}.max", limits["min"], f"min is larger than max: {limits['max']}")
    if most is not None and most > amount(whole):
        yield invalid(f"{field}.max", limits["max"], f"max is larger than capacity value: {whole}")
    if most is not None and amount(default) > most:
        yield invalid(f"{field}.default", default, f"default is more than max: {limits['max']}")
    yield from _steps(limits, default, whole, field)


def _steps(limits: Object, default: object, whole: object, field: str) -> Iterator[Cause]:
    if limits.get("step") is None:
        return
    step, least, field = amount(limits["step"]), amount(limits["min"]), f"{field}.step"
    if step <= 0:
        yield invalid(field, limits["step"], "must be greater than zero")
        return
    if least + step > amount(whole):
        yield invalid(field, limits["step"], f"one step is larger than capacity value: {whole}")
    for value in (default, limits.get("max")):
        if value is not None and (amount(value) - least) % step:
            message = f"value is not a multiple of a given step ({limits['step']}) from ({limits['min']})"
            yield invalid(field, value, message)


def _counter_set(value: Object, field: str) -> Iterator[Cause]:
    yield from check.required_label_name(value.get("name"), f"{field}.name")
    yield from _counters(value.get("counters"), f"{field}.counters")


def _consumption(value: Object, field: str) -> Iterator[Cause]:
    yield from check.required_label_name(value.get("counterSet"), f"{field}.counterSet")
    yield from _counters(value.get("counters"), f"{field}.counters")


def _counters(counters: Mapping[str, Any] | None, field: str) -> Iterator[Cause]:
    if not counters:
        yield required(field)
    elif len(counters) > COUNTERS_MAX:
        yield too_many(field, len(counters), COUNTERS_MAX)
    else:
        for name in counters:
            yield from check.label_name(name, field)
