"""Pods that request units of pools, as facts: how many of which, and on which node. Pure.

All other pods are irrelevant, and so is one that has ended: it holds no units any more.
"""

from collections.abc import Mapping
from typing import Any, Final

from gpuledger.api.kinds import PODS
from gpuledger.api.labels import POOL_RESOURCES
from gpuledger.domain.pools.requests import units_held
from gpuledger.edge.kube.objects import mapping
from gpuledger.edge.watchers.decide import Object, ObjectPart, WatchedKind
from gpuledger.edge.watchers.fields import FieldReader, namespaced_name, skipped, uid_of
from gpuledger.edge.watchers.resources.container_requests import ENDED, bounded, container_requests
from gpuledger.events.pod import RESOURCES_MAX, PodGone, PodObserved


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
    containers = container_requests(spec, reader, _of_pools)
    return bounded(units_held(one.request for one in containers), reader, RESOURCES_MAX)


def _of_pools(resource: str) -> str | None:
    return resource if resource.startswith(POOL_RESOURCES) else None


KIND: Final = WatchedKind("pods", PODS, PodObserved, PodGone, read)
