"""Condition types of GPUNodeStates, GPUDevices and pools, and the statuses that a condition can have. Pure."""

from datetime import UTC, datetime
from enum import StrEnum
from typing import Final

TRUE: Final = "True"
FALSE: Final = "False"
UNKNOWN: Final = "Unknown"
"""Only the pools of ResourceSlices have conditions with this status."""


class ConditionStatus(StrEnum):
    """Statuses of a condition."""

    TRUE = TRUE
    FALSE = FALSE


class NodeConditionType(StrEnum):
    """Condition types of a GPUNodeState; the first seed's table gives them."""

    MANAGED_DISABLED = "ManagedDisabled"
    INVENTORY_COMPLETE = "InventoryComplete"
    GFD_READY = "GFDReady"
    DRIVER_MISSING = "DriverMissing"
    TOOLKIT_MISSING = "ToolkitMissing"
    MONITORING_MISSING = "MonitoringMissing"
    INFRA_DEGRADED = "InfraDegraded"
    DEGRADED_WORKLOADS = "DegradedWorkloads"
    READY_FOR_POOLING = "ReadyForPooling"


class DeviceConditionType(StrEnum):
    """Condition types of a GPUDevice."""

    MANAGED_DISABLED = "ManagedDisabled"
    IGNORED = "Ignored"
    MISSING = "Missing"
    CONFIGURED = "Configured"
    FAULTED = "Faulted"
    UNASSIGNING = "Unassigning"


class PoolConditionType(StrEnum):
    """Condition types of a GPUPool or ClusterGPUPool."""

    SUPPORTED = "Supported"
    CONFIGURED = "Configured"
    MISCONFIGURED = "Misconfigured"
    CAPACITY_LOW = "CapacityLow"
    MAINTENANCE = "Maintenance"


PREREQUISITE_NOT_MET: Final = "PrerequisiteNotMet"
"""The module's own condition while Node Feature Discovery is missing or too old; it belongs to no node."""

MODULE_CONFIGURED: Final = "Configured"
"""The module's own condition: whether everything that its ModuleConfig sets is in force."""

MODULE_CONDITIONS: Final = frozenset({PREREQUISITE_NOT_MET, MODULE_CONFIGURED})
"""All conditions of the module."""


def rfc3339(time: datetime) -> str:
    """A time in the form of Kubernetes' conditions, to the second."""
    return time.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def rfc3339_exact(time: datetime) -> str:
    """A time as RFC 3339 has it, with microseconds where it has any."""
    return time.astimezone(UTC).isoformat().replace("+00:00", "Z")
