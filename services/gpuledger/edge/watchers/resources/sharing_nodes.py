"""Nodes whose label gives their cards to sharing, as facts in which the domain of that label does not occur. Pure."""

from typing import Final

from gpuledger.api.kinds import NODES
from gpuledger.api.sharing import SHARING_ENABLED, SharingNames
from gpuledger.edge.kube.objects import mapping
from gpuledger.edge.watchers.decide import Object, ObjectPart, WatchedKind
from gpuledger.edge.watchers.fields import key_of, name_of, packed, skipped, text
from gpuledger.events.node_sharing import NodeSharingLabelled, NodeSharingUnlabelled

POLICIES: Final = ("Honor", "Prefer")


def kind(names: SharingNames) -> WatchedKind[NodeSharingLabelled]:
    """Nodes with the label of that domain; the API server sends no others."""

    def read(obj: Object) -> ObjectPart:
        return read_node(names, obj)

    selector = f"{names.sharing}={SHARING_ENABLED}"
    return WatchedKind("sharingnodes", NODES, NodeSharingLabelled, NodeSharingUnlabelled, read, labels=selector)


def read_node(names: SharingNames, obj: Object) -> ObjectPart:
    """What its labels say about sharing."""
    metadata = mapping(obj, "metadata")
    name, uid, labels = name_of(obj), text(metadata.get("uid")), mapping(metadata, "labels")
    if name is None or uid is None or labels.get(names.sharing) != SHARING_ENABLED:
        return skipped(obj)
    policy = labels.get(names.partition_policy)
    problems = () if policy is None or policy in POLICIES else (f"{names.partition_policy} is none of {POLICIES}",)
    content = {"uid": uid, "partition_policy": policy if policy in POLICIES else None}
    return ObjectPart(key_of(obj), name, packed(content), problems)
