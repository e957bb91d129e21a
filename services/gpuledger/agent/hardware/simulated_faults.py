"""The faults that may be injected into simulated hardware: names, targets, and effects on readings. Pure.

A fault is written `NAME`, or `NAME@CARD` with a card's PCI address, UUID or number from 0; without a card it hits the
first one. Readings use NVML's names, as `nvml_health` does. Faults must never reach real hardware.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Final, NamedTuple

from gpuledger.agent.hardware.api import CardFacts, Readings

XID_MAX: Final = 1023

XID, OFF_BUS, DRIVER_MISSING, HANG, RECOVER = "xid", "off-bus", "driver-missing", "hang", "recover"
RESET_NEEDED: Final = "mig-needs-reset"
EVENTS_REFUSED: Final = "events-refused"

FAULTS: Final = MappingProxyType(
    {
        "xid:NUMBER": "the driver reports this error; 48, 63, 64, 74, 79, 94 and 95 leave their traces in readings too",
        "ecc-corrected": "an ECC error was corrected",
        "ecc-uncorrected": "an ECC error could not be corrected",
        "sram-threshold": "ECC errors in SRAM that could not be corrected exceed the threshold for a replacement",
        "row-remap-pending": "a row of memory is to be remapped with the next reset",
        "row-remap-failed": "a row of memory could not be remapped",
        "thermal": "the card is too hot and slows down",
        "power-brake": "the machine's power supply slows the card down",
        "nvlink-down": "an NVLink of the card went down",
        "nvlink-errors": "an NVLink of the card has errors",
        OFF_BUS: "the card has fallen off the bus, without an XID",
        EVENTS_REFUSED: "the driver refuses to report the card's errors (XIDs) from now on",
        RESET_NEEDED: "changes of the card's MIG mode wait for a reset from now on",
        DRIVER_MISSING: "the driver is gone, for all cards",
        HANG: "the driver answers no call until `recover`",
        RECOVER: "the card was reset and is well; without a card all are, and the driver answers",
    }
)
"""The faults that may be injected, and what they mean."""

_FOR_ALL: Final = frozenset({DRIVER_MISSING, HANG})
_XID = re.compile(r"xid:(\d{1,4})").fullmatch


class InjectedFaultError(ValueError):
    """There is no such fault, or nothing that could have it."""


class InjectedFault(NamedTuple):
    """A fault: its name, the number of an XID, and the target as it was written (None: without one)."""

    name: str
    xid: int | None = None
    target: str | None = None


def parse_fault(text: str) -> InjectedFault:
    """Parse a fault such as `xid:79@0000:17:00.0`, `thermal@1` or `hang`.

    Raises:
        InjectedFaultError: there is no such fault, or it takes no card.
    """
    written, at, target = text.strip().partition("@")
    name, xid = _named(written.lower())
    if at and name in _FOR_ALL:
        raise InjectedFaultError(f"{name} befalls the whole node; inject it without {at}{target}.")
    return InjectedFault(name, xid, target if at else None)


def _named(written: str) -> tuple[str, int | None]:
    match = _XID(written)
    if match is not None and 1 <= int(match[1]) <= XID_MAX:
        return XID, int(match[1])
    if written in FAULTS and ":" not in written:
        return written, None
    raise InjectedFaultError(
        f"There is no fault {written!r}; there are {', '.join(FAULTS)}, each with @CARD if need be."
    )


def find_target(cards: Sequence[CardFacts], target: str | None) -> int:
    """The number of the card that a fault targets; the cards are in order of their addresses.

    Raises:
        InjectedFaultError: there is no such card.
    """
    if target is None:
        return 0
    for index, card in enumerate(cards):
        if target.lower() in {card.address, (card.uuid or "").lower(), str(index)}:
            return index
    there = ", ".join(f"{index} is {card.address}" for index, card in enumerate(cards))
    raise InjectedFaultError(f"There is no card {target!r}; name one by number, PCI address or UUID: {there}.")


Effect = Callable[[Readings], Readings]


def _ecc_corrected(readings: Readings) -> Readings:
    return readings._replace(
        ecc_corrected_volatile=(readings.ecc_corrected_volatile or 0) + 1,
        ecc_corrected_aggregate=(readings.ecc_corrected_aggregate or 0) + 1,
    )


def _ecc_uncorrected(readings: Readings) -> Readings:
    return readings._replace(
        ecc_uncorrected_volatile=(readings.ecc_uncorrected_volatile or 0) + 1,
        ecc_uncorrected_aggregate=(readings.ecc_uncorrected_aggregate or 0) + 1,
    )


def _sram_threshold(readings: Readings) -> Readings:
    errors = _supported(readings.sram_uncorrected_volatile, "does not tell errors in SRAM apart")
    return _ecc_uncorrected(readings)._replace(sram_uncorrected_volatile=errors + 1, sram_threshold_exceeded=True)


def _remap_pending(readings: Readings) -> Readings:
    _supported(readings.remap_pending, "remaps no rows of memory")
    return readings._replace(remap_pending=True, recovery="GpuReset")


def _remap_failed(readings: Readings) -> Readings:
    _supported(readings.remap_failed, "remaps no rows of memory")
    return readings._replace(remap_failed=True)


def _thermal(readings: Readings) -> Readings:
    return readings._replace(throttled=readings.throttled | {"HwSlowdown", "HwThermalSlowdown"})


def _power_brake(readings: Readings) -> Readings:
    return readings._replace(throttled=readings.throttled | {"HwSlowdown", "HwPowerBrakeSlowdown"})


def _nvlink_down(readings: Readings) -> Readings:
    _supported(readings.nvlink_errors, "has no NVLinks")
    return readings._replace(nvlinks_down=(0,))


def _nvlink_errors(readings: Readings) -> Readings:
    errors = _supported(readings.nvlink_errors, "has no NVLinks")
    return readings._replace(nvlink_errors=errors + 1)


def _supported(value: int | None, otherwise: str) -> int:
    if value is None:
        raise InjectedFaultError(f"The card {otherwise}; use another one.")
    return value


EFFECTS: Final[Mapping[str, Effect]] = MappingProxyType(
    {
        "ecc-corrected": _ecc_corrected,
        "ecc-uncorrected": _ecc_uncorrected,
        "sram-threshold": _sram_threshold,
        "row-remap-pending": _remap_pending,
        "row-remap-failed": _remap_failed,
        "thermal": _thermal,
        "power-brake": _power_brake,
        "nvlink-down": _nvlink_down,
        "nvlink-errors": _nvlink_errors,
    }
)
"""What a fault does to a card's readings."""

XID_FALLEN_OFF: Final = 79
XID_EFFECTS: Final[Mapping[int, Effect]] = MappingProxyType(
    {
        48: _ecc_uncorrected,
        63: _remap_pending,
        64: _remap_failed,
        74: _nvlink_errors,
        94: _ecc_uncorrected,
        95: _ecc_uncorrected,
    }
)
"""The readings that go with an error that the driver reports, by NVIDIA's XID catalogue."""
