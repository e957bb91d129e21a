"""What dcgmi writes where it has no result, and what DCGM calls its errors. Pure.

Numbers and names are those of DCGM 4.6, which gives none of its numbers to another error; newer ones go by number.
"""

import re
from typing import Final

from gpuledger.domain.preflight.errors import DcgmError, EngineBusyError, HostengineError
from gpuledger.domain.preflight.text import message_of

PERSISTENCE_MODE: Final = 29
FALLEN_OFF_BUS: Final = 120

SEVERITY_RESET: Final = 6
"""DCGM's severity of what a reset of the card mends."""

_UNREACHABLE: Final = re.compile(
    r"(?i)unable to establish a connection|unable to connect to host ?engine|host engine connection|"
    r"host engine is disconnected"
)
_BUSY: Final = re.compile(r"(?i)diag\w* instance is already running|DIAG_ALREADY_RUNNING")
_OF_A_CARD: Final = re.compile(
    r"(?i)uncorrectable|row.?remap|pages? retire|retired page|double.?bit|fallen off the bus|gpu is lost|\bxid\b"
)
"""What DCGM says of a card that keeps it from a diagnosis."""

_ERROR: Final = re.compile(r"(?im)^\s*error\b.{0,400}$")

_NAMES: Final = [
    "OK",
    "UNKNOWN",
    "UNRECOGNIZED",
    "PCI_REPLAY_RATE",
    "VOLATILE_DBE_DETECTED",
    "VOLATILE_SBE_DETECTED",
    "PENDING_PAGE_RETIREMENTS",
    "RETIRED_PAGES_LIMIT",
    "RETIRED_PAGES_DBE_LIMIT",
    "CORRUPT_INFOROM",
    "CLOCKS_EVENT_THERMAL",
    "POWER_UNREADABLE",
    "CLOCKS_EVENT_POWER",
    "NVLINK_ERROR_THRESHOLD",
    "NVLINK_DOWN",
    "NVSWITCH_FATAL_ERROR",
    "NVSWITCH_NON_FATAL_ERROR",
    "NVSWITCH_DOWN",
    "NO_ACCESS_TO_FILE",
    "NVML_API",
    "DEVICE_COUNT_MISMATCH",
    "BAD_PARAMETER",
    "CANNOT_OPEN_LIB",
    "DENYLISTED_DRIVER",
    "NVML_LIB_BAD",
    "GRAPHICS_PROCESSES",
    "HOSTENGINE_CONN",
    "FIELD_QUERY",
    "BAD_CUDA_ENV",
    "PERSISTENCE_MODE",
    "LOW_BANDWIDTH",
    "HIGH_LATENCY",
    "CANNOT_GET_FIELD_TAG",
    "FIELD_VIOLATION",
    "FIELD_THRESHOLD",
    "FIELD_VIOLATION_DBL",
    "FIELD_THRESHOLD_DBL",
    "UNSUPPORTED_FIELD_TYPE",
    "FIELD_THRESHOLD_TS",
    "FIELD_THRESHOLD_TS_DBL",
    "THERMAL_VIOLATIONS",
    "THERMAL_VIOLATIONS_TS",
    "TEMP_VIOLATION",
    "CLOCKS_EVENT_VIOLATION",
    "INTERNAL",
    "PCIE_GENERATION",
    "PCIE_WIDTH",
    "ABORTED",
    "TEST_DISABLED",
    "CANNOT_GET_STAT",
    "STRESS_LEVEL",
    "CUDA_API",
    "FAULTY_MEMORY",
    "CANNOT_SET_WATCHES",
    "CUDA_UNBOUND",
    "ECC_DISABLED",
    "MEMORY_ALLOC",
    "CUDA_DBE",
    "MEMORY_MISMATCH",
    "CUDA_DEVICE",
    "ECC_UNSUPPORTED",
    "ECC_PENDING",
    "MEMORY_BANDWIDTH",
    "TARGET_POWER",
    "API_FAIL",
    "API_FAIL_GPU",
    "CUDA_CONTEXT",
    "DCGM_API",
    "CONCURRENT_GPUS",
    "TOO_MANY_ERRORS",
    "NVLINK_CRC_ERROR_THRESHOLD",
    "NVLINK_ERROR_CRITICAL",
    "ENFORCED_POWER_LIMIT",
    "MEMORY_ALLOC_HOST",
    "GPU_OP_MODE",
    "NO_MEMORY_CLOCKS",
    "NO_GRAPHICS_CLOCKS",
    "HAD_TO_RESTORE_STATE",
    "L1TAG_UNSUPPORTED",
    "L1TAG_MISCOMPARE",
    "ROW_REMAP_FAILURE",
    "UNCONTAINED_ERROR",
    "EMPTY_GPU_LIST",
    "DBE_PENDING_PAGE_RETIREMENTS",
    "UNCORRECTABLE_ROW_REMAP",
    "PENDING_ROW_REMAP",
    "BROKEN_P2P_MEMORY_DEVICE",
    "BROKEN_P2P_WRITER_DEVICE",
    "NVSWITCH_NVLINK_DOWN",
    "EUD_BINARY_PERMISSIONS",
    "EUD_NON_ROOT_USER",
    "EUD_SPAWN_FAILURE",
    "EUD_TIMEOUT",
    "EUD_ZOMBIE",
    "EUD_NON_ZERO_EXIT_CODE",
    "EUD_TEST_FAILED",
    "FILE_CREATE_PERMISSIONS",
    "PAUSE_RESUME_FAILED",
    "PCIE_H_REPLAY_VIOLATION",
    "GPU_EXPECTED_NVLINKS_UP",
    "NVSWITCH_EXPECTED_NVLINKS_UP",
    "XID_ERROR",
    "SBE_VIOLATION",
    "DBE_VIOLATION",
    "PCIE_REPLAY_VIOLATION",
    "SBE_THRESHOLD_VIOLATION",
    "DBE_THRESHOLD_VIOLATION",
    "PCIE_REPLAY_THRESHOLD_VIOLATION",
    "CUDA_FM_NOT_INITIALIZED",
    "SXID_ERROR",
    "GFLOPS_THRESHOLD_VIOLATION",
    "NAN_VALUE",
    "FABRIC_MANAGER_TRAINING_ERROR",
    "BROKEN_P2P_PCIE_MEMORY_DEVICE",
    "BROKEN_P2P_PCIE_WRITER_DEVICE",
    "BROKEN_P2P_NVLINK_MEMORY_DEVICE",
    "BROKEN_P2P_NVLINK_WRITER_DEVICE",
    "TEST_SKIPPED",
    "SRAM_THRESHOLD",
    "NVLINK_EFFECTIVE_BER_THRESHOLD",
    "FALLEN_OFF_BUS",
    "NVLINK_SYMBOL_BER_THRESHOLD",
    "IMEX_UNHEALTHY",
    "FABRIC_PROBE_STATE",
    "BINARY_PERMISSIONS",
    "GPU_RECOVERY_RESET",
    "GPU_RECOVERY_REBOOT",
    "GPU_RECOVERY_DRAIN_P2P",
    "GPU_RECOVERY_DRAIN_RESET",
    "NCCL_ERROR",
    "RETEST_REQUESTED",
    "CONTAINED_ERROR",
    "UNCORRECTABLE_ROW_REMAP_LIMIT",
]
"""DCGM's errors from number 0 on."""


def error_name(number: int) -> str:
    """What DCGM calls an error, such as `DCGM_FR_PERSISTENCE_MODE`; `DCGM_ERROR_999` where it has no name here."""
    return f"DCGM_FR_{_NAMES[number]}" if 0 <= number < len(_NAMES) else f"DCGM_ERROR_{number}"


def refuse(text: str) -> None:
    """Refuse an output in which dcgmi reports an error.

    Raises:
        HostengineError: dcgmi cannot reach the host engine.
        EngineBusyError: the host engine runs another diagnosis.
        DcgmError: it reports another error.
    """
    unreachable = _UNREACHABLE.search(text)
    if unreachable is not None:
        raise HostengineError(message_of(_line_around(text, unreachable.start())))
    if (busy := _BUSY.search(text)) is not None:
        raise EngineBusyError(message_of(_line_around(text, busy.start())))
    if (error := _ERROR.search(text)) is not None:
        raise DcgmError(message_of(error[0]))


def runtime_error(message: str) -> DcgmError:
    """The error of a diagnosis that DCGM could not run, by what it says of that."""
    kind = EngineBusyError if _BUSY.search(message) is not None else DcgmError
    return kind(f"DCGM could not run the diagnosis: {message_of(message)}")


def blames_card(message: str) -> bool:
    """Whether the reason why DCGM could not run a diagnosis is a fault of a card."""
    return _OF_A_CARD.search(message) is not None


def _line_around(text: str, at: int) -> str:
    """The line of a text that has a place in it."""
    end = text.find("\n", at)
    return text[text.rfind("\n", 0, at) + 1 : end if end >= 0 else len(text)]
