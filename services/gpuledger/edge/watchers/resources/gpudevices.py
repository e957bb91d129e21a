"""GPUDevices as facts: what people put on them. Pure.

Labels and the assignment annotations are people's, but for those that we keep ourselves: some by their name, others
because the object's managed fields say that nobody but us put them there. A status is never looked at.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final

import orjson

from gpuledger.api.kinds import GPU_DEVICES, OUR_MANAGERS
from gpuledger.api.labels import ANNOTATION_ASSIGNMENT, ANNOTATION_CLUSTER_ASSIGNMENT, is_our_label
from gpuledger.edge.watchers.decide import Kind, Object, Part
from gpuledger.edge.watchers.reading import chosen, key_of, mapping, name_of, packed
from gpuledger.events.device import MARKS_MAX, DeviceMarked
from gpuledger.events.payload import TEXT_LENGTH_MAX

ANNOTATIONS_THAT_MATTER: Final = frozenset({ANNOTATION_ASSIGNMENT, ANNOTATION_CLUSTER_ASSIGNMENT})


def read(obj: Object) -> Part:
    """What matters of a GPUDevice."""
    metadata = mapping(obj, "metadata")
    labels = chosen(
        mapping(metadata, "labels"),
        lambda key: not is_our_label(key) and not _is_only_ours(metadata, "f:labels", key),
        MARKS_MAX,
        TEXT_LENGTH_MAX,
    )
    annotations = chosen(
        mapping(metadata, "annotations"),
        lambda key: key in ANNOTATIONS_THAT_MATTER and not _is_only_ours(metadata, "f:annotations", key),
        MARKS_MAX,
        TEXT_LENGTH_MAX,
    )
    name = name_of(obj) if labels or annotations else None
    return Part(key_of(obj), name, packed({"labels": labels, "annotations": annotations}))


def combine(parts: list[bytes]) -> DeviceMarked:
    """The payload; a GPUDevice has one part."""
    return DeviceMarked.model_validate(orjson.loads(parts[0]))


def farewell(_uid: str | None) -> DeviceMarked:
    """What says that nothing of people's is on the GPUDevice any more, or that it is gone itself."""
    return DeviceMarked()


def _is_only_ours(metadata: Mapping[str, Any], where: str, key: str) -> bool:
    owners = set(_owners(metadata, where, key))
    return bool(owners) and owners <= OUR_MANAGERS


def _owners(metadata: Mapping[str, Any], where: str, key: str) -> Iterator[str]:
    entries = metadata.get("managedFields")
    for entry in entries if isinstance(entries, list) else ():
        if f"f:{key}" in mapping(entry, "fieldsV1", "f:metadata", where):
            yield str(mapping(entry).get("manager", ""))


KIND: Final = Kind(
    name="gpudevices",
    resource=GPU_DEVICES,
    aggregate=DeviceMarked.AGGREGATE,
    read=read,
    combine=combine,
    farewell=farewell,
)
