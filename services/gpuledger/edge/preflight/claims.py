"""Which DeviceClasses the resource claims of a pod request. Pure.

A pod names a ResourceClaim, or a ResourceClaimTemplate from which one is made later; both have the requests.
"""

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from gpuledger.api.kinds import RESOURCE_CLAIM_TEMPLATES, RESOURCE_CLAIMS, Resource
from gpuledger.edge.kube.objects import items, mapping
from gpuledger.edge.webhooks.serving.review import Object


class ClaimReference(NamedTuple):
    """A claim of a pod by the pod's own name for it, and the object that has its requests."""

    claim: str
    resource: Resource
    name: str


Classes = Mapping[str, frozenset[str] | None]
"""The DeviceClasses of a pod's claims, by the pod's name for the claim; None: nobody could find them out."""


def references(pod: Object) -> Iterator[ClaimReference]:
    """The claims of a pod, in its order; those that name no object are left out."""
    for entry in items(pod, "spec", "resourceClaims"):
        one = mapping(entry)
        claim, given, template = (one.get(key) for key in ("name", "resourceClaimName", "resourceClaimTemplateName"))
        if isinstance(claim, str) and isinstance(given, str):
            yield ClaimReference(claim, RESOURCE_CLAIMS, given)
        elif isinstance(claim, str) and isinstance(template, str):
            yield ClaimReference(claim, RESOURCE_CLAIM_TEMPLATES, template)


def device_classes(document: Object) -> frozenset[str]:
    """The DeviceClasses that a ResourceClaim or a ResourceClaimTemplate requests; any of `firstAvailable` counts.

    One with `adminAccess` counts for nothing: its devices may be in use by others, whom a check would disturb.
    """
    inner = mapping(document, "spec", "spec")
    requests = items(inner or mapping(document, "spec"), "devices", "requests")
    if any(one.get("adminAccess") is True for request in requests for one in (mapping(request, "exactly"), request)):
        return frozenset()
    return frozenset(name for request in requests for name in _classes(mapping(request)))


def _classes(request: Object) -> Iterator[str]:
    alternatives = [mapping(request, "exactly"), *map(mapping, items(request, "firstAvailable")), request]
    for one in alternatives:
        name = one.get("deviceClassName")
        if isinstance(name, str) and name:
            yield name
