"""Pods that request units of pools, as facts: how many of which, and on which node. Pure.

All other pods are irrelevant, and so is one that has ended: it holds no units any more.
"""

from collections import Counter
from collections.abc import Mapping
from typing import Any, Final

from gpuledger.api.kinds import PODS
from gpuledger.api.labels import POOL_RESOURCES
from gpuledger.domain.pools.requests import ContainerRequest, is_sidecar, read_units, units_held
from gpuledger.edge.kube.objects import mapping
from gpuledger.edge.watchers.decide import Object, ObjectPart, WatchedKind
from gpuledger.edge.watchers.fields import (
    FieldReader,
    namespaced_name,
    skipped,
    text,
    uid_of,
)
from gpuledger.events.payload import BIGINT_MAX
from gpuledger.events.pod import RESOURCES_MAX, PodGone, PodObserved

CONTAINERS_MAX: Final = 1024
ENDED: Final = ("Succeeded", "Failed")


def read(obj: Object) -> ObjectPart:
    """The relevant content of a Pod."""
    spec, reader = mapping(obj, "spec"), FieldReader()
    if mapping(obj, "status").get("phase") in ENDED:
        return skipped(obj)
    requests = requests_of(spec, reader)
    if not requests:
        return skipped(obj, *reader.problems)
    subject = namespaced_name(obj)
    if subject is None:
        return skipped(obj, *reader.problems, "it has no namespace or no name")
    content = {
        "uid": uid_of(obj),
        "node": reader.text(spec, "nodeName"),
        "requests": requests,
    }
    return reader.part(obj, subject, content)


def requests_of(spec: Mapping[str, Any], reader: FieldReader) -> dict[str, int]:
    """Units by resource; only resources of pools, and only what is requested at all."""
    containers = [
        ContainerRequest(_requested(one, place), is_init, is_init and is_sidecar(one))
        for field, is_init in (("initContainers", True), ("containers", False))
        for one, place in reader.each(spec, field, CONTAINERS_MAX)
    ]
    return _bounded(units_held(containers), reader)


def _requested(container: Mapping[str, Any], reader: FieldReader) -> Counter[str]:
    """The requests of one container; a limit is a request too, where there is no other."""
    limits, requests = mapping(container, "resources", "limits"), mapping(container, "resources", "requests")
    requested: Counter[str] = Counter()
    for resource in sorted({*limits, *requests}):
        if resource.startswith(POOL_RESOURCES) and text(resource):
            value = limits.get(resource) if requests.get(resource) is None else requests[resource]
            units = read_units(value)
            requested[resource] = units.number
            if not units.is_exact:
                reader.within("resources").reject(resource, value)
    return requested


def _bounded(held: Mapping[str, int], reader: FieldReader) -> dict[str, int]:
    resources = sorted(resource for resource, units in held.items() if units)
    if len(resources) > RESOURCES_MAX:
        reader.note(f"it requests {len(resources)} resources; only {RESOURCES_MAX} of them are recorded")
    return {resource: min(held[resource], BIGINT_MAX) for resource in resources[:RESOURCES_MAX]}


KIND: Final = WatchedKind("pods", PODS, PodObserved, PodGone, read)
