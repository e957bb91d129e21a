"""What readings show: what is wrong as long as it stands there, and what went wrong between two looks. Pure."""

import re
from collections.abc import Iterator
from typing import Final, NamedTuple

from gpuledger.agent.hardware.api import Readings
from gpuledger.agent.health.classes import (
    ACTION_NEEDED,
    ECC_UNCORRECTED,
    NVLINK_DOWN,
    NVLINK_ERRORS,
    OFF_THE_BUS,
    POWER,
    RECOVERY_NEEDED,
    REMAP_FAILED,
    REMAP_PENDING,
    THERMAL,
    Classes,
    Sign,
)

DETAIL_LENGTH_MAX: Final = 100
_ODD = re.compile(r"[^a-z0-9]")


class Growth(NamedTuple):
    """Errors that were counted since the look before."""

    sign: Sign
    errors: int


def standing(readings: Readings | None, classes: Classes) -> tuple[Sign, ...]:
    """What is wrong with a card that said this of itself; None: it did not answer."""
    if readings is None:
        return (classes.reading(OFF_THE_BUS),)
    return tuple(classes.reading(kind, detail) for kind, detail in _standing(readings))


def growth(before: Readings | None, after: Readings, classes: Classes) -> tuple[Growth, ...]:
    """What was counted between two looks; a counter that was not known before, or went back, shows nothing."""
    if before is None:
        return ()
    grown = (
        (ECC_UNCORRECTED, _grown(before.ecc_uncorrected_volatile, after.ecc_uncorrected_volatile)),
        (NVLINK_ERRORS, _grown(before.nvlink_errors, after.nvlink_errors)),
    )
    return tuple(Growth(classes.reading(kind), count) for kind, count in grown if count > 0)


def is_reset(before: Readings | None, after: Readings) -> bool:
    """Whether a card was reset between two looks: a counter of errors since then went back."""
    return before is not None and (
        _grown(before.ecc_uncorrected_volatile, after.ecc_uncorrected_volatile) < 0
        or _grown(before.ecc_corrected_volatile, after.ecc_corrected_volatile) < 0
    )


def _grown(before: int | None, after: int | None) -> int:
    return 0 if before is None or after is None else after - before


def _standing(readings: Readings) -> Iterator[tuple[str, str]]:
    if readings.remap_failed:
        yield REMAP_FAILED, ""
    if readings.remap_pending:
        yield REMAP_PENDING, ""
    if readings.recovery:
        yield _recovery(readings.recovery), _detail(readings.recovery)
    if readings.nvlinks_down:
        yield NVLINK_DOWN, _detail(", ".join(map(str, sorted(readings.nvlinks_down))))
    yield from ((kind, "") for kind in _throttling(readings.throttled))


def _recovery(action: str) -> str:
    """Which kind of recovery is needed: after a reset or a reboot is asked for, no new work may begin on the card.

    That is so for `drain and reset` too (NVML, `nvmlDeviceGpuRecoveryAction_t`).
    """
    plain = _plain(action)
    return RECOVERY_NEEDED if "reset" in plain or "reboot" in plain else ACTION_NEEDED


def _throttling(reasons: frozenset[str]) -> Iterator[str]:
    """Which of NVML's reasons tell of trouble.

    A software power cap is what every busy card shows, and other reasons are on purpose. `HwSlowdown` says that one of
    temperature, power brake or power draw is out of bounds, and not which.
    """
    plain = {_plain(reason) for reason in reasons}
    thermal = any("therm" in reason for reason in plain)
    if thermal:
        yield THERMAL
    if any("powerbrake" in reason for reason in plain) or (not thermal and any("hwslowdown" in one for one in plain)):
        yield POWER


def _plain(text: str) -> str:
    return _ODD.sub("", text.lower())


def _detail(text: str) -> str:
    """What a driver says, as text that can stand in a message."""
    return text.encode("ascii", "replace").decode()[:DETAIL_LENGTH_MAX]
