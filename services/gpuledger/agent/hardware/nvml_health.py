"""A card's health in NVML: counters and flags, each of which a card may not support."""

from collections.abc import Mapping
from ctypes import byref
from types import MappingProxyType
from typing import Any, Final

from gpuledger.agent.hardware.api import Readings
from gpuledger.agent.hardware.nvml_calls import Handle, Nvml, number_of, optional
from gpuledger.agent.hardware.nvml_mig import mig_modes
from gpuledger.agent.hardware.nvml_nvlink import CardLinks, error_fields, link_errors

THROTTLE_REASONS: Final = (
    "SwPowerCap",
    "HwSlowdown",
    "SyncBoost",
    "SwThermalSlowdown",
    "HwThermalSlowdown",
    "HwPowerBrakeSlowdown",
    "DisplayClockSetting",
)
"""NVML's reasons for clocks below the requested ones. An idle card (GpuIdle), and clocks that somebody set
(ApplicationsClocksSetting), are not held back.
"""

RECOVERY_ACTIONS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "NVML_GPU_RECOVERY_ACTION_GPU_RESET": "GpuReset",
        "NVML_GPU_RECOVERY_ACTION_NODE_REBOOT": "NodeReboot",
        "NVML_GPU_RECOVERY_ACTION_DRAIN_P2P": "DrainP2P",
        "NVML_GPU_RECOVERY_ACTION_DRAIN_AND_RESET": "DrainAndReset",
        "NVML_GPU_RECOVERY_ACTION_RECOVER_IMEX_DOMAIN": "RecoverImexDomain",
        "NVML_GPU_RECOVERY_ACTION_BUS_RESET": "BusReset",
        "NVML_GPU_RECOVERY_ACTION_SYSTEM_REBOOT": "SystemReboot",
    }
)
"""The recovery actions that the driver may request."""


def read_health(
    nvml: Nvml, handle: Handle, card_links: CardLinks, active_before: frozenset[int]
) -> tuple[Readings, frozenset[int]]:
    """A card's readings, and the links that are active now or were before.

    A link counts as down if it was active before and is not now: some cards have more links than their machine
    connects, and a link that does not say now is neither. With MIG on none counts as down: an A100 switches its links
    off (Fabric Manager's user guide), and instances have no use for them.
    """
    modes = mig_modes(nvml, handle)
    now = card_links.poll(nvml, handle, modes)
    links = active_before.union(now.active)
    recovery, *link_counters = _fields(nvml, handle, links)
    remapped = optional(nvml, nvml.nvmlDeviceGetRemappedRows, handle)
    sram = _sram(nvml, handle)
    readings = Readings(
        ecc_corrected_volatile=_ecc(nvml, handle, "CORRECTED", "VOLATILE"),
        ecc_uncorrected_volatile=_ecc(nvml, handle, "UNCORRECTED", "VOLATILE"),
        ecc_corrected_aggregate=_ecc(nvml, handle, "CORRECTED", "AGGREGATE"),
        ecc_uncorrected_aggregate=_ecc(nvml, handle, "UNCORRECTED", "AGGREGATE"),
        remap_pending=bool(remapped[2]) if remapped is not None else None,
        remap_failed=bool(remapped[3]) if remapped is not None else None,
        throttled=throttles(nvml, _clock_reasons(nvml, handle)),
        nvlink_errors=link_errors(link_counters) if links else None,
        nvlinks_down=() if modes is not None and modes.enabled else tuple(sorted(links & now.inactive)),
        recovery=_action(nvml, recovery),
        sram_uncorrected_volatile=sram.volatileUncParity + sram.volatileUncSecDed if sram is not None else None,
        sram_threshold_exceeded=bool(sram.bThresholdExceeded) if sram is not None else None,
    )
    return readings, links


def throttles(nvml: Nvml, reasons: int) -> frozenset[str]:
    """The throttle reasons in a bit mask of NVML's clocks event reasons."""
    return frozenset(name for name in THROTTLE_REASONS if reasons & getattr(nvml, f"nvmlClocksEventReason{name}"))


def _ecc(nvml: Nvml, handle: Handle, errors: str, since: str) -> int | None:
    """Errors since the driver was loaded (VOLATILE) or over the card's life (AGGREGATE); None where ECC is off."""
    kind, counter = getattr(nvml, f"NVML_MEMORY_ERROR_TYPE_{errors}"), getattr(nvml, f"NVML_{since}_ECC")
    count: int | None = optional(nvml, nvml.nvmlDeviceGetTotalEccErrors, handle, kind, counter)
    return count


def _sram(nvml: Nvml, handle: Handle) -> Any:  # noqa: ANN401 - pynvml has no types
    """The ECC errors in SRAM, as nvidia-smi shows them by source; None where the card or the driver does not tell."""
    status = nvml.c_nvmlEccSramErrorStatus_v1_t()
    answer = optional(nvml, nvml.nvmlDeviceGetSramEccErrorStatus, handle, byref(status))
    return None if answer is None else status


def _clock_reasons(nvml: Nvml, handle: Handle) -> int:
    """The bit mask; drivers before 535 have the call under its old name."""
    for call in (nvml.nvmlDeviceGetCurrentClocksEventReasons, nvml.nvmlDeviceGetCurrentClocksThrottleReasons):
        reasons = optional(nvml, call, handle)
        if reasons is not None:
            return int(reasons)
    return 0


def _fields(nvml: Nvml, handle: Handle, links: frozenset[int]) -> list[int | None]:
    """The recovery action, and the counters of links, in a single call; None for what the card does not support."""
    fields = [(nvml.NVML_FI_DEV_GET_GPU_RECOVERY_ACTION, 0), *(error_fields(nvml, links) if links else ())]
    values = optional(nvml, nvml.nvmlDeviceGetFieldValues, handle, fields)
    return [number_of(nvml, value) for value in values] if values is not None else [None] * len(fields)


def _action(nvml: Nvml, number: int | None) -> str | None:
    """The recovery action of a number; None where the driver requests none."""
    if number is None or number == nvml.NVML_GPU_RECOVERY_ACTION_NONE:
        return None
    named = (name for constant, name in RECOVERY_ACTIONS.items() if getattr(nvml, constant) == number)
    return next(named, f"Action{number}")
