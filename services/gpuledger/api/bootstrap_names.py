"""The field's names that the preparation of nodes uses: components, phases, condition types and reasons."""

from enum import StrEnum
from typing import Final

HEARTBEAT_MAX_AGE_S: Final = 120
"""For how long monitoring may be unheard of: the age of a heartbeat, and of a node-agent that is not ready."""

DRIVER_STEP: Final = "driver-validation"
"""The validator's first step; a later one runs only where the driver works."""

WATCHING_STEP: Final = "validated"
"""The shipped validator's last container: it runs where driver and toolkit work, and is ready while the driver does."""


class Component(StrEnum):
    """What runs on a node to prepare its GPUs and to watch over them."""

    VALIDATOR = "validator"
    GFD = "gfd"
    DCGM = "dcgm"
    DCGM_EXPORTER = "dcgm-exporter"
    NODE_AGENT = "node-agent"


class Phase(StrEnum):
    """How far a node's preparation is."""

    DISABLED = "Disabled"
    VALIDATING = "Validating"
    GFD = "GFD"
    MONITORING = "Monitoring"
    READY = "Ready"
    VALIDATING_FAILED = "ValidatingFailed"


class Verdict(StrEnum):
    """What the validator found; where the driver is missing, nothing is known of the toolkit."""

    FINE = "Fine"
    DRIVER_MISSING = "DriverMissing"
    TOOLKIT_MISSING = "ToolkitMissing"


class PreparationType(StrEnum):
    """Types of the conditions that the preparation keeps of a node."""

    DRIVER_MISSING = "DriverMissing"
    TOOLKIT_MISSING = "ToolkitMissing"
    GFD_READY = "GFDReady"
    MONITORING_MISSING = "MonitoringMissing"
    INFRA_DEGRADED = "InfraDegraded"
    DEGRADED_WORKLOADS = "DegradedWorkloads"
    READY_FOR_POOLING = "ReadyForPooling"


class PreparationReason(StrEnum):
    """Reasons of the preparation's conditions, and of a GPUDevice's state."""

    MANAGED_DISABLED = "ManagedDisabled"
    COMPONENT_DISABLED = "ComponentDisabled"
    VALIDATOR_PENDING = "ValidatorPending"
    VALIDATOR_READY = "ValidatorReady"
    VALIDATOR_TIMED_OUT = "ValidatorTimedOut"
    DRIVER_VALIDATION_FAILED = "DriverValidationFailed"
    DRIVER_NOT_ANSWERING = "DriverNotAnswering"
    TOOLKIT_VALIDATION_FAILED = "ToolkitValidationFailed"
    WAITING_FOR_DRIVER = "WaitingForDriver"
    GFD_PENDING = "GFDPending"
    GFD_FAILING = "GFDFailing"
    GFD_SYNCED = "GFDSynced"
    INVENTORY_INCOMPLETE = "InventoryIncomplete"
    DCGM_PENDING = "DCGMPending"
    DCGM_FAILING = "DCGMFailing"
    EXPORTER_PENDING = "DCGMExporterPending"
    EXPORTER_FAILING = "DCGMExporterFailing"
    NODE_AGENT_NOT_READY = "NodeAgentNotReady"
    HEARTBEAT_MISSING = "HeartbeatMissing"
    HEARTBEAT_STALE = "HeartbeatStale"
    HEARTBEAT_UNSTABLE = "HeartbeatUnstable"
    HEARTBEAT_STABLE = "HeartbeatStable"
    NOT_DEGRADED = "NotDegraded"
    DEVICES_ASSIGNED = "DevicesAssigned"
    NO_DEVICES_ASSIGNED = "NoDevicesAssigned"
    NO_DEVICES = "NoDevices"
    INFRASTRUCTURE_NOT_READY = "InfrastructureNotReady"
    DEVICES_NOT_READY = "DevicesNotReady"
    READY_FOR_POOLING = "ReadyForPooling"
    NODE_VALIDATING = "NodeValidating"
    VALIDATED = "Validated"
    INFRASTRUCTURE_DEGRADED = "InfrastructureDegraded"
    HARDWARE_FAULT = "HardwareFault"
    NOT_OBSERVED = "NotObserved"
    RECOVERING = "Recovering"
