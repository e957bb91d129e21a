"""Nodes as two kinds of facts: their labels about GPUs and management, and all labels. Pure.

Node selectors of slices and of their devices may select by any label. All labels are facts of their own, because there
are as many as people and add-ons like, and they change for reasons that have nothing to do with GPUs.
"""

from collections.abc import Mapping
from functools import partial
from typing import Any, Final

from gpuledger.api.kinds import NODES
from gpuledger.api.labels import LABEL_DETECTED, LABELS_OF_HARDWARE, NFD_LABEL_PREFIX, NFD_WORKER_VERSION
from gpuledger.edge.kube.objects import mapping
from gpuledger.edge.watchers.decide import Object, ObjectPart, WatchedKind
from gpuledger.edge.watchers.fields import FieldReader, chosen, key_of, name_of, packed, skipped, text
from gpuledger.events.node import LABELS_MAX, NodeGone, NodeLabelled, NodeObserved, NodeUnlabelled
from gpuledger.events.payload import NAME_LENGTH_MAX

RELEVANT_LABELS: Final = (
    *LABELS_OF_HARDWARE,
    f"{NFD_LABEL_PREFIX}pci-",
    f"{NFD_LABEL_PREFIX}kernel-version.",
    f"{NFD_LABEL_PREFIX}system-os_release.",
)
"""Prefixes. Node Feature Discovery sets a hundred more labels on a node, which say nothing about GPUs."""

TIMESTAMP_LABELS: Final = frozenset({"nvidia.com/gfd.timestamp"})
"""They change whenever their writer starts, and carry nothing else."""

NO_FACTS: Final = TIMESTAMP_LABELS | {LABEL_DETECTED}
"""Labels that say nothing about a node's GPUs which the ledger does not have; one of them follows from the ledger."""


def kind(managed_label_key: str) -> WatchedKind[NodeObserved]:
    """Nodes, where the label with that key says whether one is managed."""
    return WatchedKind("nodes", NODES, NodeObserved, NodeGone, partial(read, managed_label_key))


def read(managed_label_key: str, obj: Object) -> ObjectPart:
    """The relevant content of a Node."""
    metadata = mapping(obj, "metadata")
    name, uid = name_of(obj), text(metadata.get("uid"))
    if name is None or uid is None:
        return skipped(obj)
    content = {
        "uid": uid,
        "labels": relevant_labels(mapping(metadata, "labels"), managed_label_key),
        "nfd_version": text(mapping(metadata, "annotations").get(NFD_WORKER_VERSION)),
    }
    return ObjectPart(key_of(obj), name, packed(content))


def relevant_labels(labels: Mapping[str, Any], managed_label_key: str | None = None) -> dict[str, str]:
    """The labels about GPUs, and the one about management."""

    def is_relevant(key: str) -> bool:
        return key == managed_label_key or (key.startswith(RELEVANT_LABELS) and key not in NO_FACTS)

    return chosen(labels, is_relevant, LABELS_MAX, NAME_LENGTH_MAX)


def read_labels(obj: Object) -> ObjectPart:
    """All labels of a Node, but for timestamps."""
    metadata, reader = mapping(obj, "metadata"), FieldReader()
    name, uid = name_of(obj), text(metadata.get("uid"))
    if name is None or uid is None:
        return skipped(obj)
    given = {key: value for key, value in mapping(metadata, "labels").items() if key not in TIMESTAMP_LABELS}
    labels = chosen(given, lambda _key: True, LABELS_MAX, NAME_LENGTH_MAX)
    if len(labels) < len(given):
        reader.note(f"{len(given) - len(labels)} of its {len(given)} labels are too long or too many")
    return ObjectPart(key_of(obj), name, packed({"uid": uid, "labels": labels}), reader.problems)


LABELS_KIND: Final = WatchedKind("nodelabels", NODES, NodeLabelled, NodeUnlabelled, read_labels)
