"""Validates the metadata of objects and its changes, by the same rules for every resource.

It fills nothing in. Field paths are Kubernetes' own, which have no index within labels, annotations, finalizers and
owner references.
"""

import json
from collections.abc import Iterator, Mapping

from gpuledger.edge.kube.schema.causes import Cause, Object, forbidden, invalid, required, too_long
from gpuledger.edge.kube.schema.object_names import label_value_problem, qualified_name_problem
from gpuledger.local.kubeapi.resources import ServedResource

ANNOTATIONS_MAX_BYTES = 256 * 1024
STANDARD_FINALIZERS = frozenset({"kubernetes", "orphan", "foregroundDeletion"})
_IMMUTABLE = ("name", "namespace", "uid", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds")
_LABEL_KEY = "a valid label key must be a name of alphanumeric characters, '-', '_' or '.' with an optional DNS prefix"


def validate_metadata(resource: ServedResource, obj: Object) -> list[Cause]:
    """Everything wrong with the metadata of a new object."""
    metadata = obj.get("metadata") or {}
    return [*_name_causes(resource, metadata), *_common_causes(resource, metadata)]


def validate_metadata_update(resource: ServedResource, obj: Object, old: Object) -> list[Cause]:
    """Everything wrong with the metadata of an object that replaces `old`."""
    metadata, before = obj.get("metadata") or {}, old.get("metadata") or {}
    return [*_common_causes(resource, metadata), *_change_causes(metadata, before)]


def validate_labels(labels: Mapping[str, object] | None, field: str) -> Iterator[Cause]:
    """Everything wrong with labels, under one field such as `metadata.labels`."""
    for key, value in (labels or {}).items():
        if qualified_name_problem(key):
            yield invalid(field, key, _LABEL_KEY)
        if problem := label_value_problem(str(value)):
            yield invalid(field, value, problem)


def finalizer_warnings(obj: Object) -> list[str]:
    """Kubernetes' warnings for a custom resource: finalizers without a domain."""
    names = (obj.get("metadata") or {}).get("finalizers") or ()
    advice = "prefer a domain-qualified finalizer name including a path (/) to avoid accidental conflicts"
    bare = (name for name in names if "/" not in name and name not in STANDARD_FINALIZERS)
    return [f'metadata.finalizers: "{name}": {advice} with other finalizer writers' for name in bare]


def _name_causes(resource: ServedResource, metadata: Object) -> Iterator[Cause]:
    name, prefix = metadata.get("name") or "", metadata.get("generateName") or ""
    if not name and not prefix:
        yield required("metadata.name", "name or generateName is required")
    if prefix and (problem := _prefix_problem(resource, prefix)):
        yield invalid("metadata.generateName", prefix, problem)
    if name and (problem := resource.strategy.validate_name(name) or path_problem(name)):
        yield invalid("metadata.name", name, problem)


def _prefix_problem(resource: ServedResource, prefix: str) -> str | None:
    whole = f"{prefix[:-1]}a" if prefix.endswith("-") else prefix
    return resource.strategy.validate_name(whole) or path_problem(prefix)


def path_problem(name: str) -> str | None:
    """Why a name cannot be a segment of a path; None if it can."""
    if name in {".", ".."}:
        return f"may not be '{name}'"
    return next((f"may not contain '{char}'" for char in "/%" if char in name), None)


def _common_causes(resource: ServedResource, metadata: Object) -> Iterator[Cause]:
    yield from _namespace_causes(resource, metadata)
    if (metadata.get("generation") or 0) < 0:
        yield invalid("metadata.generation", metadata["generation"], "must be greater than or equal to 0")
    yield from validate_labels(metadata.get("labels"), "metadata.labels")
    yield from _annotation_causes(metadata.get("annotations") or {})
    yield from _finalizer_causes(resource, metadata.get("finalizers") or [])
    yield from _owner_causes(metadata.get("ownerReferences") or [])


def _namespace_causes(resource: ServedResource, metadata: Object) -> Iterator[Cause]:
    namespace = metadata.get("namespace")
    if resource.namespaced and not namespace:
        yield required("metadata.namespace")
    elif namespace and not resource.namespaced:
        yield forbidden("metadata.namespace", "not allowed on this type")


def _annotation_causes(annotations: Mapping[str, str]) -> Iterator[Cause]:
    for key in annotations:
        if problem := qualified_name_problem(key.lower()):
            yield invalid("metadata.annotations", key, problem)
    size = sum(len(key.encode()) + len(str(value).encode()) for key, value in annotations.items())
    if size > ANNOTATIONS_MAX_BYTES:
        yield too_long("metadata.annotations", ANNOTATIONS_MAX_BYTES)


def _finalizer_causes(resource: ServedResource, finalizers: list[str]) -> Iterator[Cause]:
    for index, name in enumerate(finalizers):
        if qualified_name_problem(name):
            yield invalid("metadata.finalizers", name, _LABEL_KEY)
        elif not resource.is_custom and "/" not in name and name not in STANDARD_FINALIZERS:
            text = "name is neither a standard finalizer name nor is it fully qualified"
            yield invalid(f"metadata.finalizers[{index}]", name, text)
    if {"orphan", "foregroundDeletion"} <= set(finalizers):
        yield invalid("metadata.finalizers", finalizers, "orphan and foregroundDeletion cannot both be set")


def _owner_causes(owners: list[Object]) -> Iterator[Cause]:
    for owner in owners:
        yield from _one_owner_causes(owner)
    controllers = [f"{owner.get('kind')}/{owner.get('name')}" for owner in owners if owner.get("controller")]
    if len(controllers) > 1:
        text = f"Only one reference can have Controller set to true. Found it in {' and '.join(controllers)}"
        yield invalid("metadata.ownerReferences", json.dumps(owners), text)


def _one_owner_causes(owner: Object) -> Iterator[Cause]:
    field = "metadata.ownerReferences"
    api_version = owner.get("apiVersion") or ""
    if not api_version.rpartition("/")[2] or api_version.count("/") > 1:
        yield invalid(f"{field}.apiVersion", api_version, "version must not be empty")
    for name in ("kind", "name", "uid"):
        if not owner.get(name):
            yield invalid(f"{field}.{name}", "", "must not be empty")
    if (api_version, owner.get("kind")) == ("v1", "Event"):
        yield invalid(field, json.dumps(owner), "/v1, Kind=Event is disallowed from being an owner")


def _change_causes(metadata: Object, before: Object) -> Iterator[Cause]:
    for name in _IMMUTABLE:
        if metadata.get(name) != before.get(name):
            yield invalid(f"metadata.{name}", metadata.get(name), "field is immutable")
    if (metadata.get("generation") or 0) < (before.get("generation") or 0):
        yield invalid("metadata.generation", metadata.get("generation"), "must not be decremented")
    added = [name for name in metadata.get("finalizers") or [] if name not in (before.get("finalizers") or [])]
    if added and before.get("deletionTimestamp"):
        text = "no new finalizers can be added if the object is being deleted, found new finalizers"
        yield forbidden("metadata.finalizers", f"{text} {', '.join(added)}")
