"""Namespaces as facts: which exist, and whether their pods may use GPUs. Pure."""

from typing import Final

from gpuledger.api.kinds import NAMESPACES
from gpuledger.api.labels import LABEL_ENABLED, LABEL_TRUE
from gpuledger.edge.kube.objects import mapping
from gpuledger.edge.watchers.decide import Object, ObjectPart, WatchedKind
from gpuledger.edge.watchers.fields import key_of, name_of, packed, skipped, uid_of
from gpuledger.events.namespace import NamespaceGone, NamespaceObserved


def read(obj: Object) -> ObjectPart:
    """The relevant content of a Namespace."""
    name = name_of(obj)
    if name is None:
        return skipped(obj, "it has no name")
    gpu_enabled = mapping(obj, "metadata", "labels").get(LABEL_ENABLED) == LABEL_TRUE
    return ObjectPart(key_of(obj), name, packed({"uid": uid_of(obj), "gpu_enabled": gpu_enabled}))


KIND: Final = WatchedKind("namespaces", NAMESPACES, NamespaceObserved, NamespaceGone, read)
