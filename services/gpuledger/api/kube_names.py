"""Every name that the product uses in Kubernetes: groups, resources, labels, annotations, conditions, reasons.

Names are an interface to other people's clusters, so each is written once, here, and nowhere else in the code. This
module holds data only: it must never import a client, so that pure code may use it.
"""

from enum import StrEnum
from typing import Final, NamedTuple


class Resource(NamedTuple):
    """Where a kind of object lives in the API. The core group is the empty string."""

    group: str
    version: str
    plural: str
    kind: str
    namespaced: bool = False

    @property
    def api_version(self) -> str:
        """As objects give it: `v1`, `gpu.deckhouse.io/v1alpha1`."""
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def full_name(self) -> str:
        """As `kubectl get` takes it: `nodes`, `gpudevices.gpu.deckhouse.io`."""
        return f"{self.plural}.{self.group}" if self.group else self.plural

    def path(self, namespace: str | None = None) -> str:
        """The URL path of its collection, in one namespace or in all."""
        root = f"/apis/{self.group}/{self.version}" if self.group else f"/api/{self.version}"
        within = f"/namespaces/{namespace}" if namespace and self.namespaced else ""
        return f"{root}{within}/{self.plural}"


GPU_GROUP: Final = "gpu.deckhouse.io"
CLUSTER_GPU_GROUP: Final = "cluster.gpu.deckhouse.io"
"""No API group: the prefix of what belongs to cluster-wide pools (resources, the assignment annotation)."""

DECKHOUSE_GROUP: Final = "deckhouse.io"
NFD_GROUP: Final = "nfd.k8s-sigs.io"
MACHINE_CONFIG_GROUP: Final = "mco.in-cloud.io"
SCHEDULING_GROUP: Final = "scheduling.kooperator"
RESOURCE_STATUS_GROUP: Final = "resource.gpuledger.io"

GPU_DEVICES: Final = Resource(GPU_GROUP, "v1alpha1", "gpudevices", "GPUDevice")
GPU_NODE_STATES: Final = Resource(GPU_GROUP, "v1alpha1", "gpunodestates", "GPUNodeState")
GPU_POOLS: Final = Resource(GPU_GROUP, "v1alpha1", "gpupools", "GPUPool", namespaced=True)
CLUSTER_GPU_POOLS: Final = Resource(GPU_GROUP, "v1alpha1", "clustergpupools", "ClusterGPUPool")
MODULE_CONFIGS: Final = Resource(DECKHOUSE_GROUP, "v1alpha1", "moduleconfigs", "ModuleConfig")
NODE_FEATURES: Final = Resource(NFD_GROUP, "v1alpha1", "nodefeatures", "NodeFeature", namespaced=True)
NODE_FEATURE_RULES: Final = Resource(NFD_GROUP, "v1alpha1", "nodefeaturerules", "NodeFeatureRule")
NODES: Final = Resource("", "v1", "nodes", "Node")
NAMESPACES: Final = Resource("", "v1", "namespaces", "Namespace")
PODS: Final = Resource("", "v1", "pods", "Pod", namespaced=True)
CONFIG_MAPS: Final = Resource("", "v1", "configmaps", "ConfigMap", namespaced=True)
SECRETS: Final = Resource("", "v1", "secrets", "Secret", namespaced=True)
DAEMON_SETS: Final = Resource("apps", "v1", "daemonsets", "DaemonSet", namespaced=True)
EVENTS: Final = Resource("events.k8s.io", "v1", "events", "Event", namespaced=True)
CRDS: Final = Resource("apiextensions.k8s.io", "v1", "customresourcedefinitions", "CustomResourceDefinition")

RESOURCE_SLICES: Final = Resource("resource.k8s.io", "v1", "resourceslices", "ResourceSlice")
RESOURCE_CLAIMS: Final = Resource("resource.k8s.io", "v1", "resourceclaims", "ResourceClaim", namespaced=True)
DEVICE_CLASSES: Final = Resource("resource.k8s.io", "v1", "deviceclasses", "DeviceClass")
DEVICE_TAINT_RULES: Final = Resource("resource.k8s.io", "v1beta2", "devicetaintrules", "DeviceTaintRule")
OLDER_DEVICE_TAINT_RULES: Final = DEVICE_TAINT_RULES._replace(version="v1alpha3")
"""As Kubernetes before 1.36 serves them; of the same shape."""

RESOURCE_SLICE_STATUSES: Final = Resource(
    RESOURCE_STATUS_GROUP, "v1alpha1", "resourceslicestatuses", "ResourceSliceStatus"
)

FIELD_MANAGER: Final = "gpuledger"
"""Owns what the product writes; statuses and the labels that it keeps on GPUDevices."""

ASSIGNMENT_FIELD_MANAGER: Final = "gpuledger-auto-approval"
"""Owns the assignment annotation where a pool approves by itself, and nothing else of a user's metadata."""

EVENT_REPORTER: Final = "gpuledger"
MANAGED_BY: Final = "gpuledger"
"""The value of the label `app.kubernetes.io/managed-by` on DaemonSets that the product keeps."""

NAMESPACE: Final = "d8-gpu-operator"
CONTROLLER_TLS_SECRET: Final = "gpu-control-plane-controller-tls"  # noqa: S105 - the name of a secret
CA_SECRET: Final = "gpu-control-plane-ca"  # noqa: S105 - the name of a secret

MODULE_CONFIG: Final = "gpu-control-plane"
NODE_FEATURE_RULE: Final = "deckhouse-gpu-kernel-os"
NFD_COVERAGE: Final = "gpu-nfd-coverage"
NFD_VERSION_MIN: Final = (0, 17)

PRINTED_CATEGORY: Final = "gpu"
"""`kubectl get gpu` shows all kinds of this category."""

TRUE: Final = "true"
FALSE: Final = "false"

LABEL_ENABLED: Final = f"{GPU_GROUP}/enabled"
"""On nodes: `false` takes a node out of management; the key is a setting. On namespaces: GPU pods are allowed."""

LABEL_IGNORE: Final = f"{GPU_GROUP}/ignore"
"""On GPUDevices: `true` keeps a device out of every pool, and in the inventory."""

LABEL_PRODUCT: Final = f"{GPU_GROUP}/product"
LABEL_VENDOR: Final = f"{GPU_GROUP}/vendor"
LABEL_PRECISION_PREFIX: Final = f"{GPU_GROUP}/precision."
"""Followed by a precision (`fp16`), with the value `true`. Ours to keep, as product and vendor are."""

ANNOTATION_ASSIGNMENT: Final = f"{GPU_GROUP}/assignment"
"""On GPUDevices: the GPUPool that the device is given to."""

ANNOTATION_CLUSTER_ASSIGNMENT: Final = f"{CLUSTER_GPU_GROUP}/assignment"
"""On GPUDevices: the ClusterGPUPool that the device is given to."""

POOL_FINALIZER: Final = f"{GPU_GROUP}/pool"
"""On pools: they stay until nothing of them is left on any node."""

ANNOTATION_MAINTENANCE: Final = f"{GPU_GROUP}/maintenance"
"""On pools: `enabled` has them take no new devices, `confirmed` ends what drift began."""

POOL_RESOURCES: Final = (f"{GPU_GROUP}/", f"{CLUSTER_GPU_GROUP}/")
"""Prefixes of the resources with which pods ask for units of pools; `pool_resource` puts one together."""

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


def assignment_annotation(pool: str) -> dict[str, str]:
    """The annotation that gives a GPUDevice to a pool, by the pool's id (`<namespace>/<name>` or `<name>`)."""
    key = ANNOTATION_ASSIGNMENT if "/" in pool else ANNOTATION_CLUSTER_ASSIGNMENT
    return {key: pool.rpartition("/")[2]}


def pool_resource(pool: str, *, cluster: bool) -> str:
    """The extended resource with which pods ask for units of a pool."""
    return f"{CLUSTER_GPU_GROUP if cluster else GPU_GROUP}/{pool}"


class DeviceState(StrEnum):
    """`GPUDevice.status.state`."""

    DISCOVERED = "Discovered"
    VALIDATING = "Validating"
    READY = "Ready"
    PENDING_ASSIGNMENT = "PendingAssignment"
    ASSIGNED = "Assigned"
    FAULTED = "Faulted"


class NodeCondition(StrEnum):
    """Condition types of a GPUNodeState."""

    MANAGED_DISABLED = "ManagedDisabled"
    INVENTORY_COMPLETE = "InventoryComplete"
    GFD_READY = "GFDReady"
    DRIVER_MISSING = "DriverMissing"
    TOOLKIT_MISSING = "ToolkitMissing"
    MONITORING_MISSING = "MonitoringMissing"
    INFRA_DEGRADED = "InfraDegraded"
    DEGRADED_WORKLOADS = "DegradedWorkloads"
    READY_FOR_POOLING = "ReadyForPooling"


class DeviceCondition(StrEnum):
    """Condition types of a GPUDevice."""

    MANAGED_DISABLED = "ManagedDisabled"
    IGNORED = "Ignored"
    CONFIGURED = "Configured"
    FAULTED = "Faulted"
    UNASSIGNING = "Unassigning"


PREREQUISITE_NOT_MET: Final = "PrerequisiteNotMet"
"""The module's own condition while Node Feature Discovery is missing or too old; it belongs to no node."""


class Status(StrEnum):
    """Statuses of a condition."""

    TRUE = "True"
    FALSE = "False"
    UNKNOWN = "Unknown"


class Reason(StrEnum):
    """Reasons of conditions."""

    NO_DEVICES_DISCOVERED = "NoDevicesDiscovered"
    ALL_DEVICES_DESCRIBED = "AllDevicesDescribed"
    ATTRIBUTES_MISSING = "AttributesMissing"
    DISABLED_BY_LABEL = "DisabledByLabel"
    ENABLED = "Enabled"
    NOT_ENABLED_BY_DEFAULT = "NotEnabledByDefault"
    IGNORED_BY_LABEL = "IgnoredByLabel"
    NOT_IGNORED = "NotIgnored"
    NFD_MISSING = "NodeFeatureDiscoveryMissing"
    NFD_TOO_OLD = "NodeFeatureDiscoveryTooOld"
    PREREQUISITES_MET = "PrerequisitesMet"
    INFRASTRUCTURE_DEGRADED = "InfrastructureDegraded"
    VALIDATING_FAILED = "ValidatingFailed"
    HARDWARE_FAULT = "HardwareFault"


class EventReason(StrEnum):
    """Reasons of Kubernetes Events."""

    DEVICE_DETECTED = "GPUDeviceDetected"
    DEVICE_REMOVED = "GPUDeviceRemoved"
    CONDITION_CHANGED = "GPUInventoryConditionChanged"
    ANNOTATION_MISMATCH = "GPUAnnotationMismatch"
    NODE_WITHOUT_POOL = "GPUNodeWithoutPool"
    PHASE_CHANGED = "GPUBootstrapPhaseChanged"
    DEVICE_FAULTED = "GPUDeviceFaulted"
    MAINTENANCE = "Maintenance"
    MISCONFIGURED = "Misconfigured"
    STATUS_RESTORED = "GPUStatusRestored"
    FIELD_CONFLICT = "GPUFieldConflict"
