"""Nodes as a rollout of machine configurations needs them: age, whether they are cordoned, what agents say. Pure.

The annotations are those that a node's agent of machine configuration writes. Those that gpuledger writes are not read.
"""

from typing import Any, Final

from gpuledger.api.kinds import NODES
from gpuledger.api.machine_config import (
    ANNOTATION_CURRENT,
    ANNOTATION_LAST_ERROR,
    ANNOTATION_REBOOT_PENDING,
    ANNOTATION_STATE,
)
from gpuledger.edge.kube.objects import mapping, time_of
from gpuledger.edge.watchers.decide import Object, ObjectPart, WatchedKind
from gpuledger.edge.watchers.fields import FieldReader, key_of, name_of, packed, skipped, text
from gpuledger.events.machine_config import NodeMachineGone, NodeMachineObserved
from gpuledger.events.payload import truncated

TRUE: Final = "true"


def read(obj: Object) -> ObjectPart:
    """The content of a Node that a rollout depends on."""
    metadata, reader = mapping(obj, "metadata"), FieldReader()
    name, uid, created = name_of(obj), text(metadata.get("uid")), time_of(metadata.get("creationTimestamp"))
    if name is None or uid is None or created is None:
        return skipped(obj)
    annotations = mapping(metadata, "annotations")
    content: dict[str, Any] = {
        "uid": uid,
        "created": created,
        "unschedulable": mapping(obj, "spec").get("unschedulable") is True,
        "current_revision": reader.text(annotations, ANNOTATION_CURRENT),
        "agent_state": reader.text(annotations, ANNOTATION_STATE),
        "last_error": _message(annotations.get(ANNOTATION_LAST_ERROR)),
        "reboot_pending": annotations.get(ANNOTATION_REBOOT_PENDING) == TRUE,
    }
    return ObjectPart(key_of(obj), name, packed(content), reader.problems)


def _message(given: object) -> str:
    return truncated(given) if isinstance(given, str) else ""


KIND: Final = WatchedKind("nodemachines", NODES, NodeMachineObserved, NodeMachineGone, read)
