"""Namespaces as facts: that they are there, and whether their pods may use GPUs. Pure."""

from typing import Final

import orjson

from gpuledger.api.kinds import NAMESPACES
from gpuledger.api.labels import LABEL_ENABLED, LABEL_TRUE
from gpuledger.edge.watchers.decide import Kind, Object, Part
from gpuledger.edge.watchers.reading import key_of, mapping, name_of, packed, text
from gpuledger.events.namespace import NamespaceGone, NamespaceObserved


def read(obj: Object) -> Part:
    """What matters of a Namespace."""
    metadata, name = mapping(obj, "metadata"), name_of(obj)
    if name is None:
        return Part(key_of(obj), None, b"", ("it has no name",))
    said = {
        "uid": text(metadata.get("uid")) or "-",
        "gpu_enabled": mapping(metadata, "labels").get(LABEL_ENABLED) == LABEL_TRUE,
    }
    return Part(key_of(obj), name, packed(said))


def combine(parts: list[bytes]) -> NamespaceObserved:
    """The payload; a Namespace has one part."""
    return NamespaceObserved.model_validate(orjson.loads(parts[0]))


def farewell(uid: str | None) -> NamespaceGone:
    """What says that the Namespace is gone."""
    return NamespaceGone(uid=uid)


KIND: Final = Kind(
    name="namespaces",
    resource=NAMESPACES,
    aggregate=NamespaceObserved.AGGREGATE,
    read=read,
    combine=combine,
    farewell=farewell,
)
