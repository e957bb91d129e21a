"""ResourceClaims as facts: their requests and their allocation. Pure.

Reservations and the drivers' status of devices change nothing in what a claim holds, and are left out.
"""

from collections.abc import Mapping
from typing import Any, Final

import orjson

from gpuledger.api.kinds import RESOURCE_CLAIMS
from gpuledger.edge.kube.objects import items, mapping
from gpuledger.edge.watchers.decide import Object, ObjectPart, WatchedKind
from gpuledger.edge.watchers.fields import (
    FieldReader,
    namespaced_name,
    skipped,
    text,
    uid_of,
)
from gpuledger.edge.watchers.resources.reaches import terms_of
from gpuledger.events.claim import (
    ALTERNATIVES_MAX,
    EXPRESSION_LENGTH_MAX,
    REQUESTS_MAX,
    RESULTS_MAX,
    SELECTORS_MAX,
    TOLERATIONS_MAX,
    ClaimAllocated,
    ClaimReleased,
    ClaimRequested,
)
from gpuledger.events.slice import ATTRIBUTES_MAX

_REACH: Final = {"node": None, "all_nodes": False}
_MODES: Final = ("ExactCount", "All")


def read(obj: Object) -> ObjectPart:
    """The relevant content of a ResourceClaim."""
    metadata, devices, reader = mapping(obj, "metadata"), mapping(obj, "spec", "devices"), FieldReader()
    subject = namespaced_name(obj)
    if subject is None:
        return skipped(obj, "it has no namespace or no name")
    content: dict[str, Any] = {
        "uid": uid_of(obj),
        "requests": [
            request
            for one, place in reader.each(devices, "requests", REQUESTS_MAX)
            if (request := _request(one, place))
        ],
        "constraints": [
            constraint
            for one, place in reader.each(devices, "constraints", REQUESTS_MAX)
            if (constraint := _constraint(one, place))
        ],
        "owner": _owner(metadata),
    }
    allocation = mapping(obj, "status").get("allocation")
    if isinstance(allocation, Mapping):
        content |= _allocated(allocation, reader.within("allocation"))
    return reader.part(obj, subject, content, _without_selectors, _without_requests)


def merge(parts: list[bytes]) -> ClaimRequested | ClaimAllocated:
    """The payload: allocated or not."""
    content = orjson.loads(parts[0])
    return ClaimAllocated.model_validate(content) if "results" in content else ClaimRequested.model_validate(content)


def selectors_of(holder: Mapping[str, Any], reader: FieldReader) -> list[str]:
    """The CEL expressions of a class or request."""
    found: list[str] = []
    for one, place in reader.each(holder, "selectors", SELECTORS_MAX):
        expression = text(mapping(one, "cel").get("expression"), EXPRESSION_LENGTH_MAX)
        if expression is None:
            place.reject("cel.expression", mapping(one, "cel").get("expression"))
        else:
            found.append(expression)
    return found


def _owner(metadata: Mapping[str, Any]) -> str | None:
    """The pod that the claim was created for."""
    pods = map(mapping, items(metadata, "ownerReferences"))
    return next((text(one.get("name")) for one in pods if one.get("kind") == "Pod" and one.get("controller")), None)


def _request(given: Mapping[str, Any], reader: FieldReader) -> dict[str, Any] | None:
    """A request with its alternatives; an exact request is its only one."""
    names = reader.required(given, "name")
    if names is None:
        return None
    if exactly := mapping(given, "exactly"):
        return {**names, "wishes": [names | _wish(exactly, reader.within("exactly"))]}
    alternatives = reader.each(given, "firstAvailable", ALTERNATIVES_MAX)
    wishes = [called | _wish(one, place) for one, place in alternatives if (called := place.required(one, "name"))]
    return {**names, "wishes": wishes}


def _wish(given: Mapping[str, Any], reader: FieldReader) -> dict[str, Any]:
    mode = given.get("allocationMode")
    if mode is not None and mode not in _MODES:
        reader.reject("allocationMode", mode)
    tolerations = (_toleration(one, place) for one, place in reader.each(given, "tolerations", TOLERATIONS_MAX))
    capacity = mapping(given, "capacity")
    return {
        "device_class": reader.text(given, "deviceClassName") or "-",
        "mode": mode if mode in _MODES else _MODES[0],
        "count": reader.count(given, "count") or 1,
        "admin_access": given.get("adminAccess") is True,
        "selectors": selectors_of(given, reader),
        "tolerations": [toleration for toleration in tolerations if toleration],
        "capacity": reader.within("capacity").amounts(capacity, "requests", ATTRIBUTES_MAX),
    }


def _toleration(given: Mapping[str, Any], reader: FieldReader) -> dict[str, Any] | None:
    """A toleration; None where it is not fully understood, as it would tolerate too much."""
    found = reader.optional(given, "key", "operator", "effect", "value")
    return None if found is None else found | {"operator": found["operator"] or "Equal"}


def _constraint(given: Mapping[str, Any], reader: FieldReader) -> dict[str, Any] | None:
    """A constraint; None where it is not fully understood, as it would concern other requests."""
    attributes = reader.optional(given, "matchAttribute", "distinctAttribute")
    requests = [(text(one), one) for one in reader.listed(given, "requests", REQUESTS_MAX)]
    for name, one in requests:
        if name is None:
            reader.reject("requests", one)
            return None
    if attributes is None:
        return None
    return {
        "requests": [name for name, _ in requests],
        "match_attribute": attributes["matchAttribute"],
        "distinct_attribute": attributes["distinctAttribute"],
    }


def _allocated(allocation: Mapping[str, Any], reader: FieldReader) -> dict[str, Any]:
    devices, selector = mapping(allocation, "devices"), allocation.get("nodeSelector")
    results = (_result(one, place) for one, place in reader.each(devices, "results", RESULTS_MAX))
    terms = terms_of(mapping(selector), reader.within("nodeSelector"))
    return {
        "results": [result for result in results if result],
        "reach": None if selector is None else _REACH | {"terms": terms},
    }


def _result(given: Mapping[str, Any], reader: FieldReader) -> dict[str, Any] | None:
    names = reader.required(given, "request", "driver", "pool", "device")
    if names is None:
        return None
    return {
        **names,
        "admin_access": given.get("adminAccess") is True,
        "share": reader.text(given, "shareID"),
        "consumed": reader.amounts(given, "consumedCapacity", ATTRIBUTES_MAX),
    }


def _without_selectors(content: dict[str, Any]) -> str:
    for request in content["requests"]:
        for wish in request["wishes"]:
            wish["selectors"] = []
    return "the selectors of its requests"


def _without_requests(content: dict[str, Any]) -> str:
    content["requests"] = content["constraints"] = []
    return "its requests"


KIND: Final[WatchedKind[ClaimRequested | ClaimAllocated]] = WatchedKind(
    "claims", RESOURCE_CLAIMS, ClaimAllocated, ClaimReleased, read, merge
)
