"""A card's health in NVML."""

from pathlib import Path

import pynvml
import pytest

from gpuledger.agent.hardware.api import Readings
from gpuledger.agent.hardware.errors import CardLostError, HardwareError
from gpuledger.agent.hardware.nvml_health import throttles
from support.hardware import FIRST, SECOND, Bench, bench, h100

CORRECTED, UNCORRECTED = pynvml.NVML_MEMORY_ERROR_TYPE_CORRECTED, pynvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED
VOLATILE, AGGREGATE = pynvml.NVML_VOLATILE_ECC, pynvml.NVML_AGGREGATE_ECC


@pytest.fixture
def one(tmp_path: Path) -> Bench:
    return bench(tmp_path, h100(FIRST, links=[f"0000{SECOND}", f"0000{SECOND}", None]))


def test_each_count_of_ecc_errors_stands_in_its_place(one: Bench) -> None:
    one.card(FIRST).ecc = {
        (CORRECTED, VOLATILE): 1,
        (UNCORRECTED, VOLATILE): 2,
        (CORRECTED, AGGREGATE): 3,
        (UNCORRECTED, AGGREGATE): 4,
    }
    assert one.hardware.readings(FIRST)[:4] == (1, 2, 3, 4)


@pytest.mark.parametrize(
    ("remapped", "expected"),
    [
        ((3, 1, 0, 0), (False, False)),
        ((0, 1, 1, 0), (True, False)),
        ((0, 0, 0, 1), (False, True)),
        (None, (None, None)),
    ],
)
def test_row_remapping(one: Bench, remapped: tuple[int, int, int, int] | None, expected: tuple[bool, bool]) -> None:
    one.card(FIRST).remapped = remapped
    readings = one.hardware.readings(FIRST)
    assert (readings.remap_pending, readings.remap_failed) == expected


@pytest.mark.parametrize(
    ("sram", "expected"),
    [(None, (None, None)), ((0, 0, False), (0, False)), ((3, 2, False), (5, False)), ((0, 1, True), (1, True))],
)
def test_ecc_errors_in_sram(
    one: Bench, sram: tuple[int, int, bool] | None, expected: tuple[int | None, bool | None]
) -> None:
    one.card(FIRST).sram = sram
    readings = one.hardware.readings(FIRST)
    assert (readings.sram_uncorrected_volatile, readings.sram_threshold_exceeded) == expected


def test_a_driver_without_a_report_on_sram_has_all_other_readings(one: Bench) -> None:
    one.card(FIRST).sram = (1, 0, False)
    one.nvml.errors["nvmlDeviceGetSramEccErrorStatus"] = pynvml.NVML_ERROR_FUNCTION_NOT_FOUND
    readings = one.hardware.readings(FIRST)
    assert (readings.sram_uncorrected_volatile, readings.remap_failed) == (None, False)


@pytest.mark.parametrize(
    ("reasons", "names"),
    [
        (0, set()),
        (pynvml.nvmlClocksEventReasonGpuIdle, set()),
        (pynvml.nvmlClocksEventReasonApplicationsClocksSetting, set()),
        (pynvml.nvmlClocksEventReasonHwThermalSlowdown, {"HwThermalSlowdown"}),
        (pynvml.nvmlClocksEventReasonHwPowerBrakeSlowdown, {"HwPowerBrakeSlowdown"}),
        (0x20 | 0x04 | 0x01, {"SwThermalSlowdown", "SwPowerCap"}),
    ],
)
def test_reasons_for_slow_clocks(reasons: int, names: set[str]) -> None:
    assert throttles(pynvml, reasons) == names


def test_an_older_driver_is_called_by_the_older_name(one: Bench) -> None:
    one.nvml.errors["nvmlDeviceGetCurrentClocksEventReasons"] = pynvml.NVML_ERROR_FUNCTION_NOT_FOUND
    one.card(FIRST).reasons = pynvml.nvmlClocksThrottleReasonHwThermalSlowdown
    assert one.hardware.readings(FIRST).throttled == {"HwThermalSlowdown"}


def test_a_card_that_reports_nothing_is_well(one: Bench) -> None:
    silent = ("TotalEccErrors", "RemappedRows", "FieldValues", "NvLinkState")
    one.nvml.errors.update({f"nvmlDeviceGet{name}": pynvml.NVML_ERROR_NOT_SUPPORTED for name in silent})
    assert one.hardware.readings(FIRST) == Readings()


@pytest.mark.parametrize(
    ("fields", "errors"),
    [
        ({}, None),
        ({(pynvml.NVML_FI_DEV_NVLINK_CRC_FLIT_ERROR_COUNT_TOTAL, 0): 2}, 2),
        (
            {
                (pynvml.NVML_FI_DEV_NVLINK_CRC_FLIT_ERROR_COUNT_TOTAL, 0): 2,
                (pynvml.NVML_FI_DEV_NVLINK_REPLAY_ERROR_COUNT_TOTAL, 0): 3,
            },
            5,
        ),
        (
            {(pynvml.NVML_FI_DEV_NVLINK_ERROR_DL_CRC, 0): 1, (pynvml.NVML_FI_DEV_NVLINK_ERROR_DL_REPLAY, 1): 6},
            7,
        ),
        (
            {
                (pynvml.NVML_FI_DEV_NVLINK_CRC_FLIT_ERROR_COUNT_TOTAL, 0): 0,
                (pynvml.NVML_FI_DEV_NVLINK_ERROR_DL_CRC, 1): 4,
            },
            4,
        ),
        ({(pynvml.NVML_FI_DEV_NVLINK_ERROR_DL_CRC, 2): 9}, None),
    ],
)
def test_errors_of_links_are_summed(one: Bench, fields: dict[tuple[int, int], int], errors: int | None) -> None:
    one.card(FIRST).fields = fields
    assert one.hardware.readings(FIRST).nvlink_errors == errors


def test_a_link_that_was_active_before_is_down(one: Bench) -> None:
    assert one.hardware.readings(FIRST).nvlinks_down == ()
    one.card(FIRST).links[1] = None
    assert one.hardware.readings(FIRST).nvlinks_down == (1,)
    one.card(FIRST).links[1] = f"0000{SECOND}"
    assert one.hardware.readings(FIRST).nvlinks_down == ()


@pytest.mark.parametrize("code", [pynvml.NVML_ERROR_UNKNOWN, pynvml.NVML_ERROR_NOT_SUPPORTED])
def test_a_link_that_does_not_say_whether_it_is_active_is_not_down(one: Bench, code: int) -> None:
    one.hardware.readings(FIRST)
    one.nvml.errors["nvmlDeviceGetNvLinkState"] = code
    assert one.hardware.readings(FIRST).nvlinks_down == ()


def test_links_that_mig_switches_off_are_not_down(one: Bench) -> None:
    one.hardware.readings(FIRST)
    card = one.card(FIRST)
    card.links, card.mig = [None] * 3, (1, 1)
    assert one.hardware.readings(FIRST).nvlinks_down == ()
    card.mig = (0, 0)
    assert one.hardware.readings(FIRST).nvlinks_down == (0, 1)


@pytest.mark.parametrize(
    ("action", "named"),
    [
        (pynvml.NVML_GPU_RECOVERY_ACTION_NONE, None),
        (pynvml.NVML_GPU_RECOVERY_ACTION_GPU_RESET, "GpuReset"),
        (pynvml.NVML_GPU_RECOVERY_ACTION_DRAIN_AND_RESET, "DrainAndReset"),
        (77, "Action77"),
    ],
)
def test_what_the_driver_reports_that_a_card_needs(one: Bench, action: int, named: str | None) -> None:
    one.card(FIRST).fields = {(pynvml.NVML_FI_DEV_GET_GPU_RECOVERY_ACTION, 0): action}
    assert one.hardware.readings(FIRST).recovery == named


@pytest.mark.parametrize("code", [pynvml.NVML_ERROR_GPU_IS_LOST, pynvml.NVML_ERROR_RESET_REQUIRED])
def test_a_lost_card_has_no_readings(one: Bench, code: int) -> None:
    one.card(FIRST).error = code
    with pytest.raises(CardLostError, match=FIRST):
        one.hardware.readings(FIRST)


SRAM, REMAP = ("sram_threshold_exceeded", "sram_uncorrected_volatile"), ("remap_failed", "remap_pending")


@pytest.mark.parametrize(
    ("call", "readings"),
    [
        ("nvmlDeviceGetSramEccErrorStatus", SRAM),
        ("nvmlDeviceGetRemappedRows", REMAP),
        ("nvmlDeviceGetFieldValues", ("nvlink_errors", "recovery")),
        ("nvmlDeviceGetCurrentClocksEventReasons", ("throttled",)),
        ("nvmlDeviceGetNvLinkState", ("nvlinks_down",)),
        ("nvmlDeviceGetMigMode", ("nvlinks_down",)),
        (
            "nvmlDeviceGetTotalEccErrors",
            (
                "ecc_corrected_aggregate",
                "ecc_corrected_volatile",
                "ecc_uncorrected_aggregate",
                "ecc_uncorrected_volatile",
            ),
        ),
    ],
)
@pytest.mark.parametrize(
    "code", [pynvml.NVML_ERROR_UNKNOWN, pynvml.NVML_ERROR_NOT_READY, pynvml.NVML_ERROR_CORRUPTED_INFOROM]
)
def test_one_reading_that_fails_is_absent_and_the_others_are_there(
    one: Bench, call: str, readings: tuple[str, ...], code: int
) -> None:
    card = one.card(FIRST)
    card.sram, card.reasons = (1, 0, False), pynvml.nvmlClocksEventReasonHwThermalSlowdown
    card.ecc = {(errors, since): 1 for errors in (CORRECTED, UNCORRECTED) for since in (VOLATILE, AGGREGATE)}
    card.fields = {(pynvml.NVML_FI_DEV_NVLINK_ERROR_DL_CRC, 0): 1}
    whole = one.hardware.readings(FIRST)
    assert whole.unread == ()
    one.nvml.errors[call] = code
    partial = one.hardware.readings(FIRST)
    assert tuple(each.reading for each in partial.unread) == readings
    assert all(each.message for each in partial.unread)
    absent = {each: Readings._field_defaults[each] for each in readings}
    assert partial == whole._replace(**absent, unread=partial.unread)
    del one.nvml.errors[call]
    assert one.hardware.readings(FIRST) == whole


@pytest.mark.parametrize("code", [pynvml.NVML_ERROR_UNKNOWN, pynvml.NVML_ERROR_GPU_IS_LOST])
def test_a_field_that_fails_is_absent(one: Bench, code: int) -> None:
    one.card(FIRST).fields = {(pynvml.NVML_FI_DEV_NVLINK_ERROR_DL_CRC, 0): 7}
    one.card(FIRST).field_errors = {(pynvml.NVML_FI_DEV_GET_GPU_RECOVERY_ACTION, 0): code}
    readings = one.hardware.readings(FIRST)
    assert [each.reading for each in readings.unread] == ["recovery"]
    assert readings.nvlink_errors == 7
    one.card(FIRST).field_errors = {(pynvml.NVML_FI_DEV_NVLINK_ERROR_DL_CRC, 1): code}
    readings = one.hardware.readings(FIRST)
    assert [each.reading for each in readings.unread] == ["nvlink_errors"]
    assert readings.nvlink_errors is None, "a sum without one of its links would seem to have gone back"


def test_a_link_that_was_never_active_may_fail(one: Bench) -> None:
    one.card(FIRST).links = [None] * 3
    one.nvml.errors["nvmlDeviceGetNvLinkState"] = pynvml.NVML_ERROR_UNKNOWN
    assert one.hardware.readings(FIRST).unread == ()


def test_a_card_of_which_every_reading_fails_does_not_answer(one: Bench) -> None:
    readings = (
        "SramEccErrorStatus",
        "RemappedRows",
        "CurrentClocksEventReasons",
        "NvLinkState",
        "MigMode",
        "TotalEccErrors",
    )
    one.nvml.errors.update({f"nvmlDeviceGet{name}": pynvml.NVML_ERROR_UNKNOWN for name in readings})
    assert one.hardware.readings(FIRST).unread, "its fields are there"
    fields = [(pynvml.NVML_FI_DEV_GET_GPU_RECOVERY_ACTION, 0)]
    one.card(FIRST).field_errors = dict.fromkeys(fields, pynvml.NVML_ERROR_UNKNOWN)
    with pytest.raises(HardwareError, match=f"(?i){FIRST}.*unknown error"):
        one.hardware.readings(FIRST)
