"""ResourceSlices as facts: the devices that drivers publish, with capacities, counters and taints. Pure."""

from collections.abc import Mapping
from typing import Any, Final

from gpuledger.api.kinds import RESOURCE_SLICES
from gpuledger.edge.kube.objects import mapping
from gpuledger.edge.watchers.decide import Object, ObjectPart, WatchedKind
from gpuledger.edge.watchers.fields import FieldReader, amount, is_storable, name_of, skipped, text, uid_of
from gpuledger.edge.watchers.resources.reaches import reach_of
from gpuledger.events.payload import BIGINT_MAX, TEXT_LENGTH_MAX
from gpuledger.events.slice import (
    ATTRIBUTES_MAX,
    COUNTER_SETS_MAX,
    COUNTERS_MAX,
    DEVICES_PER_SLICE_MAX,
    TAINTS_MAX,
    VALUES_MAX,
    SlicePublished,
    SliceWithdrawn,
)

_LISTS: Final = frozenset({"strings", "ints", "bools", "versions"})
"""Attributes with several values, which no selector here uses."""


def read(obj: Object) -> ObjectPart:
    """The relevant content of a ResourceSlice: nearly all of its spec."""
    spec, reader = mapping(obj, "spec"), FieldReader()
    driver, pool, name = text(spec.get("driver")), text(mapping(spec, "pool").get("name")), name_of(obj)
    if driver is None or pool is None or name is None:
        return skipped(obj, "it has no name, no driver or no pool")
    content = _published(obj, reader) | {"driver": driver, "pool": pool}
    return reader.part(obj, name, content, _without_attributes)


def taint_of(given: Mapping[str, Any], reader: FieldReader) -> dict[str, Any] | None:
    """A taint; None where something that it needs is missing."""
    names = reader.required(given, "key", "effect")
    return None if names is None else names | {"value": reader.text(given, "value", TEXT_LENGTH_MAX)}


def _published(obj: Object, reader: FieldReader) -> dict[str, Any]:
    spec, metadata = mapping(obj, "spec"), mapping(obj, "metadata")
    pool, in_pool = mapping(spec, "pool"), reader.within("pool")
    is_per_device = spec.get("perDeviceNodeSelection") is True
    devices = reader.each(spec, "devices", DEVICES_PER_SLICE_MAX)
    sets = reader.each(spec, "sharedCounters", COUNTER_SETS_MAX)
    return {
        "uid": uid_of(obj),
        "generation": reader.count(metadata, "generation"),
        "pool_generation": in_pool.count(pool, "generation"),
        "slice_count": in_pool.count(pool, "resourceSliceCount"),
        "reach": None if is_per_device else reach_of(spec, reader),
        "devices": [
            names | _device(one, place, has_reach=is_per_device)
            for one, place in devices
            if (names := place.required(one, "name"))
        ],
        "counter_sets": [
            names | {"counters": place.amounts(one, "counters", COUNTERS_MAX, "value")}
            for one, place in sets
            if (names := place.required(one, "name"))
        ],
    }


def _device(given: Mapping[str, Any], reader: FieldReader, *, has_reach: bool) -> dict[str, Any]:
    taints = (taint_of(one, place) for one, place in reader.each(given, "taints", TAINTS_MAX))
    attributes = reader.entries(given, "attributes", ATTRIBUTES_MAX)
    capacities = reader.entries(given, "capacity", ATTRIBUTES_MAX)
    return {
        "shareable": given.get("allowMultipleAllocations") is True,
        "attributes": {
            name: value for name, one, place in attributes if (value := _attribute(mapping(one), place)) is not None
        },
        "capacity": {
            name: found for name, one, place in capacities if (found := _capacity(mapping(one), place)) is not None
        },
        "consumes": _consumes(given, reader),
        "taints": [taint for taint in taints if taint],
        "reach": reach_of(given, reader) if has_reach else None,
    }


def _attribute(given: Mapping[str, Any], reader: FieldReader) -> object:
    """The value of an attribute, of any type; those with several values are skipped."""
    match given:
        case {"string": str(value)} if len(value) <= TEXT_LENGTH_MAX and is_storable(value):
            return value
        case {"bool": bool(value)}:
            return value
        case {"int": int(value)} if not isinstance(value, bool) and -BIGINT_MAX <= value <= BIGINT_MAX:
            return value
        case {"version": value} if version := text(value, TEXT_LENGTH_MAX):
            return {"version": version}
    if not _LISTS & given.keys():
        reader.reject("value", given)
    return None


def _capacity(given: Mapping[str, Any], reader: FieldReader) -> dict[str, Any] | None:
    value = reader.amount(given, "value")
    return None if value is None else {"value": value, "policy": _policy(given, reader)}


def _policy(given: Mapping[str, Any], reader: FieldReader) -> dict[str, Any] | None:
    if given.get("requestPolicy") is None:
        return None
    policy, allowed = mapping(given, "requestPolicy"), mapping(given, "requestPolicy", "validRange")
    values = [(amount(value), value) for value in reader.listed(policy, "validValues", VALUES_MAX)]
    for found, value in values:
        if found is None:
            reader.reject("validValues", value)
    return {
        "default": reader.amount(policy, "default"),
        "values": [found for found, _ in values if found is not None],
        **{name: reader.amount(allowed, name) for name in ("min", "max", "step")},
    }


def _consumes(given: Mapping[str, Any], reader: FieldReader) -> dict[str, dict[str, str]]:
    """Amounts by counter set and counter; a set that is named twice is consumed twice."""
    found: dict[str, dict[str, str]] = {}
    for one, place in reader.each(given, "consumesCounters", COUNTER_SETS_MAX):
        if names := place.required(one, "counterSet"):
            counters = found.setdefault(names["counterSet"], {})
            room = COUNTERS_MAX - len(counters)
            counters.update(place.amounts(one, "counters", room, "value"))
    return found


def _without_attributes(content: dict[str, Any]) -> str:
    for device in content["devices"]:
        device["attributes"] = {}
    return "the attributes of its devices"


KIND: Final = WatchedKind("slices", RESOURCE_SLICES, SlicePublished, SliceWithdrawn, read)
