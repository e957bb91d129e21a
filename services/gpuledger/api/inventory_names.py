"""The field's names that the inventory's folds and statuses use: labels, states, condition types and reasons.

They are the Kubernetes edge's own; that both say the same is tested, because a fold may not import the edge.
"""

from enum import StrEnum
from typing import Final

MODULE: Final = "gpu-control-plane"
NFD_VERSION_MIN: Final = (0, 17)

NFD_LABEL_PREFIX: Final = "feature.node.kubernetes.io/"
DEVICE_PREFIX: Final = "gpu.deckhouse.io/device."
DEVICE_COUNT: Final = "gpu.deckhouse.io/device-count"
PRESENT: Final = "gpu.deckhouse.io/present"
IGNORE: Final = "gpu.deckhouse.io/ignore"
PRODUCT: Final = "gpu.deckhouse.io/product"
VENDOR: Final = "gpu.deckhouse.io/vendor"
PRECISION_PREFIX: Final = "gpu.deckhouse.io/precision."

GFD_PRESENT: Final = "nvidia.com/gpu.present"
GFD_PRODUCT: Final = "nvidia.com/gpu.product"
GFD_MEMORY_MIB: Final = "nvidia.com/gpu.memory"
GFD_COMPUTE_MAJOR: Final = "nvidia.com/gpu.compute.major"
GFD_COMPUTE_MINOR: Final = "nvidia.com/gpu.compute.minor"
GFD_MIG_CAPABLE: Final = "nvidia.com/mig.capable"
GFD_MIG_STRATEGY: Final = "nvidia.com/mig.strategy"
GFD_MIG_PREFIX: Final = "nvidia.com/mig-"

VENDOR_NVIDIA: Final = "10de"
GPU_CLASSES: Final = frozenset({"0300", "0302"})

TRUE: Final = "true"
FALSE: Final = "false"


class State(StrEnum):
    """Where a GPUDevice stands; the inventory only ever begins it."""

    DISCOVERED = "Discovered"
    VALIDATING = "Validating"
    READY = "Ready"
    PENDING_ASSIGNMENT = "PendingAssignment"
    ASSIGNED = "Assigned"
    FAULTED = "Faulted"


class Type(StrEnum):
    """Types of conditions."""

    MANAGED_DISABLED = "ManagedDisabled"
    INVENTORY_COMPLETE = "InventoryComplete"
    IGNORED = "Ignored"
    MISSING = "Missing"
    CONFIGURED = "Configured"
    FAULTED = "Faulted"
    UNASSIGNING = "Unassigning"


PREREQUISITE_NOT_MET: Final = "PrerequisiteNotMet"


class Status(StrEnum):
    """Statuses of a condition."""

    TRUE = "True"
    FALSE = "False"


class Reason(StrEnum):
    """Reasons of conditions."""

    NO_DEVICES_DISCOVERED = "NoDevicesDiscovered"
    NODE_FEATURE_MISSING = "NodeFeatureMissing"
    ATTRIBUTES_MISSING = "AttributesMissing"
    ALL_DEVICES_DESCRIBED = "AllDevicesDescribed"
    DISABLED_BY_LABEL = "DisabledByLabel"
    NOT_ENABLED_BY_DEFAULT = "NotEnabledByDefault"
    NODE_NOT_MANAGED = "NodeNotManaged"
    ENABLED = "Enabled"
    IGNORED_BY_LABEL = "IgnoredByLabel"
    NOT_IGNORED = "NotIgnored"
    NOT_OBSERVED = "NotObserved"
    OBSERVED = "Observed"
    NFD_MISSING = "NodeFeatureDiscoveryMissing"
    NFD_TOO_OLD = "NodeFeatureDiscoveryTooOld"
    PREREQUISITES_MET = "PrerequisitesMet"
