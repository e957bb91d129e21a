"""NodeFeatures as facts: what Node Feature Discovery found on a node, and which version of it did. Pure.

A node may have several NodeFeatures, which name it in a label: that of its worker, and others. Together they make one
fact, in the order of their namespaces and names. Only GPUs count, as in the labels of the shipped NodeFeatureRule.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final

import orjson

from gpuledger.api.kinds import NODE_FEATURES
from gpuledger.api.labels import GPU_CLASSES, NFD_NODE_NAME, NFD_PCI_DEVICE, NFD_WORKER_VERSION, VENDOR_NVIDIA
from gpuledger.edge.kube.objects import items, mapping
from gpuledger.edge.watchers.decide import Object, ObjectPart, WatchedKind
from gpuledger.edge.watchers.fields import key_of, packed, skipped, text
from gpuledger.edge.watchers.resources.nodes import relevant_labels
from gpuledger.events.node import (
    LABELS_MAX,
    PCI_DEVICES_MAX,
    NodeFeaturesGone,
    NodeFeaturesObserved,
    PciDevice,
)

_ATTRIBUTES: Final = {
    "pci_vendor": "vendor",
    "pci_device": "device",
    "pci_class": "class",
    "pci_address": "address",
}


def read(obj: Object) -> ObjectPart:
    """The relevant content of a NodeFeature."""
    metadata = mapping(obj, "metadata")
    node = text(mapping(metadata, "labels").get(NFD_NODE_NAME))
    if node is None:
        return skipped(obj)
    content = {
        "devices": list(_devices(mapping(obj, "spec", "features", "instances", NFD_PCI_DEVICE))),
        "labels": relevant_labels(mapping(obj, "spec", "labels")),
        "nfd_version": text(mapping(metadata, "annotations").get(NFD_WORKER_VERSION)),
    }
    return ObjectPart(key_of(obj), node, packed(content))


def merge(parts: list[bytes]) -> NodeFeaturesObserved:
    """The payload: the devices one after another, a later part's labels over an earlier one's, the first version."""
    content = [orjson.loads(part) for part in parts]
    devices = [device for part in content for device in part["devices"]]
    labels = {key: value for part in content for key, value in part["labels"].items()}
    versions = [part["nfd_version"] for part in content if part["nfd_version"]]
    return NodeFeaturesObserved(
        devices=tuple(PciDevice(index=index, **device) for index, device in enumerate(devices[:PCI_DEVICES_MAX])),
        labels=dict(sorted(labels.items())[:LABELS_MAX]),
        nfd_version=versions[0] if versions else None,
    )


def may_be_gpu(device: Mapping[str, str]) -> bool:
    """Whether a PCI device is a GPU of NVIDIA's, or lacks the facts to exclude that."""
    vendor, pci_class = (_hex(device.get(name, "")) for name in ("pci_vendor", "pci_class"))
    return vendor in ("", VENDOR_NVIDIA) and (not pci_class or pci_class[:4] in GPU_CLASSES)


def _devices(feature: Mapping[str, Any]) -> Iterator[dict[str, str]]:
    """The PCI devices that may be GPUs, in their order, with the facts that are there."""
    for element in items(feature, "elements"):
        attributes = mapping(element, "attributes")
        facts = {name: text(attributes.get(attribute)) for name, attribute in _ATTRIBUTES.items()}
        device = {name: value for name, value in facts.items() if value is not None}
        if may_be_gpu(device):
            yield device


def _hex(text: str) -> str:
    return text.lower().removeprefix("0x")


KIND: Final = WatchedKind("nodefeatures", NODE_FEATURES, NodeFeaturesObserved, NodeFeaturesGone, read, merge)
