"""What readings show of a card."""

import pytest

from gpuledger.agent.hardware.api import Readings
from gpuledger.agent.health.severity import DEFAULT_CLASSES
from gpuledger.agent.health.symptoms import new_errors, symptoms_of


@pytest.mark.parametrize(
    ("readings", "kinds"),
    [
        (Readings(), {}),
        (None, {"OffTheBus": "fault"}),
        (Readings(remap_failed=True), {"RemapFailed": "fault"}),
        (Readings(remap_pending=True), {"RemapPending": "warning"}),
        (Readings(sram_uncorrected_volatile=9, sram_threshold_exceeded=False), {}),
        (Readings(sram_uncorrected_volatile=9, sram_threshold_exceeded=True), {"SramThresholdExceeded": "fault"}),
        (Readings(nvlinks_down=(1, 4)), {"NvlinkDown": "warning"}),
        *((Readings(recovery=action), {"RecoveryNeeded": "fault"}) for action in ("reset", "GpuReset", "NodeReboot")),
        (Readings(recovery="DrainAndReset"), {"RecoveryNeeded": "fault"}),
        *((Readings(recovery=action), {"ActionNeeded": "warning"}) for action in ("DrainP2P", "Action9")),
        (Readings(throttled=frozenset({"SwPowerCap", "GpuIdle", "SyncBoost", "DisplayClockSetting"})), {}),
        (Readings(throttled=frozenset({"HwSlowdown", "HwThermalSlowdown"})), {"ThermalThrottling": "warning"}),
        (Readings(throttled=frozenset({"hw-thermal-slowdown"})), {"ThermalThrottling": "warning"}),
        (Readings(throttled=frozenset({"HwSlowdown", "HwPowerBrakeSlowdown"})), {"PowerThrottling": "warning"}),
        (Readings(throttled=frozenset({"HwSlowdown"})), {"PowerThrottling": "warning"}),
    ],
)
def test_what_readings_show(readings: Readings | None, kinds: dict[str, str]) -> None:
    assert {symptom.kind: symptom.severity.value for symptom in symptoms_of(readings, DEFAULT_CLASSES)} == kinds


@pytest.mark.parametrize(
    ("before", "after", "count", "where"),
    [
        ((3, None), (4, None), 1, ""),
        ((3, 1), (4, 1), 1, ""),
        ((3, 1), (4, 2), 1, ": in SRAM"),
        ((3, 1), (5, 2), 2, ": partly in SRAM"),
        ((None, 1), (None, 3), 2, ": in SRAM"),
        ((3, None), (4, 9), 1, ""),
    ],
)
def test_uncorrectable_errors_report_whether_they_were_in_sram(
    before: tuple[int | None, int | None], after: tuple[int | None, int | None], count: int, where: str
) -> None:
    readings = [
        Readings(ecc_uncorrected_volatile=every, sram_uncorrected_volatile=sram) for every, sram in (before, after)
    ]
    (found,) = new_errors(readings[0], readings[1], DEFAULT_CLASSES)
    assert (found.symptom.message, found.errors) == (f"Uncorrectable ECC errors{where}", count)
