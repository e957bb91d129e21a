"""Reasons of conditions, assignments and Kubernetes Events, as people and alerts read them. Pure."""

from enum import StrEnum


class InventoryReason(StrEnum):
    """Reasons of the conditions that the inventory decides."""

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
    SURVEYED_BY_AGENTS = "NodesSurveyedByAgents"


class ModuleReason(StrEnum):
    """Reasons of the module's condition `Configured`."""

    SETTINGS_IN_FORCE = "SettingsInForce"
    SETTINGS_NOT_IN_FORCE = "SettingsNotInForce"


class WithdrawalReason(StrEnum):
    """Why a GPUDevice exists no longer although its node does, and its card is in no other one."""

    REPLACED = "Replaced"
    RETIRED = "Retired"


class PreparationReason(StrEnum):
    """Reasons of a node's preparation conditions and of a GPUDevice's state."""

    MANAGED_DISABLED = "ManagedDisabled"
    COMPONENT_DISABLED = "ComponentDisabled"
    VALIDATOR_PENDING = "ValidatorPending"
    VALIDATOR_READY = "ValidatorReady"
    VALIDATOR_TIMED_OUT = "ValidatorTimedOut"
    DRIVER_VALIDATION_FAILED = "DriverValidationFailed"
    DRIVER_NOT_ANSWERING = "DriverNotAnswering"
    TOOLKIT_VALIDATION_FAILED = "ToolkitValidationFailed"
    VALIDATION_FAILED = "ValidationFailed"
    WAITING_FOR_DRIVER = "WaitingForDriver"
    GFD_PENDING = "GFDPending"
    GFD_FAILING = "GFDFailing"
    GFD_TIMED_OUT = "GFDTimedOut"
    GFD_SYNCED = "GFDSynced"
    INVENTORY_INCOMPLETE = "InventoryIncomplete"
    DCGM_PENDING = "DCGMPending"
    DCGM_FAILING = "DCGMFailing"
    DCGM_TIMED_OUT = "DCGMTimedOut"
    EXPORTER_PENDING = "DCGMExporterPending"
    EXPORTER_FAILING = "DCGMExporterFailing"
    EXPORTER_TIMED_OUT = "DCGMExporterTimedOut"
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


class AssignmentReason(StrEnum):
    """Why an assignment is in its phase. A refusal carries the reason that the agent gives."""

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
    NODE_ASIDE = "NodeUnderMaintenance"
    NODE_FULL = "NodeLimitReached"
    POOL_CLOSED = "PoolTakesNoDevices"
    POOL_DELETED = "PoolDeleted"
    POOL_GONE = "PoolGone"
    NOT_MATCHING = "NoLongerMatching"
    DRIFT = "Drift"
    LEFT_TO_SHARING = "LeftToSharing"


class NotSharedReason(StrEnum):
    """Why a card of a node that shares its cards is not offered."""

    IN_POOL = "InPool"
    PUBLISHED = "PublishedForDRA"
    IGNORED = "IgnoredByLabel"
    NOT_MANAGED = "NodeNotManaged"
    UNIDENTIFIED = "NotIdentified"
    MIG = "MIGEnabled"
    NOT_LEFT = "NotLeftByPools"


class PoolReason(StrEnum):
    """Reasons of a pool's conditions. A refusal carries the reason that the agent gives."""

    SUPPORTED = "Supported"
    PROVIDER_NOT_SUPPORTED = "ProviderNotSupported"
    BACKEND_NOT_SUPPORTED = "BackendNotSupported"
    CONFIGURED = "Configured"
    CONFIGURED_WITH_WARNING = "ConfiguredWithWarning"
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


class EventReason(StrEnum):
    """Reasons of Kubernetes Events."""

    DEVICE_DETECTED = "GPUDeviceDetected"
    DEVICE_REMOVED = "GPUDeviceRemoved"
    CONDITION_CHANGED = "GPUInventoryConditionChanged"
    ANNOTATION_MISMATCH = "GPUAnnotationMismatch"
    NODE_WITHOUT_POOL = "GPUNodeWithoutPool"
    LABELS_CHECKED = "GPUNodeLabelsChecked"
    PHASE_CHANGED = "GPUBootstrapPhaseChanged"
    DEVICE_FAULTED = "GPUDeviceFaulted"
    MAINTENANCE = "Maintenance"
    MISCONFIGURED = "Misconfigured"
    STATUS_RESTORED = "GPUStatusRestored"
    FIELD_CONFLICT = "GPUFieldConflict"
    PREFLIGHT_CHECK_FAILED = "PreflightCheckFailed"
    RENDER_FAILED = "RenderFailed"
    POOL_OVERLAP = "PoolOverlap"
    UPDATE_STARTED = "UpdateStarted"
    UPDATE_APPLIED = "UpdateApplied"
    DRAIN_FAILED = "DrainFailed"
    DRAIN_STUCK = "DrainStuck"
    APPLY_FAILED = "ApplyFailed"
    APPLY_TIMEOUT = "ApplyTimeout"
    REBOOT_STARTED = "RebootStarted"
