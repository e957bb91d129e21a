"""Nodes as facts: that a Node exists, and the labels that tell of its GPUs or of their management. Pure."""

from collections.abc import Mapping
from functools import partial
from typing import Any, Final

import orjson

from gpuledger.api.kinds import NODES
from gpuledger.api.labels import LABELS_OF_HARDWARE, NFD_LABEL_PREFIX, NFD_WORKER_VERSION
from gpuledger.edge.watchers.decide import Kind, Object, Part
from gpuledger.edge.watchers.reading import chosen, key_of, mapping, name_of, packed, text
from gpuledger.events.node import LABELS_MAX, NodeGone, NodeObserved
from gpuledger.events.payload import NAME_LENGTH_MAX

LABELS_THAT_MATTER: Final = (
    *LABELS_OF_HARDWARE,
    f"{NFD_LABEL_PREFIX}pci-",
    f"{NFD_LABEL_PREFIX}kernel-version.",
    f"{NFD_LABEL_PREFIX}system-os_release.",
)
"""Prefixes. Node Feature Discovery puts a hundred more labels on a node, which say nothing of GPUs."""

LABELS_THAT_TICK: Final = frozenset({"nvidia.com/gfd.timestamp"})
"""They change whenever their writer starts, and say nothing else."""


def kind(managed_label_key: str) -> Kind:
    """Nodes, where the label with that key says whether one is managed."""
    return Kind(
        name="nodes",
        resource=NODES,
        aggregate=NodeObserved.AGGREGATE,
        read=partial(read, managed_label_key),
        combine=combine,
        farewell=farewell,
    )


def read(managed_label_key: str, obj: Object) -> Part:
    """What matters of a Node."""
    metadata = mapping(obj, "metadata")
    name, uid = name_of(obj), text(metadata.get("uid"))
    if name is None or uid is None:
        return Part(key_of(obj), None, b"")
    said = {
        "uid": uid,
        "labels": labels_that_matter(mapping(metadata, "labels"), managed_label_key),
        "nfd_version": text(mapping(metadata, "annotations").get(NFD_WORKER_VERSION)),
    }
    return Part(key_of(obj), name, packed(said))


def combine(parts: list[bytes]) -> NodeObserved:
    """The payload; a Node has one part."""
    return NodeObserved.model_validate(orjson.loads(parts[0]))


def farewell(uid: str | None) -> NodeGone:
    """What says that the Node of that uid was deleted."""
    return NodeGone(uid=uid)


def labels_that_matter(labels: Mapping[str, Any], managed_label_key: str | None = None) -> dict[str, str]:
    """The labels that tell of GPUs, and the one that tells of their management."""

    def is_wanted(key: str) -> bool:
        return key == managed_label_key or (key.startswith(LABELS_THAT_MATTER) and key not in LABELS_THAT_TICK)

    return chosen(labels, is_wanted, LABELS_MAX, NAME_LENGTH_MAX)
