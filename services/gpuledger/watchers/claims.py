"""ResourceClaims as facts: what they ask for, and what they were given. Pure.

Who is reserved for a claim and what drivers say about its devices change nothing in what it holds, and are left out.
"""

from collections.abc import Mapping
from typing import Any, Final

import orjson

from gpuledger.events.claim import (
    EXPRESSION_LENGTH_MAX,
    ClaimAllocated,
    ClaimReleased,
    ClaimRequested,
)
from gpuledger.events.payload import TEXT_LENGTH_MAX
from gpuledger.kube.names import RESOURCE_CLAIMS
from gpuledger.watchers.decide import Kind, Object, Part
from gpuledger.watchers.reaches import terms_of
from gpuledger.watchers.reading import amounts, key_of, listed, mapping, packed, text, whole

_REACH: Final = {"node": None, "all_nodes": False}


def read(obj: Object) -> Part:
    """What matters of a ResourceClaim."""
    metadata, devices = mapping(obj, "metadata"), mapping(obj, "spec", "devices")
    said: dict[str, Any] = {
        "uid": text(metadata.get("uid")) or "-",
        "requests": [_request(mapping(one)) for one in listed(devices, "requests") if text(mapping(one).get("name"))],
        "constraints": [_constraint(mapping(one)) for one in listed(devices, "constraints")],
        "owner": _owner(metadata),
    }
    allocation = mapping(obj, "status").get("allocation")
    if isinstance(allocation, Mapping):
        results = listed(mapping(allocation, "devices"), "results")
        said["results"] = [found for one in results if (found := _result(mapping(one)))]
        selector = allocation.get("nodeSelector")
        said["reach"] = _REACH | {"terms": terms_of(mapping(selector))} if selector else None
    return Part(key_of(obj), key_of(obj), packed(said))


def combine(parts: list[bytes]) -> ClaimRequested | ClaimAllocated:
    """The payload; a ResourceClaim has one part."""
    said = orjson.loads(parts[0])
    return ClaimAllocated.model_validate(said) if "results" in said else ClaimRequested.model_validate(said)


def farewell(uid: str | None) -> ClaimReleased:
    """What says that the ResourceClaim is gone."""
    return ClaimReleased(uid=uid)


def selectors_of(holder: Mapping[str, Any]) -> list[str]:
    """The CEL expressions of a class or request."""
    found = (mapping(one, "cel").get("expression") for one in listed(holder, "selectors"))
    return [one for given in found if (one := text(given, EXPRESSION_LENGTH_MAX)) is not None]


def _owner(metadata: Mapping[str, Any]) -> str | None:
    """The pod that the claim was made for."""
    owners = (mapping(one) for one in listed(metadata, "ownerReferences"))
    return next((text(one.get("name")) for one in owners if one.get("kind") == "Pod" and one.get("controller")), None)


def _request(given: Mapping[str, Any]) -> dict[str, Any]:
    """A request with its alternatives; what asks exactly is its own only one."""
    name = given["name"]
    if exactly := mapping(given, "exactly"):
        return {"name": name, "wishes": [_wish(name, exactly)]}
    wishes = [mapping(one) for one in listed(given, "firstAvailable")]
    return {"name": name, "wishes": [_wish(one["name"], one) for one in wishes if text(one.get("name"))]}


def _wish(name: str, given: Mapping[str, Any]) -> dict[str, Any]:
    mode = given.get("allocationMode")
    return {
        "name": name,
        "device_class": text(given.get("deviceClassName")) or "-",
        "mode": mode if mode in ("ExactCount", "All") else "ExactCount",
        "count": whole(given.get("count")) or 1,
        "admin_access": given.get("adminAccess") is True,
        "selectors": selectors_of(given),
        "tolerations": [_toleration(mapping(one)) for one in listed(given, "tolerations")],
        "capacity": amounts(mapping(given, "capacity", "requests")),
    }


def _toleration(given: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "key": text(given.get("key")),
        "operator": text(given.get("operator")) or "Equal",
        "value": text(given.get("value"), TEXT_LENGTH_MAX),
        "effect": text(given.get("effect")),
    }


def _constraint(given: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "requests": [one for one in listed(given, "requests") if text(one)],
        "match_attribute": text(given.get("matchAttribute")),
        "distinct_attribute": text(given.get("distinctAttribute")),
    }


def _result(given: Mapping[str, Any]) -> dict[str, Any] | None:
    names = {key: text(given.get(key)) for key in ("request", "driver", "pool", "device")}
    if None in names.values():
        return None
    return {
        **names,
        "admin_access": given.get("adminAccess") is True,
        "share": text(given.get("shareID")),
        "consumed": amounts(mapping(given, "consumedCapacity")),
    }


KIND: Final = Kind(
    name="claims",
    resource=RESOURCE_CLAIMS,
    aggregate=ClaimAllocated.AGGREGATE,
    read=read,
    combine=combine,
    farewell=farewell,
)
