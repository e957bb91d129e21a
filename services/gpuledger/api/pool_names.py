"""The names that folds and decisions of pools use: annotations, phases, words of agents, types and reasons.

They are the Kubernetes edge's own; that both say the same is tested, because a fold may not import the edge.
"""

from enum import StrEnum
from typing import Final

GROUP: Final = "gpu.deckhouse.io"
CLUSTER_GROUP: Final = "cluster.gpu.deckhouse.io"
ASSIGNMENT: Final = f"{GROUP}/assignment"
CLUSTER_ASSIGNMENT: Final = f"{CLUSTER_GROUP}/assignment"

PROVIDER_NVIDIA: Final = "Nvidia"
BACKEND_DEVICE_PLUGIN: Final = "DevicePlugin"
UNIT_MIG: Final = "MIG"

READY: Final = "Ready"
"""What a device's preparation ends in; the only state in which a pool may take it, or have it confirmed."""

READY_FOR_POOLING: Final = "ReadyForPooling"
TRUE: Final = "True"
FALSE: Final = "False"
"""Statuses of conditions."""

MAINTENANCE_ENABLED: Final = "enabled"
MAINTENANCE_CONFIRMED: Final = "confirmed"

MANUAL: Final = "Manual"
SELECTOR: Final = "Selector"


class Phase(StrEnum):
    """How far an assignment is."""

    PENDING = "Pending"
    ASSIGNED = "Assigned"
    UNASSIGNING = "Unassigning"


class Word(StrEnum):
    """What the agent last said of a device and a pool."""

    APPLIED = "applied"
    REFUSED = "refused"
    RELEASED = "released"


class Type(StrEnum):
    """Types of a pool's conditions."""

    SUPPORTED = "Supported"
    CONFIGURED = "Configured"
    MISCONFIGURED = "Misconfigured"
    CAPACITY_LOW = "CapacityLow"
    MAINTENANCE = "Maintenance"


class Reason(StrEnum):
    """Why an assignment is as it is. Words of agents bring their own."""

    ASKED_FOR = "AskedFor"
    APPROVED = "ApprovedAutomatically"
    CONFIRMED = "ConfirmedByAgent"
    RELEASED = "ReleasedByAgent"
    LOST = "DeviceNotReady"
    TAKEN_BACK = "TakenBackByAgent"
    NOT_ASKED_FOR = "NotAskedFor"
    MISMATCH = "AnnotationMismatch"
    IGNORED = "IgnoredByLabel"
    NOT_MANAGED = "NodeNotManaged"
    MISSING = "NotObserved"
    NODE_NOT_READY = "NodeNotReadyForPooling"
    NODE_FULL = "NodeLimitReached"
    POOL_CLOSED = "PoolTakesNoDevices"
    POOL_DELETED = "PoolDeleted"
    POOL_GONE = "PoolGone"
    NOT_MATCHING = "NoLongerMatching"
    DRIFT = "Drift"


class PoolReason(StrEnum):
    """Reasons of a pool's conditions. Refusals of agents bring their own."""

    SUPPORTED = "Supported"
    PROVIDER_NOT_SUPPORTED = "ProviderNotSupported"
    BACKEND_NOT_SUPPORTED = "BackendNotSupported"
    CONFIGURED = "Configured"
    NAME_COLLISION = "NameCollision"
    DELETING = "Deleting"
    MIG_PROFILE_MISSING = "MIGProfileMissing"
    MIG_PROFILE_INVALID = "MIGProfileInvalid"
    MIG_PROFILE_UNUSED = "MIGProfileUnused"
    SLICES_ABOVE_CAP = "SlicesAboveCap"
    SELECTOR_INVALID = "SelectorInvalid"
    NAME_INVALID = "NameInvalid"
    NO_PROBLEMS = "NoProblems"
    NO_CAPACITY = "NoCapacity"
    CAPACITY_UNKNOWN = "CapacityUnknown"
    HAS_CAPACITY = "HasCapacity"
    BY_OPERATOR = "ByOperator"
    DRIFT = "Drift"
    IN_SERVICE = "InService"
