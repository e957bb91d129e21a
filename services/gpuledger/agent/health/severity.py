"""The severity of each error of a card, the defaults and what the settings override, and the action that follows. Pure.

The defaults for XIDs follow the column "Immediate Action" of NVIDIA's XID catalogue
(https://docs.nvidia.com/deploy/xid-errors/analyzing-xid-catalog.html): a card that needs a reset, or whose machine
needs a restart (RESET_GPU, RESTART_BM, RESTART_VM, and the workflows of 48 and 74, which end there), cannot be used
until then. Exceptions:

- 13, 31, 43, 45, 68 and 109 are an application's, whatever else the catalogue advises; by default they leave a card
  usable.
- 155 also reports NVLinks that were taken down on purpose, and 144 to 150 are mostly harmless; where a reset is needed
  after them, the driver's recovery action in the readings says so.
- 63 and 94 leave the card usable until it can be reset ("when convenient").

The recommended actions have NVSentinel's names, so that remedies for its monitors are for our agents as well. They
follow the same column; where a fault is a reason to return a card, or nothing says what mends it, a person has to look.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Final, NamedTuple

from gpuledger.events import recommended_action as actions
from gpuledger.runtime.settings import SettingsError


class Severity(Enum):
    """What an error means for its card."""

    FAULT = "fault"
    """The card cannot be used until it recovers."""

    WARNING = "warning"
    """The error is reported, and the card stays usable."""

    APPLICATION = "application"
    """The error is reported as an application's, and the card stays usable."""

    IGNORE = "ignore"
    """The error is not reported."""


class Symptom(NamedTuple):
    """Something that is wrong with a card: its short name in the field, its severity, a message, and what mends it."""

    kind: str
    severity: Severity
    message: str
    action: str = actions.NO_ACTION


OFF_THE_BUS: Final = "OffTheBus"
RECOVERY_NEEDED: Final = "RecoveryNeeded"
ACTION_NEEDED: Final = "ActionNeeded"
REMAP_FAILED: Final = "RemapFailed"
REMAP_PENDING: Final = "RemapPending"
SRAM_THRESHOLD: Final = "SramThresholdExceeded"
THERMAL: Final = "ThermalThrottling"
POWER: Final = "PowerThrottling"
NVLINK_DOWN: Final = "NvlinkDown"
NVLINK_ERRORS: Final = "NvlinkErrors"
ECC_UNCORRECTED: Final = "EccUncorrected"

OTHER: Final = "Other"
"""The kind of errors that are reported together because a card has too many kinds of them at once."""

_FAULTS: Final[Mapping[int, str]] = {
    46: "The GPU stopped processing",
    48: "Double-bit ECC error",
    62: "An internal micro-controller halted",
    64: "Rows of the memory could not be remapped",
    74: "NVLink error",
    79: "The GPU has fallen off the bus",
    95: "Uncontained memory error",
    110: "Security fault",
    119: "The GPU's system processor (GSP) did not answer in time",
    120: "The GPU's system processor (GSP) failed",
    136: "NVLink training failed",
    140: "Unrecovered ECC error",
    143: "The GPU could not be initialised",
    151: "Key rotation failed",
    156: "A resource of the GPU was retired",
    158: "Fatal time-out in the GPU",
}
_WARNINGS: Final[Mapping[int, str]] = {
    63: "Rows of the memory were remapped, or wait for a reset to be",
    92: "High rate of single-bit ECC errors",
    94: "Contained memory error",
    137: "NVLink privilege error",
    144: "NVLink error (SAW)",
    145: "NVLink error (RLW)",
    146: "NVLink error (TLW)",
    147: "NVLink error (TREX)",
    148: "NVLink error (NVLPW_CTRL)",
    149: "NVLink error (NETIR)",
    150: "NVLink error (MSE)",
    154: "The recovery action that the GPU needs has changed",
    155: "An NVLink was taken down by software",
    157: "A resource of the GPU could not be retired",
    171: "Uncorrectable DRAM error",
    172: "Uncorrectable SRAM error",
}
APPLICATION_XIDS: Final[Mapping[int, str]] = {
    13: "Graphics engine exception of an application",
    31: "GPU memory page fault of an application",
    43: "An application's work on the GPU was stopped",
    45: "An application's work was removed from the GPU",
    68: "Video decoder exception of an application",
    109: "Context switch time-out of an application",
}

_XID_ACTIONS: Final[Mapping[int, str]] = {
    **dict.fromkeys((46, 48, 62, 63, 74, 94, 95, 110, 119, 120, 136, 140, 143, 156, 158), actions.RESET),
    79: actions.RESTART_MACHINE,
    151: actions.RESTART_VIRTUAL_MACHINE,
    **dict.fromkeys(APPLICATION_XIDS, actions.NO_ACTION),
}
"""What mends each; of any other XID, such as 64, a person decides."""

_READINGS: Final[Mapping[str, tuple[Severity, str]]] = {
    OFF_THE_BUS: (Severity.FAULT, "The GPU does not answer"),
    RECOVERY_NEEDED: (Severity.FAULT, "The driver requests a reset of the GPU, or a restart of its machine"),
    ACTION_NEEDED: (Severity.WARNING, "The driver recommends an action for the GPU, which can be used"),
    REMAP_FAILED: (Severity.FAULT, "Rows of the memory could not be remapped"),
    REMAP_PENDING: (Severity.WARNING, "Rows of the memory will be remapped with the next reset"),
    SRAM_THRESHOLD: (Severity.FAULT, "Uncorrectable ECC errors in SRAM exceed the threshold for a replacement"),
    THERMAL: (Severity.WARNING, "Clocks are held back because of the temperature"),
    POWER: (Severity.WARNING, "Clocks are held back because of the power supply"),
    NVLINK_DOWN: (Severity.WARNING, "NVLinks are down"),
    NVLINK_ERRORS: (Severity.WARNING, "Errors on NVLinks"),
    ECC_UNCORRECTED: (Severity.WARNING, "Uncorrectable ECC errors"),
}
"""By NVIDIA's GPU memory error management: failed remapping is a reason to return a card, and so are errors in SRAM
beyond the threshold (RMA policy thresholds for SRAM failure modes), while one with a pending remapping may be used
until it can be reset; an error that was not contained comes as an XID of its own, so that a count of ECC errors alone
takes no card out of service. Links that are down make communication slower, not the card unusable.
"""

_READING_ACTIONS: Final[Mapping[str, str]] = {
    OFF_THE_BUS: actions.RESTART_MACHINE,
    RECOVERY_NEEDED: actions.RESET,
    REMAP_PENDING: actions.RESET,
}
"""What mends each; of any other symptom, such as failed remapping, a person decides."""

_DEFAULT_XIDS: Final[Mapping[int, tuple[Severity, str]]] = {
    **{number: (Severity.FAULT, message) for number, message in _FAULTS.items()},
    **{number: (Severity.WARNING, message) for number, message in _WARNINGS.items()},
    **{number: (Severity.APPLICATION, message) for number, message in APPLICATION_XIDS.items()},
}
_SHAPE: Final = "such as `79=fault,31=warning,NvlinkDown=fault`"


@dataclass(frozen=True, slots=True)
class ErrorClasses:
    """The severities that the settings override."""

    xids: Mapping[int, Severity]
    readings: Mapping[str, Severity]

    def xid(self, number: int) -> Symptom:
        """The symptom of an XID; an unknown one is a warning."""
        severity, message = _DEFAULT_XIDS.get(number, (Severity.WARNING, "NVIDIA's XID catalogue has its meaning"))
        action = _XID_ACTIONS.get(number, actions.CONTACT_SUPPORT)
        return Symptom(f"XID {number}", self.xids.get(number, severity), message, action)

    def reading(self, kind: str, detail: str = "") -> Symptom:
        """The symptom of a kind that readings show; `detail` is added to its message.

        The detail of a recovery that the driver requests is its action, such as `NodeReboot`.
        """
        severity, message = _READINGS[kind]
        action = _READING_ACTIONS.get(kind, actions.CONTACT_SUPPORT)
        if kind == RECOVERY_NEEDED and "reboot" in detail.lower():
            action = actions.RESTART_MACHINE
        return Symptom(kind, self.readings.get(kind, severity), f"{message}: {detail}" if detail else message, action)


DEFAULT_CLASSES: Final = ErrorClasses({}, {})


def parse_classes(text: str) -> ErrorClasses:
    """The severities in a text such as `79=fault,31=warning,63=ignore,NvlinkDown=fault`.

    Raises:
        SettingsError: the text has another shape, or an unknown name or class.
    """
    overrides: dict[int | str, Severity] = {}
    for item in filter(None, (part.strip() for part in text.split(","))):
        name, equals, value = (part.strip() for part in item.partition("="))
        if not equals:
            raise SettingsError(f"{item!r} has no class; give name and class, {_SHAPE}.")
        severity = _severity(item, value)
        key = int(name) if _is_number(name) else _reading(name, severity)
        if key in overrides:
            raise SettingsError(f"{key} is given twice; leave one of them out.")
        overrides[key] = severity
    return ErrorClasses(
        {key: severity for key, severity in overrides.items() if isinstance(key, int)},
        {key: severity for key, severity in overrides.items() if isinstance(key, str)},
    )


def _is_number(name: str) -> bool:
    return name.isascii() and name.isdigit() and len(name) <= 9


def _severity(item: str, value: str) -> Severity:
    try:
        return Severity(value)
    except ValueError as error:
        names = ", ".join(severity.value for severity in Severity)
        raise SettingsError(f"{item!r}: {value!r} is not a class; there are {names}.") from error


def _reading(name: str, severity: Severity) -> str:
    if name not in _READINGS:
        raise SettingsError(f"{name!r} is neither an XID's number nor one of {', '.join(sorted(_READINGS))}.")
    if severity is Severity.APPLICATION:
        raise SettingsError(f"{name} is a symptom of the card, and never an application's; give another class.")
    return name
