"""Pods that ask for shared devices, or have some, as facts: what they ask for, their hints, and what they were given.

Resources are recorded by their short names, so the domain of an installation does not occur. `nvidia.com/gpu` counts
for pods of the sharing scheduler, and for those that have shared devices already or ask for some; other pods get whole
GPUs from NVIDIA's device plugin. A pod that has ended is irrelevant: it holds nothing any more. Pure.
"""

from collections.abc import Iterable, Mapping
from typing import Any, Final

from gpuledger.api.kinds import PODS
from gpuledger.api.sharing import NVIDIA_GPU, SharingNames
from gpuledger.domain.pools.requests import units_held
from gpuledger.domain.sharing.annotation import read_allocation
from gpuledger.domain.sharing.model import Allocation
from gpuledger.edge.kube.objects import items, mapping
from gpuledger.edge.watchers.decide import Object, ObjectPart, WatchedKind
from gpuledger.edge.watchers.fields import FieldReader, is_storable, namespaced_name, skipped, uid_of
from gpuledger.edge.watchers.resources.container_requests import ENDED, NamedRequest, bounded, container_requests
from gpuledger.events.payload import truncated
from gpuledger.events.sharing import RESOURCES_MAX, PodSharingGone, PodSharingObserved

PRIORITY_MAX: Final = 2**31 - 1
UNNAMED: Final = "-"
"""Stands for a container without a name, which no API server lets through."""

_STATUSES: Final = ("initContainerStatuses", "containerStatuses")


def kind(names: SharingNames) -> WatchedKind[PodSharingObserved]:
    """The pods of an installation with these names."""

    def read(obj: Object) -> ObjectPart:
        return read_pod(names, obj)

    return WatchedKind("sharing-pods", PODS, PodSharingObserved, PodSharingGone, read)


def read_pod(names: SharingNames, obj: Object) -> ObjectPart:
    """The relevant content of a Pod."""
    if mapping(obj, "status").get("phase") in ENDED:
        return skipped(obj)
    annotations, spec = mapping(obj, "metadata", "annotations"), mapping(obj, "spec")
    allocated, reader = annotations.get(names.allocated), FieldReader()
    containers = container_requests(spec, reader, names.short)
    if not _is_shared(containers, spec, names) and allocated is None:
        return skipped(obj)
    subject = namespaced_name(obj)
    if subject is None:
        return skipped(obj, *reader.problems, "it has no namespace or no name")
    content = {
        "uid": uid_of(obj),
        "node": reader.text(spec, "nodeName"),
        "scheduler": reader.text(spec, "schedulerName"),
        "priority": _priority(spec, reader),
        "requests": bounded(units_held(one.request for one in containers), reader, RESOURCES_MAX),
        "containers": _containers(containers, reader),
        "hint": _text(annotations, names.allocate_hint),
        "joint": _text(annotations, names.joint_allocate),
        "partition": _text(annotations, names.partition_spec),
        **_allocation(allocated, names),
        "started": any(map(_has_run, _statuses(obj))),
    }
    return reader.part(obj, subject, content)


def _is_shared(containers: Iterable[NamedRequest], spec: Mapping[str, Any], names: SharingNames) -> bool:
    """Whether the pod asks for shared devices; whole GPUs alone are some only where the sharing scheduler places it."""
    resources = {resource for one in containers for resource, units in one.request.units.items() if units}
    is_ours = names.scheduler is not None and spec.get("schedulerName") == names.scheduler
    return bool(resources - {NVIDIA_GPU}) or (is_ours and bool(resources))


def _containers(containers: Iterable[NamedRequest], reader: FieldReader) -> list[dict[str, Any]]:
    """Those that request something."""
    return [
        {
            "name": one.name or UNNAMED,
            "requests": requests,
            "init": one.request.is_init,
            "sidecar": one.request.is_sidecar,
        }
        for one in containers
        if (requests := bounded(one.request.units, reader, RESOURCES_MAX))
    ]


def _priority(spec: Mapping[str, Any], reader: FieldReader) -> int:
    value = spec.get("priority")
    if isinstance(value, int) and not isinstance(value, bool) and -PRIORITY_MAX - 1 <= value <= PRIORITY_MAX:
        return value
    if value is not None:
        reader.reject("priority", value)
    return 0


def _text(annotations: Mapping[str, Any], key: str) -> str | None:
    """An annotation as it stands. One that no event holds is cut, which leaves no JSON: it must not count as absent."""
    value = annotations.get(key)
    return None if value is None else truncated(str(value))


def _allocation(text: object, names: SharingNames) -> dict[str, Any]:
    if text is None:
        return {"allocation": None, "unreadable": None}
    try:
        found = read_allocation(str(text), names)
    except ValueError as error:
        return {"allocation": None, "unreadable": truncated(f"The annotation {names.allocated} is invalid: {error}.")}
    return {"allocation": _document(found), "unreadable": None}


def _document(allocation: Allocation) -> dict[str, Any]:
    return {
        kind: [
            {
                "minor": one.minor,
                "id": one.id,
                "resources": {name: amount for name, amount in one.resources.items() if is_storable(name)},
                "functions": [{"minor": vf.minor, "bus_id": vf.bus_id} for vf in one.functions],
            }
            for one in devices
        ]
        for kind, devices in allocation.items()
    }


def _statuses(obj: Object) -> Iterable[Mapping[str, Any]]:
    return (mapping(one) for plural in _STATUSES for one in items(obj, "status", plural))


def _has_run(status: Mapping[str, Any]) -> bool:
    """Whether a container runs, or has run before."""
    return any(
        mapping(status, *path) for path in (("state", "running"), ("state", "terminated"), ("lastState", "terminated"))
    )


KIND: Final = kind(SharingNames())
"""Under the names by default; what is recorded means the same under all."""
