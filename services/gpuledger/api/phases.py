"""How far a node, a device or an assignment is: states, phases, components and verdicts. Pure."""

from enum import StrEnum
from typing import Final

HEARTBEAT_MAX_AGE_S: Final = 120
"""For how long monitoring may be unheard of: the age of a heartbeat, and of a node-agent that is not ready."""

DRIVER_STEP: Final = "driver-validation"
"""The validator's first step; a later one runs only where the driver works."""

TOOLKIT_STEP: Final = "toolkit-validation"
"""The validator's step that runs only where the toolkit gives containers the GPUs."""

PLUGIN_STEP: Final = "plugin-validation"
"""The last step of GPU Operator's validator, after all the others: it asks for a `nvidia.com/gpu` that is free.

Where pools publish the GPUs nobody serves that resource, so it is not waited for."""

WATCHING_STEP: Final = "validated"
"""The shipped validator's last container: it runs where driver and toolkit work, and is ready while the driver does."""


class DeviceState(StrEnum):
    """`GPUDevice.status.state`."""

    DISCOVERED = "Discovered"
    VALIDATING = "Validating"
    READY = "Ready"
    PENDING_ASSIGNMENT = "PendingAssignment"
    ASSIGNED = "Assigned"
    FAULTED = "Faulted"


class Component(StrEnum):
    """What runs on a node to prepare and monitor its GPUs."""

    VALIDATOR = "validator"
    GFD = "gfd"
    DCGM = "dcgm"
    DCGM_EXPORTER = "dcgm-exporter"
    NODE_AGENT = "node-agent"


class PreparationPhase(StrEnum):
    """How far the preparation of a node is."""

    DISABLED = "Disabled"
    VALIDATING = "Validating"
    GFD = "GFD"
    MONITORING = "Monitoring"
    READY = "Ready"
    VALIDATING_FAILED = "ValidatingFailed"


class ValidatorVerdict(StrEnum):
    """What the validator found. While the driver is missing, or another step fails, the toolkit's state is unknown."""

    FINE = "Fine"
    DRIVER_MISSING = "DriverMissing"
    TOOLKIT_MISSING = "ToolkitMissing"
    VALIDATION_FAILED = "ValidationFailed"


class AssignmentPhase(StrEnum):
    """How far the assignment of a device to a pool is."""

    PENDING = "Pending"
    ASSIGNED = "Assigned"
    UNASSIGNING = "Unassigning"


class AgentReport(StrEnum):
    """What the agent last reported of a device and a pool."""

    APPLIED = "applied"
    REFUSED = "refused"
    RELEASED = "released"
