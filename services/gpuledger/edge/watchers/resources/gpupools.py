"""GPUPools and ClusterGPUPools as facts: their whole spec. Pure.

A pool must never take more devices than its author meant. Where its selection is not fully understood, it takes none:
it includes only a device that does not exist. Where its automatic approval is not fully understood, people have to
approve each device.
"""

from collections.abc import Mapping
from functools import partial
from typing import Any, Final

from gpuledger.api.kinds import CLUSTER_GPU_POOLS, GPU_POOLS, Resource
from gpuledger.api.labels import ANNOTATION_MAINTENANCE
from gpuledger.api.pool_spec import (
    BACKEND_DEVICE_PLUGIN,
    MAINTENANCE_CONFIRMED,
    MAINTENANCE_ENABLED,
    PROVIDER_NVIDIA,
    STRATEGIES,
    TAINT_EFFECTS,
    UNITS,
)
from gpuledger.edge.kube.objects import mapping
from gpuledger.edge.watchers.decide import Object, ObjectPart, WatchedKind
from gpuledger.edge.watchers.fields import (
    FieldReader,
    name_of,
    namespaced_name,
    skipped,
    uid_of,
)
from gpuledger.edge.watchers.resources.selectors import devices_selected, labels_selected, selects_by_something
from gpuledger.edge.watchers.resources.slices import taint_of
from gpuledger.events.pool import TAINTS_MAX, PoolDefined, PoolGone
from gpuledger.events.settings import SLICES_PER_UNIT_MAX

NO_DEVICE: Final = "-"
"""An inventory id that no device has."""

_NOTHING: Final[dict[str, Any]] = {
    "node_selector": {},
    "include": {"inventory_ids": [NO_DEVICE]},
    "exclude": None,
    "devices_per_node_max": None,
}
_ONLY_BY_PEOPLE: Final[dict[str, Any]] = {"requires_annotation": True, "auto_approve": None}
_RESOURCE: Final = ("unit", "migProfile", "slicesPerUnit", "maxDevicesPerNode")
_SCHEDULING: Final = ("strategy", "topologyKey", "taintsEnabled", "taints")


def read(resource: Resource, obj: Object) -> ObjectPart:
    """The content of a pool: its whole spec."""
    name, reader = namespaced_name(obj) if resource.namespaced else name_of(obj), FieldReader()
    if name is None:
        return skipped(obj, "it has no namespace or no name")
    metadata, spec = mapping(obj, "metadata"), mapping(obj, "spec")
    content = {
        "uid": uid_of(obj),
        "generation": reader.count(metadata, "generation"),
        "deleting": metadata.get("deletionTimestamp") is not None,
        "maintenance": _maintenance(mapping(metadata, "annotations"), reader),
        **_selected(spec, reader),
        **_approved(spec, reader),
        **_sliced(spec, reader),
        **_scheduled(spec, reader),
    }
    return reader.part(obj, name, content, _without_selectors)


def _selected(spec: Mapping[str, Any], reader: FieldReader) -> dict[str, Any]:
    """Which devices it takes: none, where that is not fully understood."""
    before = reader.problem_count
    resource, of_resource = reader.nested(spec, "resource", _RESOURCE)
    if resource.get("unit") is None:
        of_resource.reject("unit", None)
    chosen, of_devices = reader.nested(spec, "deviceSelector", ("include", "exclude"))
    exclude = devices_selected(chosen, "exclude", of_devices)
    found: dict[str, Any] = {
        "provider": reader.text(spec, "provider") or PROVIDER_NVIDIA,
        "backend": reader.text(spec, "backend") or BACKEND_DEVICE_PLUGIN,
        "unit": of_resource.choice(resource, "unit", UNITS) or UNITS[0],
        "devices_per_node_max": of_resource.number(resource, "maxDevicesPerNode"),
        "node_selector": labels_selected(spec, "nodeSelector", reader),
        "include": devices_selected(chosen, "include", of_devices),
        "exclude": exclude if selects_by_something(exclude) else None,
    }
    return found if reader.problem_count == before else found | _NOTHING


def _approved(spec: Mapping[str, Any], reader: FieldReader) -> dict[str, Any]:
    """How devices come into it: only through people, where that is not fully understood."""
    before = reader.problem_count
    given, place = reader.nested(spec, "deviceAssignment", ("requireAnnotation", "autoApproveSelector"))
    required = place.boolean(given, "requireAnnotation")
    approves = given.get("autoApproveSelector") is not None
    found = {
        "requires_annotation": required is not False,
        "auto_approve": labels_selected(given, "autoApproveSelector", place) if approves else None,
    }
    return found if reader.problem_count == before else _ONLY_BY_PEOPLE


def _sliced(spec: Mapping[str, Any], reader: FieldReader) -> dict[str, Any]:
    """How a device is divided; into one unit, where the number is not understood."""
    resource, place = mapping(spec, "resource"), reader.within("resource")
    return {
        "mig_profile": place.text(resource, "migProfile"),
        "slices_per_unit": place.number(resource, "slicesPerUnit", SLICES_PER_UNIT_MAX) or 1,
    }


def _scheduled(spec: Mapping[str, Any], reader: FieldReader) -> dict[str, Any]:
    """The scheduling of its pods; a taint that is not understood is not tolerated."""
    given, place = reader.nested(spec, "scheduling", _SCHEDULING)
    taints = (_taint(one, where) for one, where in place.each(given, "taints", TAINTS_MAX))
    return {
        "strategy": place.choice(given, "strategy", STRATEGIES),
        "topology_key": place.text(given, "topologyKey"),
        "taints_enabled": place.boolean(given, "taintsEnabled") is not False,
        "taints": [taint for taint in taints if taint],
    }


def _taint(given: Mapping[str, Any], reader: FieldReader) -> dict[str, Any] | None:
    taint = taint_of(given, reader)
    return taint if taint and reader.choice(given, "effect", TAINT_EFFECTS) else None


def _maintenance(annotations: Mapping[str, Any], reader: FieldReader) -> str | None:
    """Its maintenance as people set it; any value that is not understood means maintenance."""
    if annotations.get(ANNOTATION_MAINTENANCE) in (None, ""):
        return None
    choices = (MAINTENANCE_ENABLED, MAINTENANCE_CONFIRMED)
    return reader.choice(annotations, ANNOTATION_MAINTENANCE, choices) or MAINTENANCE_ENABLED


def _without_selectors(content: dict[str, Any]) -> str:
    content.update(_NOTHING)
    content.update(_ONLY_BY_PEOPLE)
    return "its selectors, without which it takes no device,"


def _kind(resource: Resource) -> WatchedKind[PoolDefined]:
    return WatchedKind(resource.plural, resource, PoolDefined, PoolGone, partial(read, resource))


KIND: Final = _kind(GPU_POOLS)
CLUSTER_KIND: Final = _kind(CLUSTER_GPU_POOLS)
