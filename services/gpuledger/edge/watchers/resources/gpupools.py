"""GPUPools and ClusterGPUPools as facts: what they ask for, whole. Pure.

A pool must never take more than was meant. So where something is not understood of what says which devices it takes,
and how many, it takes none: it includes only a device that there is not. Where it is not understood which devices it
may take by itself, it waits for people to give it each.
"""

from collections.abc import Mapping
from functools import partial
from typing import Any, Final

import orjson

from gpuledger.api.kinds import CLUSTER_GPU_POOLS, GPU_POOLS, Resource
from gpuledger.api.labels import ANNOTATION_MAINTENANCE
from gpuledger.edge.watchers.decide import Kind, Object, Part
from gpuledger.edge.watchers.problems import Problems
from gpuledger.edge.watchers.reading import key_of, mapping, name_of, subject_text, text
from gpuledger.edge.watchers.resources.selectors import devices_selected, labels_selected, selects_by_something
from gpuledger.edge.watchers.resources.slices import taint_of
from gpuledger.events.pool import TAINTS_MAX, PoolDefined, PoolGone
from gpuledger.events.settings import SLICES_PER_UNIT_MAX

NO_DEVICE: Final = "-"
"""No inventory id of a device."""

_NOTHING: Final[dict[str, Any]] = {
    "node_selector": {},
    "include": {"inventory_ids": [NO_DEVICE]},
    "exclude": None,
    "devices_per_node_max": None,
}
_ONLY_GIVEN: Final[dict[str, Any]] = {"requires_annotation": True, "auto_approve": None}
_RESOURCE: Final = ("unit", "migProfile", "slicesPerUnit", "maxDevicesPerNode")
_SCHEDULING: Final = ("strategy", "topologyKey", "taintsEnabled", "taints")
_UNITS: Final = ("Card", "MIG")
_STRATEGIES: Final = ("BinPack", "Spread")
_EFFECTS: Final = ("NoSchedule", "PreferNoSchedule", "NoExecute")
ENABLED, CONFIRMED = "enabled", "confirmed"


def read(resource: Resource, obj: Object) -> Part:
    """What matters of a pool: its whole spec."""
    namespace, name, problems = text(mapping(obj, "metadata").get("namespace")), name_of(obj), Problems()
    if resource.namespaced and name is not None:
        name = subject_text(f"{namespace}/{name}") if namespace else None
    if name is None:
        return Part(key_of(obj), None, b"", ("it has no namespace or no name",))
    metadata, spec = mapping(obj, "metadata"), mapping(obj, "spec")
    said = {
        "uid": text(metadata.get("uid")) or "-",
        "generation": problems.count(metadata, "generation"),
        "deleting": metadata.get("deletionTimestamp") is not None,
        "maintenance": _maintenance(mapping(metadata, "annotations"), problems),
        **_taken(spec, problems),
        **_approved(spec, problems),
        **_sliced(spec, problems),
        **_scheduled(spec, problems),
    }
    return problems.part(obj, name, said, _without_selectors)


def combine(parts: list[bytes]) -> PoolDefined:
    """The payload; a pool has one part."""
    return PoolDefined.model_validate(orjson.loads(parts[0]))


def farewell(uid: str | None) -> PoolGone:
    """What says that the pool's object is gone."""
    return PoolGone(uid=uid)


def _taken(spec: Mapping[str, Any], problems: Problems) -> dict[str, Any]:
    """Which devices it takes; none, where any of it is not understood."""
    before = problems.count_so_far
    resource, of_resource = problems.nested(spec, "resource", _RESOURCE)
    if resource.get("unit") is None:
        of_resource.tell("unit", None)
    chosen, of_devices = problems.nested(spec, "deviceSelector", ("include", "exclude"))
    exclude = devices_selected(chosen, "exclude", of_devices)
    found: dict[str, Any] = {
        "provider": problems.text(spec, "provider") or "Nvidia",
        "backend": problems.text(spec, "backend") or "DevicePlugin",
        "unit": of_resource.choice(resource, "unit", _UNITS) or _UNITS[0],
        "devices_per_node_max": of_resource.number(resource, "maxDevicesPerNode"),
        "node_selector": labels_selected(spec, "nodeSelector", problems),
        "include": devices_selected(chosen, "include", of_devices),
        "exclude": exclude if selects_by_something(exclude) else None,
    }
    return found if problems.count_so_far == before else found | _NOTHING


def _approved(spec: Mapping[str, Any], problems: Problems) -> dict[str, Any]:
    """How devices come into it; only by people, where any of it is not understood."""
    before = problems.count_so_far
    given, place = problems.nested(spec, "deviceAssignment", ("requireAnnotation", "autoApproveSelector"))
    required = place.boolean(given, "requireAnnotation")
    approves = given.get("autoApproveSelector") is not None
    found = {
        "requires_annotation": required is not False,
        "auto_approve": labels_selected(given, "autoApproveSelector", place) if approves else None,
    }
    return found if problems.count_so_far == before else _ONLY_GIVEN


def _sliced(spec: Mapping[str, Any], problems: Problems) -> dict[str, Any]:
    """What is made of a device; one unit, where it is not understood how many."""
    resource, place = mapping(spec, "resource"), problems.within("resource")
    return {
        "mig_profile": place.text(resource, "migProfile"),
        "slices_per_unit": place.number(resource, "slicesPerUnit", SLICES_PER_UNIT_MAX) or 1,
    }


def _scheduled(spec: Mapping[str, Any], problems: Problems) -> dict[str, Any]:
    """What is added to its pods; a taint that is not understood is not tolerated."""
    given, place = problems.nested(spec, "scheduling", _SCHEDULING)
    taints = (_taint(one, where) for one, where in place.each(given, "taints", TAINTS_MAX))
    return {
        "strategy": place.choice(given, "strategy", _STRATEGIES),
        "topology_key": place.text(given, "topologyKey"),
        "taints_enabled": place.boolean(given, "taintsEnabled") is not False,
        "taints": [taint for taint in taints if taint],
    }


def _taint(given: Mapping[str, Any], problems: Problems) -> dict[str, Any] | None:
    taint = taint_of(given, problems)
    return taint if taint and problems.choice(given, "effect", _EFFECTS) else None


def _maintenance(annotations: Mapping[str, Any], problems: Problems) -> str | None:
    """What people say of its maintenance; whatever else they say than what is known keeps it in maintenance."""
    if annotations.get(ANNOTATION_MAINTENANCE) in (None, ""):
        return None
    return problems.choice(annotations, ANNOTATION_MAINTENANCE, (ENABLED, CONFIRMED)) or ENABLED


def _without_selectors(said: dict[str, Any]) -> str:
    said.update(_NOTHING)
    said.update(_ONLY_GIVEN)
    return "its selectors, without which it takes no device,"


def _kind(resource: Resource) -> Kind:
    return Kind(
        name=resource.plural,
        resource=resource,
        aggregate=PoolDefined.AGGREGATE,
        read=partial(read, resource),
        combine=combine,
        farewell=farewell,
    )


KIND: Final = _kind(GPU_POOLS)
CLUSTER_KIND: Final = _kind(CLUSTER_GPU_POOLS)
