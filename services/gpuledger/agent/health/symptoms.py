"""What readings show of a card: the symptoms that last, and the errors counted between two polls. Pure."""

import re
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Final, NamedTuple

from gpuledger.agent.hardware.api import Readings
from gpuledger.agent.health.severity import (
    ACTION_NEEDED,
    ECC_UNCORRECTED,
    NVLINK_DOWN,
    NVLINK_ERRORS,
    OFF_THE_BUS,
    POWER,
    RECOVERY_NEEDED,
    REMAP_FAILED,
    REMAP_PENDING,
    SRAM_THRESHOLD,
    THERMAL,
    ErrorClasses,
    Symptom,
)

DETAIL_LENGTH_MAX: Final = 100

READINGS_OF: Final[Mapping[str, str]] = MappingProxyType(
    {
        REMAP_FAILED: "remap_failed",
        REMAP_PENDING: "remap_pending",
        SRAM_THRESHOLD: "sram_threshold_exceeded",
        RECOVERY_NEEDED: "recovery",
        ACTION_NEEDED: "recovery",
        NVLINK_DOWN: "nvlinks_down",
        THERMAL: "throttled",
        POWER: "throttled",
    }
)
"""The reading that shows each symptom which lasts. OffTheBus is none: a card that answers shows that it is over."""

_NOT_ALPHANUMERIC = re.compile(r"[^a-z0-9]")


class NewErrors(NamedTuple):
    """The errors of a kind that were counted since the poll before."""

    symptom: Symptom
    errors: int


def symptoms_of(readings: Readings | None, classes: ErrorClasses) -> tuple[Symptom, ...]:
    """The symptoms in a card's readings; None: the card does not answer."""
    if readings is None:
        return (classes.reading(OFF_THE_BUS),)
    return tuple(classes.reading(kind, detail) for kind, detail in _symptoms(readings))


def undecided(readings: Readings | None) -> frozenset[str]:
    """The kinds of symptoms of which a poll shows neither that they are there nor that they are over."""
    if readings is None:
        return frozenset(READINGS_OF)
    unread = {one.reading for one in readings.unread}
    return frozenset(kind for kind, reading in READINGS_OF.items() if reading in unread)


def completed(before: Readings | None, after: Readings) -> Readings:
    """The readings of a poll with the last values of those that it failed to get: counters go on from there."""
    if before is None or not after.unread:
        return after
    return after._replace(**{one.reading: getattr(before, one.reading) for one in after.unread})


def new_errors(before: Readings | None, after: Readings, classes: ErrorClasses) -> tuple[NewErrors, ...]:
    """The errors counted between two polls; a counter that is new, or went back, shows none."""
    if before is None:
        return ()
    every = _growth(before.ecc_uncorrected_volatile, after.ecc_uncorrected_volatile)
    in_sram = _growth(before.sram_uncorrected_volatile, after.sram_uncorrected_volatile)
    counts = (
        (ECC_UNCORRECTED, max(every, in_sram), _sram_detail(every, in_sram)),
        (NVLINK_ERRORS, _growth(before.nvlink_errors, after.nvlink_errors), ""),
    )
    return tuple(NewErrors(classes.reading(kind, detail), count) for kind, count, detail in counts if count > 0)


def was_reset_between(before: Readings | None, after: Readings) -> bool:
    """Whether a card was reset between two polls: a volatile error counter went back."""
    return before is not None and (
        _growth(before.ecc_uncorrected_volatile, after.ecc_uncorrected_volatile) < 0
        or _growth(before.ecc_corrected_volatile, after.ecc_corrected_volatile) < 0
    )


def _growth(before: int | None, after: int | None) -> int:
    return 0 if before is None or after is None else after - before


def _sram_detail(every: int, in_sram: int) -> str:
    """Where uncorrectable errors were: the driver's total has those in SRAM, too."""
    if in_sram <= 0:
        return ""
    return "in SRAM" if in_sram >= every else "partly in SRAM"


def _symptoms(readings: Readings) -> Iterator[tuple[str, str]]:
    if readings.remap_failed:
        yield REMAP_FAILED, ""
    if readings.remap_pending:
        yield REMAP_PENDING, ""
    if readings.sram_threshold_exceeded:
        yield SRAM_THRESHOLD, ""
    if readings.recovery:
        yield _recovery(readings.recovery), _detail(readings.recovery)
    if readings.nvlinks_down:
        yield NVLINK_DOWN, _detail(", ".join(map(str, sorted(readings.nvlinks_down))))
    yield from ((kind, "") for kind in _throttling(readings.throttled))


def _recovery(action: str) -> str:
    """The kind of a recovery action: a card that needs a reset or a reboot must not take new work.

    That includes `drain and reset` (NVML, `nvmlDeviceGpuRecoveryAction_t`).
    """
    plain = _plain(action)
    return RECOVERY_NEEDED if "reset" in plain or "reboot" in plain else ACTION_NEEDED


def _throttling(reasons: frozenset[str]) -> Iterator[str]:
    """The kinds of throttling that are symptoms.

    Every busy card shows a software power cap, and other reasons are deliberate. `HwSlowdown` means that temperature,
    power brake or power draw is out of bounds, without saying which.
    """
    plain = {_plain(reason) for reason in reasons}
    thermal = any("therm" in reason for reason in plain)
    if thermal:
        yield THERMAL
    if any("powerbrake" in reason for reason in plain) or (not thermal and any("hwslowdown" in one for one in plain)):
        yield POWER


def _plain(text: str) -> str:
    return _NOT_ALPHANUMERIC.sub("", text.lower())


def _detail(text: str) -> str:
    """A driver's text in a form that a message can hold."""
    return text.encode("ascii", "replace").decode()[:DETAIL_LENGTH_MAX]
