"""A card's health in NVML: counters and flags, each of which a card may not support."""

from collections.abc import Callable, Iterable, Mapping
from ctypes import byref
from types import MappingProxyType
from typing import Any, Final

from gpuledger.agent.hardware.api import Readings, Unread
from gpuledger.agent.hardware.nvml_calls import Description, Handle, Nvml, field_failure, number_of
from gpuledger.agent.hardware.nvml_mig import modes_in
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


class HealthPoll:
    """The queries of one poll of a card: a reading that fails is absent, and the others count.

    `unread` are the readings that failed. A card of which every reading fails has not answered: `has_answered`.
    """

    def __init__(self, nvml: Nvml, handle: Handle) -> None:
        self._nvml = nvml
        self._handle = handle
        self._failures: dict[str, Exception] = {}
        self.has_answered = False

    @property
    def unread(self) -> tuple[Unread, ...]:
        """The readings that failed, by name; raises the driver's error where nothing else was read."""
        if self._failures and not self.has_answered:
            raise next(iter(self._failures.values()))
        return tuple(Unread(reading, str(error)) for reading, error in sorted(self._failures.items()))

    def get(self, readings: Iterable[str], call: Callable[..., Any], *arguments: object) -> Any:  # noqa: ANN401 - pynvml has no types
        """A value that these readings need; None where it cannot be had, which is noted if it failed.

        Raises NVML's errors that concern the whole card, or the driver.
        """
        value = self.try_get(readings, call, *arguments)
        self.has_answered |= value is not None
        return value

    def try_get(
        self,
        readings: Iterable[str],
        call: Callable[..., Any],
        *arguments: object,
    ) -> Any:  # noqa: ANN401 - pynvml has no types
        """The same of a call that may succeed without an answer of the card."""
        description = Description(self._nvml)
        value = description.get(call, self._handle, *arguments)
        self.note(readings, description.failure)
        return value

    def has_failed(self, reading: str) -> bool:
        """Whether a query that a reading needs has failed."""
        return reading in self._failures

    def note(self, readings: Iterable[str], failure: Exception | None) -> None:
        """These readings failed with an error, if there is one."""
        if failure is not None:
            self._failures |= dict.fromkeys(readings, failure)


def read_health(
    nvml: Nvml, handle: Handle, card_links: CardLinks, active_before: frozenset[int]
) -> tuple[Readings, frozenset[int]]:
    """A card's readings, and the links that are active now or were before.

    A link counts as down if it was active before and is not now: some cards have more links than their machine
    connects, and a link that does not say now is neither. With MIG on none counts as down: an A100 switches its links
    off (Fabric Manager's user guide), and instances have no use for them.
    """
    poll = HealthPoll(nvml, handle)
    links, down = _links(nvml, handle, poll, card_links, active_before)
    recovery, *link_counters = _fields(nvml, poll, links)
    remapped = poll.get(("remap_pending", "remap_failed"), nvml.nvmlDeviceGetRemappedRows)
    sram = _sram(nvml, poll)
    readings = Readings(
        ecc_corrected_volatile=_ecc(nvml, poll, "CORRECTED", "VOLATILE"),
        ecc_uncorrected_volatile=_ecc(nvml, poll, "UNCORRECTED", "VOLATILE"),
        ecc_corrected_aggregate=_ecc(nvml, poll, "CORRECTED", "AGGREGATE"),
        ecc_uncorrected_aggregate=_ecc(nvml, poll, "UNCORRECTED", "AGGREGATE"),
        remap_pending=bool(remapped[2]) if remapped is not None else None,
        remap_failed=bool(remapped[3]) if remapped is not None else None,
        throttled=throttles(nvml, _clock_reasons(nvml, poll)),
        nvlink_errors=link_errors(link_counters) if links and not poll.has_failed("nvlink_errors") else None,
        nvlinks_down=down,
        recovery=_action(nvml, recovery),
        sram_uncorrected_volatile=sram.volatileUncParity + sram.volatileUncSecDed if sram is not None else None,
        sram_threshold_exceeded=bool(sram.bThresholdExceeded) if sram is not None else None,
    )
    return readings._replace(unread=poll.unread), links


def throttles(nvml: Nvml, reasons: int) -> frozenset[str]:
    """The throttle reasons in a bit mask of NVML's clocks event reasons."""
    return frozenset(name for name in THROTTLE_REASONS if reasons & getattr(nvml, f"nvmlClocksEventReason{name}"))


def _links(
    nvml: Nvml, handle: Handle, poll: HealthPoll, card_links: CardLinks, active_before: frozenset[int]
) -> tuple[frozenset[int], tuple[int, ...]]:
    """The links that are active now or were before, and those that are down."""
    modes = modes_in(nvml, poll.get(("nvlinks_down",), nvml.nvmlDeviceGetMigMode))
    now = card_links.poll(nvml, handle, modes)
    links = active_before.union(now.active)
    for link in sorted(links & now.failures.keys()):
        poll.note(("nvlinks_down",), now.failures[link])
    switched_off = modes is not None and modes.enabled
    return links, () if switched_off else tuple(sorted(links & now.inactive))


def _ecc(nvml: Nvml, poll: HealthPoll, errors: str, since: str) -> int | None:
    """Errors since the driver was loaded (VOLATILE) or over the card's life (AGGREGATE); None where ECC is off."""
    kind, counter = getattr(nvml, f"NVML_MEMORY_ERROR_TYPE_{errors}"), getattr(nvml, f"NVML_{since}_ECC")
    reading = f"ecc_{errors}_{since}".lower()
    count: int | None = poll.get((reading,), nvml.nvmlDeviceGetTotalEccErrors, kind, counter)
    return count


def _sram(nvml: Nvml, poll: HealthPoll) -> Any:  # noqa: ANN401 - pynvml has no types
    """The ECC errors in SRAM, as nvidia-smi shows them by source; None where the card or the driver does not tell."""
    status = nvml.c_nvmlEccSramErrorStatus_v1_t()
    readings = ("sram_uncorrected_volatile", "sram_threshold_exceeded")
    answer = poll.get(readings, nvml.nvmlDeviceGetSramEccErrorStatus, byref(status))
    return None if answer is None else status


def _clock_reasons(nvml: Nvml, poll: HealthPoll) -> int:
    """The bit mask; drivers before 535 have the call under its old name."""
    for call in (nvml.nvmlDeviceGetCurrentClocksEventReasons, nvml.nvmlDeviceGetCurrentClocksThrottleReasons):
        reasons = poll.get(("throttled",), call)
        if reasons is not None or poll.has_failed("throttled"):
            return int(reasons or 0)
    return 0


def _fields(nvml: Nvml, poll: HealthPoll, links: frozenset[int]) -> list[int | None]:
    """The recovery action, and the counters of links, in a single call; None for what the card does not support."""
    fields = [(nvml.NVML_FI_DEV_GET_GPU_RECOVERY_ACTION, 0), *(error_fields(nvml, links) if links else ())]
    readings = ("recovery", "nvlink_errors")
    values = poll.try_get(readings, nvml.nvmlDeviceGetFieldValues, fields)
    if values is None:
        return [None] * len(fields)
    for index, value in enumerate(values):
        failure = field_failure(nvml, value)
        poll.note((readings[min(index, 1)],), failure)
        poll.has_answered |= failure is None
    return [number_of(nvml, value) for value in values]


def _action(nvml: Nvml, number: int | None) -> str | None:
    """The recovery action of a number; None where the driver requests none."""
    if number is None or number == nvml.NVML_GPU_RECOVERY_ACTION_NONE:
        return None
    named = (name for constant, name in RECOVERY_ACTIONS.items() if getattr(nvml, constant) == number)
    return next(named, f"Action{number}")
