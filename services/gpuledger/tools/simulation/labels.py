"""The labels that NFD, GFD and the shipped NodeFeatureRule give a simulated node. Pure."""

from collections.abc import Iterable, Mapping, Sequence

from gpuledger.api.labels import (
    GFD_COMPUTE_MAJOR,
    GFD_COMPUTE_MINOR,
    GFD_COUNT,
    GFD_FAMILY,
    GFD_MEMORY_MIB,
    GFD_MIG_CAPABLE,
    GFD_MIG_STRATEGY,
    GFD_PRESENT,
    GFD_PRODUCT,
    HOSTNAME,
    LABEL_DEVICE_COUNT,
    LABEL_DRIVER_MODULE_PREFIX,
    LABEL_DRIVER_NAME,
    LABEL_FALSE,
    LABEL_KERNEL_PREFIX,
    LABEL_OS_ID,
    LABEL_OS_VERSION_ID,
    LABEL_PRESENT,
    LABEL_TRUE,
    NFD_KERNEL_MODULES,
    NFD_KERNEL_VERSION,
    NFD_LABEL_PREFIX,
    NFD_OS_RELEASE,
    NFD_PCI_DEVICE,
    NFD_WORKER_VERSION,
    TOPOLOGY_ZONE,
    device_label,
)
from gpuledger.api.sharing import SHARING_ENABLED
from gpuledger.events.device import Card
from gpuledger.tools.simulation.fleet import FleetNode
from gpuledger.tools.simulation.hardware import (
    CUDA_VERSION,
    DRIVER_VERSION,
    KERNEL_MODULES,
    KERNEL_VERSION,
    NFD_VERSION,
    OS_ID,
    OS_VERSION_ID,
    Partition,
)

Object = dict[str, object]


def kubelet_labels(node: FleetNode) -> dict[str, str]:
    """The labels that a node registers with."""
    shared = {} if node.shared_by is None else {node.shared_by: SHARING_ENABLED}
    return {
        HOSTNAME: node.name,
        "kubernetes.io/arch": "amd64",
        "kubernetes.io/os": "linux",
        "node.kubernetes.io/instance-type": node.model.machine,
        TOPOLOGY_ZONE: node.zone,
        **shared,
    }


def feature_labels(node: FleetNode, cards: Mapping[int, Card]) -> dict[str, str]:
    """The labels with the node's features, including its cards by slot."""
    return {**_rule_labels(cards), **nfd_labels(cards), **_driver_labels(node, cards)}


def features(node: FleetNode, cards: Mapping[int, Card]) -> Object:
    """The raw features of a NodeFeature."""
    kernel, release = _kernel(), {"ID": OS_ID, "VERSION_ID": OS_VERSION_ID}
    modules: dict[str, Object] = {module: {} for module in KERNEL_MODULES}
    return {
        "flags": {NFD_KERNEL_MODULES: {"elements": modules}},
        "attributes": {
            NFD_KERNEL_VERSION: {"elements": kernel},
            NFD_OS_RELEASE: {"elements": release},
        },
        "instances": {NFD_PCI_DEVICE: {"elements": [{"attributes": one} for one in _pci(node, cards)]}},
    }


def worker_version() -> dict[str, str]:
    """The annotation with NFD's version."""
    return {NFD_WORKER_VERSION: NFD_VERSION}


def _rule_labels(cards: Mapping[int, Card]) -> dict[str, str]:
    labels = {f"{LABEL_KERNEL_PREFIX}{name}": value for name, value in _kernel().items() if name != "revision"}
    labels |= {
        LABEL_OS_ID: OS_ID,
        LABEL_OS_VERSION_ID: OS_VERSION_ID,
        LABEL_DRIVER_NAME: "nvidia",
    }
    labels |= {f"{LABEL_DRIVER_MODULE_PREFIX}{module}": LABEL_TRUE for module in KERNEL_MODULES}
    if cards:
        labels |= {LABEL_PRESENT: LABEL_TRUE, LABEL_DEVICE_COUNT: str(len(cards))}
    for index, card in enumerate(in_order(cards)):
        facts = {"vendor": card.pci_vendor, "device": card.pci_device, "class": str(card.pci_class)}
        labels |= {device_label(index, fact): value for fact, value in facts.items()}
    return labels


def nfd_labels(cards: Mapping[int, Card]) -> dict[str, str]:
    """The labels that NFD itself gives."""
    prefix = NFD_LABEL_PREFIX
    labels = {f"{prefix}kernel-version.{name}": value for name, value in _kernel().items()}
    labels |= {f"{prefix}system-os_release.ID": OS_ID, f"{prefix}system-os_release.VERSION_ID": OS_VERSION_ID}
    return labels | {f"{prefix}pci-{card.pci_vendor}.present": LABEL_TRUE for card in cards.values()}


def _driver_labels(node: FleetNode, cards: Mapping[int, Card]) -> dict[str, str]:
    """The labels of GPU Feature Discovery; none where there is no card."""
    if not cards:
        return {}
    model = node.model
    driver, cuda = DRIVER_VERSION.split("."), CUDA_VERSION.split(".")
    labels = {
        GFD_PRESENT: LABEL_TRUE,
        GFD_PRODUCT: _word(model.product),
        GFD_COUNT: str(len(cards)),
        GFD_MEMORY_MIB: str(model.memory_mib),
        GFD_COMPUTE_MAJOR: str(model.compute[0]),
        GFD_COMPUTE_MINOR: str(model.compute[1]),
        GFD_FAMILY: model.family,
        GFD_MIG_CAPABLE: LABEL_TRUE if model.mig_profiles else LABEL_FALSE,
        "nvidia.com/gpu.machine": model.machine,
        "nvidia.com/gpu.mode": "compute",
        "nvidia.com/gpu.replicas": "1",
        "nvidia.com/gpu.sharing-strategy": "none",
        "nvidia.com/cuda.driver-version.full": DRIVER_VERSION,
        "nvidia.com/cuda.driver-version.major": driver[0],
        "nvidia.com/cuda.driver-version.minor": driver[1],
        "nvidia.com/cuda.driver-version.revision": driver[2],
        "nvidia.com/cuda.runtime-version.full": CUDA_VERSION,
        "nvidia.com/cuda.runtime-version.major": cuda[0],
        "nvidia.com/cuda.runtime-version.minor": cuda[1],
    }
    if model.mig_profiles:
        labels[GFD_MIG_STRATEGY] = "mixed" if node.profile.layouts else "none"
    return labels | _mig_labels(node, cards)


def _mig_labels(node: FleetNode, cards: Mapping[int, Card]) -> dict[str, str]:
    instances = [one for slot in cards for one in node.partitions(slot)]
    labels: dict[str, str] = {}
    for partition in dict.fromkeys(instances):
        facts = _instance(node, partition, instances.count(partition))
        labels |= {f"{partition.resource}.{fact}": value for fact, value in facts.items()}
    return labels


def _instance(node: FleetNode, partition: Partition, number: int) -> dict[str, str]:
    return {
        "count": str(number),
        "memory": str(partition.memory_mib),
        "multiprocessors": str(partition.multiprocessors),
        "product": f"{_word(node.model.product)}-MIG-{partition.profile}",
        "replicas": "1",
        "slices.gi": str(partition.slices),
        "slices.ci": str(partition.slices),
    }


def _pci(node: FleetNode, cards: Mapping[int, Card]) -> Iterable[dict[str, str]]:
    """The node's PCI devices as NFD lists them: the GPUs, and what else sits in such a machine."""
    for card in in_order(cards):
        yield {"vendor": card.pci_vendor, "device": card.pci_device, "class": str(card.pci_class)}
    for other in node.model.others:
        for _ in range(other.number):
            yield {"vendor": other.vendor, "device": other.device, "class": other.pci_class}


def in_order(cards: Mapping[int, Card]) -> Sequence[Card]:
    """The cards in the order of their slots, which is that of their addresses."""
    return [cards[slot] for slot in sorted(cards)]


def _kernel() -> dict[str, str]:
    major, minor, revision = KERNEL_VERSION.partition("-")[0].split(".")
    return {"full": KERNEL_VERSION, "major": major, "minor": minor, "revision": revision}


def _word(product: str) -> str:
    return product.replace(" ", "-")
