"""Labels, annotations, finalizers and resource names that gpuledger reads and writes on Kubernetes objects. Pure.

Each is written here and nowhere else; those of NFD, GFD and the GPU operator are as these projects publish them.
"""

from typing import Final

from gpuledger.api.kinds import CLUSTER_GPU_GROUP, GPU_GROUP

LABEL_TRUE: Final = "true"
LABEL_FALSE: Final = "false"

LABEL_ENABLED: Final = f"{GPU_GROUP}/enabled"
"""On nodes: `false` takes a node out of management; the key is a setting. On namespaces: GPU pods are allowed."""

LABEL_IGNORE: Final = f"{GPU_GROUP}/ignore"
"""On GPUDevices: `true` keeps a device out of every pool, and in the inventory."""

LABEL_EVACUATE: Final = f"{GPU_GROUP}/evacuate"
"""On GPUDevices: the mode of drain in which pods leave a device that leaves its pool; none: they end by themselves."""

LABEL_PRODUCT: Final = f"{GPU_GROUP}/product"
LABEL_VENDOR: Final = f"{GPU_GROUP}/vendor"
LABEL_PRECISION_PREFIX: Final = f"{GPU_GROUP}/precision."
"""Followed by a precision (`fp16`), with the value `true`. Ours to keep, as product and vendor are."""

ANNOTATION_ASSIGNMENT: Final = f"{GPU_GROUP}/assignment"
"""On GPUDevices: the GPUPool that the device is given to."""

ANNOTATION_CLUSTER_ASSIGNMENT: Final = f"{CLUSTER_GPU_GROUP}/assignment"
"""On GPUDevices: the ClusterGPUPool that the device is given to."""

ANNOTATION_RETIRED: Final = f"{GPU_GROUP}/retired"
"""On GPUDevices: `true` has the device withdrawn once its card is missing."""

ANNOTATION_ISOLATION: Final = "gpuledger.io/isolation"
"""On Nodes under maintenance: what of their cordon, taints and labels is ours, as JSON; nobody else writes it."""

ANNOTATION_REPLICAS: Final = "gpuledger.io/replicas"
"""On our own Deployments: how many pods the chart gives them where no setting says otherwise."""

COVERAGE_JOBS: Final = "app.kubernetes.io/part-of=gpuledger,app.kubernetes.io/component=nfd-coverage"
"""Selects the Jobs that compare the labels of nodes, as the chart labels them."""

POOL_FINALIZER: Final = f"{GPU_GROUP}/pool"
"""On pools: they stay until nothing of them is left on any node."""

ANNOTATION_MAINTENANCE: Final = f"{GPU_GROUP}/maintenance"
"""On pools: `enabled` has them take no new devices, `confirmed` ends what drift began."""

POOL_RESOURCES: Final = (f"{GPU_GROUP}/", f"{CLUSTER_GPU_GROUP}/")
"""Prefixes of the resources with which pods request units of pools; `PoolRef` names them."""

LABEL_APP: Final = "app"
"""On pods: what they run."""

COMPONENT_BY_APP: Final = {
    "nvidia-operator-validator": "validator",
    "gpu-feature-discovery": "gfd",
    "nvidia-dcgm": "dcgm",
    "nvidia-dcgm-exporter": "dcgm-exporter",
    "gpu-node-agent": "node-agent",
}
"""What prepares a node's GPUs and watches over them, by the label of its pods."""

LABEL_APP_NAME: Final = "app.kubernetes.io/name"
"""On pods of charts: what they run."""

COMPONENT_BY_APP_NAME: Final = {"dcgm-exporter": "dcgm-exporter"}
"""Components whose own charts give their pods only this label."""

LABEL_DETECTED: Final = f"{GPU_GROUP}/detected"
"""On nodes: `true` where gpuledger's inventory has GPUs. Ours alone; Node Feature Discovery sets `LABEL_PRESENT`."""

LABEL_PRESENT: Final = f"{GPU_GROUP}/present"
LABEL_DEVICE_COUNT: Final = f"{GPU_GROUP}/device-count"
LABEL_DEVICE_PREFIX: Final = f"{GPU_GROUP}/device."
"""Followed by a two-digit index and `.vendor`, `.device` or `.class`; `device_label` puts one together."""

LABEL_DRIVER_NAME: Final = f"{GPU_GROUP}/driver.name"
LABEL_DRIVER_MODULE_PREFIX: Final = f"{GPU_GROUP}/driver.module."
LABEL_KERNEL_PREFIX: Final = f"{GPU_GROUP}/kernel.version."
LABEL_OS_ID: Final = f"{GPU_GROUP}/os.id"
LABEL_OS_VERSION_ID: Final = f"{GPU_GROUP}/os.version_id"
LABELS_OF_HARDWARE: Final = (f"{GPU_GROUP}/", "nvidia.com/")
"""Prefixes of the node labels that tell of GPUs."""

GFD_PRESENT: Final = "nvidia.com/gpu.present"
GFD_PRODUCT: Final = "nvidia.com/gpu.product"
GFD_COUNT: Final = "nvidia.com/gpu.count"
GFD_MEMORY_MIB: Final = "nvidia.com/gpu.memory"
GFD_COMPUTE_MAJOR: Final = "nvidia.com/gpu.compute.major"
GFD_COMPUTE_MINOR: Final = "nvidia.com/gpu.compute.minor"
GFD_FAMILY: Final = "nvidia.com/gpu.family"
GFD_MIG_CAPABLE: Final = "nvidia.com/mig.capable"
GFD_MIG_STRATEGY: Final = "nvidia.com/mig.strategy"
GFD_MIG_PREFIX: Final = "nvidia.com/mig-"
"""Followed by a profile (`1g.10gb`) and `.count` and the like, where the strategy is `mixed`."""

NFD_NODE_NAME: Final = "nfd.node.kubernetes.io/node-name"
"""On NodeFeatures: the node that they describe."""

NFD_WORKER_VERSION: Final = "nfd.node.kubernetes.io/worker.version"
"""An annotation of NodeFeatures: the version that found what they tell (`v0.17.1`); not always a version."""

NFD_FEATURE_LABELS: Final = "nfd.node.kubernetes.io/feature-labels"
NFD_PCI_DEVICE: Final = "pci.device"
NFD_KERNEL_MODULES: Final = "kernel.loadedmodule"
NFD_KERNEL_VERSION: Final = "kernel.version"
NFD_OS_RELEASE: Final = "system.osrelease"
NFD_LABEL_PREFIX: Final = "feature.node.kubernetes.io/"

VENDOR_NVIDIA: Final = "10de"
"""PCI vendor id, without `0x`, in lower case, as NFD writes it."""

GPU_CLASSES: Final = frozenset({"0300", "0302"})
"""PCI classes of GPUs: VGA and 3D controllers."""

TOPOLOGY_ZONE: Final = "topology.kubernetes.io/zone"
HOSTNAME: Final = "kubernetes.io/hostname"


def device_label(index: int, fact: str) -> str:
    """The node label with a fact (`vendor`, `device`, `class`) of the node's device at that index, from 0."""
    return f"{LABEL_DEVICE_PREFIX}{index:02d}.{fact}"


def is_our_label(key: str) -> bool:
    """Whether the product owns this label of GPUDevices, whoever wrote it."""
    return key in (LABEL_PRODUCT, LABEL_VENDOR) or key.startswith(LABEL_PRECISION_PREFIX)
