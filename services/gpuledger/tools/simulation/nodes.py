"""What the simulation reads of the fleet's Nodes in the cluster: what other people write there. Pure."""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from gpuledger.api.kinds import MACHINE_CONFIG_GROUP
from gpuledger.edge.kube.client import Object
from gpuledger.edge.kube.reflector import ChangeBatch, Listed

NO_ANNOTATIONS: Mapping[str, str] = {}


class SeenNode(NamedTuple):
    """A Node, whether it is cordoned, and its annotations of machine configuration."""

    node: str
    cordoned: bool = False
    annotations: Mapping[str, str] = NO_ANNOTATIONS


NodeChanges = Listed[SeenNode] | ChangeBatch[SeenNode]


def seen_node(live: Object) -> SeenNode:
    """The relevant part of a Node."""
    metadata, prefix = live["metadata"], f"{MACHINE_CONFIG_GROUP}/"
    found = {key: value for key, value in (metadata.get("annotations") or {}).items() if key.startswith(prefix)}
    return SeenNode(metadata["name"], bool(live["spec"].get("unschedulable")), found or NO_ANNOTATIONS)


def present_nodes(changes: NodeChanges, before: Iterable[str]) -> list[SeenNode]:
    """The Nodes as they are after the changes; one of `before` that is gone has nothing."""
    if isinstance(changes, Listed):
        there = {one.node for one in changes.objects}
        return [*changes.objects, *(SeenNode(node) for node in sorted(set(before) - there))]
    return [SeenNode(one.object.node) if one.type == "DELETED" else one.object for one in changes.changes]
