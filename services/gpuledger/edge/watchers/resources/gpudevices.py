"""GPUDevices as facts: labels that people set, and annotations by which they assign and retire devices. Pure.

Left out are those that gpuledger owns: some by their name, others because the object's managed fields name nobody but
gpuledger. A status is never read.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from gpuledger.api.kinds import GPU_DEVICES, OUR_MANAGERS
from gpuledger.api.labels import (
    ANNOTATION_ASSIGNMENT,
    ANNOTATION_CLUSTER_ASSIGNMENT,
    ANNOTATION_RETIRED,
    is_our_label,
)
from gpuledger.edge.kube.objects import items, mapping
from gpuledger.edge.watchers.decide import Object, ObjectPart, WatchedKind
from gpuledger.edge.watchers.fields import chosen, key_of, name_of, packed
from gpuledger.events.device import MARKS_MAX, DeviceMarked
from gpuledger.events.payload import TEXT_LENGTH_MAX

RELEVANT_ANNOTATIONS: Final = frozenset({ANNOTATION_ASSIGNMENT, ANNOTATION_CLUSTER_ASSIGNMENT, ANNOTATION_RETIRED})


def read(obj: Object) -> ObjectPart:
    """The relevant content of a GPUDevice."""
    metadata = mapping(obj, "metadata")
    labels = chosen(
        mapping(metadata, "labels"),
        lambda key: not is_our_label(key) and not _is_only_ours(metadata, "f:labels", key),
        MARKS_MAX,
        TEXT_LENGTH_MAX,
    )
    annotations = chosen(
        mapping(metadata, "annotations"),
        lambda key: key in RELEVANT_ANNOTATIONS and not _is_only_ours(metadata, "f:annotations", key),
        MARKS_MAX,
        TEXT_LENGTH_MAX,
    )
    name = name_of(obj) if labels or annotations else None
    return ObjectPart(key_of(obj), name, packed({"labels": labels, "annotations": annotations}))


def _is_only_ours(metadata: Mapping[str, Any], where: str, key: str) -> bool:
    owners = set(_owners(metadata, where, key))
    return bool(owners) and owners <= OUR_MANAGERS


def _owners(metadata: Mapping[str, Any], where: str, key: str) -> Iterator[str]:
    for entry in items(metadata, "managedFields"):
        if f"f:{key}" in mapping(entry, "fieldsV1", "f:metadata", where):
            yield str(mapping(entry).get("manager", ""))


KIND: Final = WatchedKind("gpudevices", GPU_DEVICES, DeviceMarked, DeviceMarked, read)
