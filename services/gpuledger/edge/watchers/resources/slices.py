"""ResourceSlices as facts: what drivers offer, without the objects' bookkeeping. Pure."""

from collections.abc import Mapping
from typing import Any, Final

import orjson

from gpuledger.api.kinds import RESOURCE_SLICES
from gpuledger.edge.watchers.decide import Kind, Object, Part
from gpuledger.edge.watchers.problems import Problems
from gpuledger.edge.watchers.reading import amount, is_storable, key_of, mapping, name_of, text
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
"""Attributes that have several values, by which nothing is selected here."""


def read(obj: Object) -> Part:
    """What matters of a ResourceSlice: nearly all of its spec."""
    spec, problems = mapping(obj, "spec"), Problems()
    driver, pool, name = text(spec.get("driver")), text(mapping(spec, "pool").get("name")), name_of(obj)
    if driver is None or pool is None or name is None:
        return Part(key_of(obj), None, b"", ("it has no name, no driver or no pool",))
    said = _said(spec, mapping(obj, "metadata"), problems) | {"driver": driver, "pool": pool}
    return problems.part(obj, name, said, _without_attributes)


def combine(parts: list[bytes]) -> SlicePublished:
    """The payload; a ResourceSlice has one part."""
    return SlicePublished.model_validate(orjson.loads(parts[0]))


def farewell(uid: str | None) -> SliceWithdrawn:
    """What says that the ResourceSlice is gone."""
    return SliceWithdrawn(uid=uid)


def taint_of(given: Mapping[str, Any], problems: Problems) -> dict[str, Any] | None:
    """A taint; None where something that it needs is missing."""
    names = problems.needed(given, "key", "effect")
    return None if names is None else names | {"value": problems.text(given, "value", TEXT_LENGTH_MAX)}


def _said(spec: Mapping[str, Any], metadata: Mapping[str, Any], problems: Problems) -> dict[str, Any]:
    pool, in_pool = mapping(spec, "pool"), problems.within("pool")
    is_per_device = spec.get("perDeviceNodeSelection") is True
    devices = problems.each(spec, "devices", DEVICES_PER_SLICE_MAX)
    sets = problems.each(spec, "sharedCounters", COUNTER_SETS_MAX)
    return {
        "uid": text(metadata.get("uid")) or "-",
        "generation": problems.count(metadata, "generation"),
        "pool_generation": in_pool.count(pool, "generation"),
        "slice_count": in_pool.count(pool, "resourceSliceCount"),
        "reach": None if is_per_device else reach_of(spec, problems),
        "devices": [
            names | _device(one, place, has_reach=is_per_device)
            for one, place in devices
            if (names := place.needed(one, "name"))
        ],
        "counter_sets": [
            names | {"counters": place.amounts(one, "counters", COUNTERS_MAX, "value")}
            for one, place in sets
            if (names := place.needed(one, "name"))
        ],
    }


def _device(given: Mapping[str, Any], problems: Problems, *, has_reach: bool) -> dict[str, Any]:
    taints = (taint_of(one, place) for one, place in problems.each(given, "taints", TAINTS_MAX))
    attributes = problems.entries(given, "attributes", ATTRIBUTES_MAX)
    capacities = problems.entries(given, "capacity", ATTRIBUTES_MAX)
    return {
        "shareable": given.get("allowMultipleAllocations") is True,
        "attributes": {
            name: value for name, one, place in attributes if (value := _attribute(mapping(one), place)) is not None
        },
        "capacity": {
            name: found for name, one, place in capacities if (found := _capacity(mapping(one), place)) is not None
        },
        "consumes": _consumes(given, problems),
        "taints": [taint for taint in taints if taint],
        "reach": reach_of(given, problems) if has_reach else None,
    }


def _attribute(given: Mapping[str, Any], problems: Problems) -> object:
    """The value of an attribute, of whichever type it is; those with several values are passed over."""
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
        problems.tell("value", given)
    return None


def _capacity(given: Mapping[str, Any], problems: Problems) -> dict[str, Any] | None:
    value = problems.amount(given, "value")
    return None if value is None else {"value": value, "policy": _policy(given, problems)}


def _policy(given: Mapping[str, Any], problems: Problems) -> dict[str, Any] | None:
    if given.get("requestPolicy") is None:
        return None
    policy, allowed = mapping(given, "requestPolicy"), mapping(given, "requestPolicy", "validRange")
    values = [(amount(value), value) for value in problems.listed(policy, "validValues", VALUES_MAX)]
    for found, value in values:
        if found is None:
            problems.tell("validValues", value)
    return {
        "default": problems.amount(policy, "default"),
        "values": [found for found, _ in values if found is not None],
        **{name: problems.amount(allowed, name) for name in ("min", "max", "step")},
    }


def _consumes(given: Mapping[str, Any], problems: Problems) -> dict[str, dict[str, str]]:
    """Amounts by counter set and counter; a set that is named twice is consumed twice."""
    found: dict[str, dict[str, str]] = {}
    for one, place in problems.each(given, "consumesCounters", COUNTER_SETS_MAX):
        if names := place.needed(one, "counterSet"):
            counters = found.setdefault(names["counterSet"], {})
            room = COUNTERS_MAX - len(counters)
            counters.update(place.amounts(one, "counters", room, "value"))
    return found


def _without_attributes(said: dict[str, Any]) -> str:
    for device in said["devices"]:
        device["attributes"] = {}
    return "the attributes of its devices"


KIND: Final = Kind(
    name="slices",
    resource=RESOURCE_SLICES,
    aggregate=SlicePublished.AGGREGATE,
    read=read,
    combine=combine,
    farewell=farewell,
)
