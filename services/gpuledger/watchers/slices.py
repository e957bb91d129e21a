"""ResourceSlices as facts: what drivers offer, without the objects' bookkeeping. Pure."""

from collections.abc import Mapping
from typing import Any, Final

import orjson

from gpuledger.events.payload import TEXT_LENGTH_MAX
from gpuledger.events.slice import SlicePublished, SliceWithdrawn
from gpuledger.kube.names import RESOURCE_SLICES
from gpuledger.watchers.decide import Kind, Object, Part
from gpuledger.watchers.reaches import reach_of
from gpuledger.watchers.reading import amount, amounts, key_of, listed, mapping, name_of, packed, text, whole


def read(obj: Object) -> Part:
    """What matters of a ResourceSlice: nearly all of its spec."""
    spec, metadata = mapping(obj, "spec"), mapping(obj, "metadata")
    driver, pool = text(spec.get("driver")), text(mapping(spec, "pool").get("name"))
    if driver is None or pool is None:
        return Part(key_of(obj), None, b"", ("it names no driver or no pool",))
    return Part(key_of(obj), name_of(obj), packed(_said(spec, metadata) | {"driver": driver, "pool": pool}))


def combine(parts: list[bytes]) -> SlicePublished:
    """The payload; a ResourceSlice has one part."""
    return SlicePublished.model_validate(orjson.loads(parts[0]))


def farewell(uid: str | None) -> SliceWithdrawn:
    """What says that the ResourceSlice is gone."""
    return SliceWithdrawn(uid=uid)


def taint_of(given: Mapping[str, Any]) -> dict[str, Any] | None:
    """A taint; None where something that it needs is missing."""
    key, effect = text(given.get("key")), text(given.get("effect"))
    if key is None or effect is None:
        return None
    return {"key": key, "value": text(given.get("value"), TEXT_LENGTH_MAX), "effect": effect}


def _said(spec: Mapping[str, Any], metadata: Mapping[str, Any]) -> dict[str, Any]:
    pool = mapping(spec, "pool")
    is_per_device = spec.get("perDeviceNodeSelection") is True
    return {
        "uid": text(metadata.get("uid")) or "-",
        "generation": whole(metadata.get("generation")),
        "pool_generation": whole(pool.get("generation")),
        "slice_count": whole(pool.get("resourceSliceCount")),
        "reach": None if is_per_device else reach_of(spec),
        "devices": [
            _device(mapping(one), has_reach=is_per_device)
            for one in listed(spec, "devices")
            if text(mapping(one).get("name"))
        ],
        "counter_sets": [
            {"name": mapping(one).get("name"), "counters": amounts(mapping(one, "counters"), "value")}
            for one in listed(spec, "sharedCounters")
            if text(mapping(one).get("name"))
        ],
    }


def _device(given: Mapping[str, Any], *, has_reach: bool) -> dict[str, Any]:
    taints = (taint_of(mapping(one)) for one in listed(given, "taints"))
    return {
        "name": given["name"],
        "shareable": given.get("allowMultipleAllocations") is True,
        "attributes": {
            name: value
            for name, one in sorted(mapping(given, "attributes").items())
            if text(name) and (value := _attribute(mapping(one))) is not None
        },
        "capacity": {
            name: found
            for name, one in sorted(mapping(given, "capacity").items())
            if text(name) and (found := _capacity(mapping(one))) is not None
        },
        "consumes": _consumes(given),
        "taints": [taint for taint in taints if taint],
        "reach": reach_of(given) if has_reach else None,
    }


def _attribute(given: Mapping[str, Any]) -> object:
    """The value of an attribute, of whichever type it is; kinds that are not known here are left out."""
    for key in ("string", "int", "bool"):
        if key in given:
            return given[key]
    version = text(given.get("version"))
    return {"version": version} if version else None


def _capacity(given: Mapping[str, Any]) -> dict[str, Any] | None:
    value = amount(given.get("value"))
    return None if value is None else {"value": value, "policy": _policy(given)}


def _policy(given: Mapping[str, Any]) -> dict[str, Any] | None:
    if "requestPolicy" not in given:
        return None
    policy, allowed = mapping(given, "requestPolicy"), mapping(given, "requestPolicy", "validRange")
    return {
        "default": amount(policy.get("default")),
        "values": [found for value in listed(policy, "validValues") if (found := amount(value)) is not None],
        **{name: amount(allowed.get(name)) for name in ("min", "max", "step")},
    }


def _consumes(given: Mapping[str, Any]) -> dict[str, dict[str, str]]:
    """Amounts by counter set and counter; a set that is named twice is consumed twice."""
    found: dict[str, dict[str, str]] = {}
    for one in listed(given, "consumesCounters"):
        name = text(mapping(one).get("counterSet"))
        if name is not None:
            found.setdefault(name, {}).update(amounts(mapping(one, "counters"), "value"))
    return found


KIND: Final = Kind(
    name="slices",
    resource=RESOURCE_SLICES,
    aggregate=SlicePublished.AGGREGATE,
    read=read,
    combine=combine,
    farewell=farewell,
)
