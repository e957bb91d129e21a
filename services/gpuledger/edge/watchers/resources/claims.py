"""ResourceClaims as facts: what they ask for, and what they were given. Pure.

Who is reserved for a claim and what drivers say about its devices change nothing in what it holds, and are left out.
"""

from collections.abc import Mapping
from typing import Any, Final

import orjson

from gpuledger.api.kinds import RESOURCE_CLAIMS
from gpuledger.edge.watchers.decide import Kind, Object, Part
from gpuledger.edge.watchers.problems import Problems
from gpuledger.edge.watchers.reading import key_of, mapping, name_of, subject_text, text
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


def read(obj: Object) -> Part:
    """What matters of a ResourceClaim."""
    metadata, devices, problems = mapping(obj, "metadata"), mapping(obj, "spec", "devices"), Problems()
    namespace, name = text(metadata.get("namespace")), name_of(obj)
    subject = subject_text(f"{namespace}/{name}") if namespace and name else None
    if subject is None:
        return Part(key_of(obj), None, b"", ("it has no namespace or no name",))
    said: dict[str, Any] = {
        "uid": text(metadata.get("uid")) or "-",
        "requests": [
            request
            for one, place in problems.each(devices, "requests", REQUESTS_MAX)
            if (request := _request(one, place))
        ],
        "constraints": [
            constraint
            for one, place in problems.each(devices, "constraints", REQUESTS_MAX)
            if (constraint := _constraint(one, place))
        ],
        "owner": _owner(metadata),
    }
    allocation = mapping(obj, "status").get("allocation")
    if isinstance(allocation, Mapping):
        said |= _allocated(allocation, problems.within("allocation"))
    return problems.part(obj, subject, said, _without_selectors, _without_requests)


def combine(parts: list[bytes]) -> ClaimRequested | ClaimAllocated:
    """The payload; a ResourceClaim has one part."""
    said = orjson.loads(parts[0])
    return ClaimAllocated.model_validate(said) if "results" in said else ClaimRequested.model_validate(said)


def farewell(uid: str | None) -> ClaimReleased:
    """What says that the ResourceClaim is gone."""
    return ClaimReleased(uid=uid)


def selectors_of(holder: Mapping[str, Any], problems: Problems) -> list[str]:
    """The CEL expressions of a class or request."""
    found: list[str] = []
    for one, place in problems.each(holder, "selectors", SELECTORS_MAX):
        expression = text(mapping(one, "cel").get("expression"), EXPRESSION_LENGTH_MAX)
        if expression is None:
            place.tell("cel.expression", mapping(one, "cel").get("expression"))
        else:
            found.append(expression)
    return found


def _owner(metadata: Mapping[str, Any]) -> str | None:
    """The pod that the claim was made for."""
    owners = metadata.get("ownerReferences")
    pods = (mapping(one) for one in (owners if isinstance(owners, list) else ()))
    return next((text(one.get("name")) for one in pods if one.get("kind") == "Pod" and one.get("controller")), None)


def _request(given: Mapping[str, Any], problems: Problems) -> dict[str, Any] | None:
    """A request with its alternatives; what asks exactly is its own only one."""
    names = problems.needed(given, "name")
    if names is None:
        return None
    if exactly := mapping(given, "exactly"):
        return {**names, "wishes": [names | _wish(exactly, problems.within("exactly"))]}
    alternatives = problems.each(given, "firstAvailable", ALTERNATIVES_MAX)
    wishes = [called | _wish(one, place) for one, place in alternatives if (called := place.needed(one, "name"))]
    return {**names, "wishes": wishes}


def _wish(given: Mapping[str, Any], problems: Problems) -> dict[str, Any]:
    mode = given.get("allocationMode")
    if mode is not None and mode not in _MODES:
        problems.tell("allocationMode", mode)
    tolerations = (_toleration(one, place) for one, place in problems.each(given, "tolerations", TOLERATIONS_MAX))
    capacity = mapping(given, "capacity")
    return {
        "device_class": problems.text(given, "deviceClassName") or "-",
        "mode": mode if mode in _MODES else _MODES[0],
        "count": problems.count(given, "count") or 1,
        "admin_access": given.get("adminAccess") is True,
        "selectors": selectors_of(given, problems),
        "tolerations": [toleration for toleration in tolerations if toleration],
        "capacity": problems.within("capacity").amounts(capacity, "requests", ATTRIBUTES_MAX),
    }


def _toleration(given: Mapping[str, Any], problems: Problems) -> dict[str, Any] | None:
    """A toleration; None where something of it is not understood, as it would tolerate too much."""
    found = problems.optional(given, "key", "operator", "effect", "value")
    return None if found is None else found | {"operator": found["operator"] or "Equal"}


def _constraint(given: Mapping[str, Any], problems: Problems) -> dict[str, Any] | None:
    """A constraint; None where something of it is not understood, as it would concern other requests."""
    attributes = problems.optional(given, "matchAttribute", "distinctAttribute")
    requests = [(text(one), one) for one in problems.listed(given, "requests", REQUESTS_MAX)]
    for name, one in requests:
        if name is None:
            problems.tell("requests", one)
            return None
    if attributes is None:
        return None
    return {
        "requests": [name for name, _ in requests],
        "match_attribute": attributes["matchAttribute"],
        "distinct_attribute": attributes["distinctAttribute"],
    }


def _allocated(allocation: Mapping[str, Any], problems: Problems) -> dict[str, Any]:
    devices, selector = mapping(allocation, "devices"), allocation.get("nodeSelector")
    results = (_result(one, place) for one, place in problems.each(devices, "results", RESULTS_MAX))
    terms = terms_of(mapping(selector), problems.within("nodeSelector"))
    return {
        "results": [result for result in results if result],
        "reach": None if selector is None else _REACH | {"terms": terms},
    }


def _result(given: Mapping[str, Any], problems: Problems) -> dict[str, Any] | None:
    names = problems.needed(given, "request", "driver", "pool", "device")
    if names is None:
        return None
    return {
        **names,
        "admin_access": given.get("adminAccess") is True,
        "share": problems.text(given, "shareID"),
        "consumed": problems.amounts(given, "consumedCapacity", ATTRIBUTES_MAX),
    }


def _without_selectors(said: dict[str, Any]) -> str:
    for request in said["requests"]:
        for wish in request["wishes"]:
            wish["selectors"] = []
    return "the selectors of its requests"


def _without_requests(said: dict[str, Any]) -> str:
    said["requests"] = said["constraints"] = []
    return "its requests"


KIND: Final = Kind(
    name="claims",
    resource=RESOURCE_CLAIMS,
    aggregate=ClaimAllocated.AGGREGATE,
    read=read,
    combine=combine,
    farewell=farewell,
)
