"""Errors that NVML reports: none is lost while cards come and go, and nobody spins."""

from itertools import pairwise
from pathlib import Path
from threading import Thread

import pynvml
import pytest

from gpuledger.agent.hardware.api import Xid
from gpuledger.agent.hardware.errors import CardLostError, HardwareError
from gpuledger.agent.hardware.nvml_xids import FAILED_WAITS_MAX, RETRY_SURVEYS_MAX
from support.hardware import FIRST, SECOND, THIRD, Bench, bench, h100, put_on_bus

SOON_S = 10.0


@pytest.fixture
def two(tmp_path: Path) -> Bench:
    """Two cards that are waited for."""
    created = bench(tmp_path)
    created.hardware.survey()
    return created


def test_a_card_that_comes_later_is_waited_for(two: Bench) -> None:
    late = h100(THIRD)
    two.nvml.cards.append(late)
    put_on_bus(two.sysfs, THIRD)
    two.hardware.survey()
    two.hardware.wait_xid(0.0)
    two.nvml.xid(late, 79)
    assert two.hardware.wait_xid(SOON_S) == Xid(THIRD, 79)


def test_one_set_of_events_serves_all_cards_and_all_waits(two: Bench) -> None:
    two.hardware.survey()
    two.hardware.wait_xid(0.0)
    assert two.nvml.calls.count("nvmlEventSetCreate") == 1
    assert two.nvml.calls.count("nvmlDeviceRegisterEvents") == 2


def test_what_came_before_mig_was_changed_is_stored(two: Bench) -> None:
    two.nvml.xid(two.card(FIRST), 31)
    two.nvml.xid(two.card(SECOND), 43)
    two.hardware.set_mig(FIRST, enabled=True)
    assert [two.hardware.wait_xid(SOON_S) for _ in range(2)] == [Xid(FIRST, 31), Xid(SECOND, 43)]
    two.nvml.xid(two.card(FIRST), 13)
    assert two.hardware.wait_xid(SOON_S) == Xid(FIRST, 13)


def test_what_comes_before_anybody_waits_is_stored(two: Bench) -> None:
    two.nvml.xid(two.card(SECOND), 79)
    assert two.hardware.wait_xid(0.0) == Xid(SECOND, 79)


@pytest.mark.parametrize("change", ["none", "mig"])
def test_the_last_word_of_a_card_that_fell_off_the_bus_is_its(two: Bench, change: str) -> None:
    two.nvml.xid(two.card(FIRST), 79)
    two.card(FIRST).error = pynvml.NVML_ERROR_GPU_IS_LOST
    if change == "mig":
        two.hardware.set_mig(SECOND, enabled=True)
    assert two.hardware.wait_xid(SOON_S) == Xid(FIRST, 79)


def test_what_came_before_the_driver_was_let_go_of_is_stored(two: Bench) -> None:
    two.nvml.xid(two.card(FIRST), 79)
    two.card(SECOND).left = True
    two.hardware.survey()
    assert two.nvml.calls.count("nvmlInit") == 2
    two.nvml.xid(two.card(FIRST), 13)
    assert [two.hardware.wait_xid(SOON_S) for _ in range(2)] == [Xid(FIRST, 79), Xid(FIRST, 13)]


def test_a_lost_card_keeps_no_other_from_being_waited_for(two: Bench) -> None:
    two.card(FIRST).error = pynvml.NVML_ERROR_GPU_IS_LOST
    with pytest.raises(CardLostError):
        two.hardware.wait_xid(SOON_S)
    assert two.hardware.wait_xid(0.01) is None
    two.nvml.xid(two.card(SECOND), 43)
    assert two.hardware.wait_xid(SOON_S) == Xid(SECOND, 43)


def test_a_card_that_recovers_is_waited_for_again(two: Bench) -> None:
    two.card(FIRST).error = pynvml.NVML_ERROR_GPU_IS_LOST
    two.hardware.survey()
    two.hardware.wait_xid(0.0)
    two.card(FIRST).error = 0
    two.hardware.survey()
    two.hardware.wait_xid(0.0)
    two.nvml.xid(two.card(FIRST), 13)
    assert two.hardware.wait_xid(SOON_S) == Xid(FIRST, 13)


def test_cards_that_report_no_errors_are_passed_over(tmp_path: Path) -> None:
    created = bench(tmp_path, h100(FIRST, event_types=0), h100(SECOND))
    created.hardware.survey()
    assert {address: why.reason for address, why in created.hardware.unregistered().items()} == {FIRST: "NotSupported"}
    created.nvml.xid(created.card(SECOND), 31)
    assert created.hardware.wait_xid(SOON_S) == Xid(SECOND, 31)


@pytest.mark.parametrize("cards", [(), (h100(FIRST, event_types=0),)])
def test_where_no_card_reports_errors_none_comes(tmp_path: Path, cards: tuple[object, ...]) -> None:
    created = bench(tmp_path)
    created.nvml.cards[:] = cards  # type: ignore[assignment]
    created.hardware.survey()
    assert created.hardware.wait_xid(0.01) is None


def tries(created: Bench, call: str, surveys: int) -> list[int]:
    """The surveys, counted from 1, in or after which the driver got a call."""
    found = []
    for number in range(1, surveys + 1):
        created.nvml.calls.clear()
        created.hardware.survey()
        assert created.hardware.wait_xid(0.0) is None
        found += [number] if call in created.nvml.calls else []
    return found


@pytest.mark.parametrize("call", ["nvmlDeviceRegisterEvents", "nvmlDeviceGetSupportedEventTypes", "nvmlEventSetCreate"])
@pytest.mark.parametrize("code", [pynvml.NVML_ERROR_NOT_SUPPORTED, pynvml.NVML_ERROR_MEMORY, 12345])
def test_a_driver_that_refuses_to_register_says_so_until_it_does(tmp_path: Path, call: str, code: int) -> None:
    created = bench(tmp_path)
    assert created.hardware.unregistered() == {}
    created.nvml.errors[call] = code
    assert tries(created, call, 1) == [1]
    refused = created.hardware.unregistered()
    assert {address: why.reason for address, why in refused.items()} == {FIRST: "Refused", SECOND: "Refused"}
    assert all(f"NVML error {code}" in why.message for why in refused.values())
    del created.nvml.errors[call]
    assert tries(created, "nvmlDeviceRegisterEvents", 1) == [1]
    assert created.hardware.unregistered() == {}
    created.nvml.xid(created.card(SECOND), 31)
    assert created.hardware.wait_xid(SOON_S) == Xid(SECOND, 31)


@pytest.mark.parametrize("call", ["nvmlDeviceRegisterEvents", "nvmlEventSetCreate"])
def test_a_driver_that_refuses_is_tried_ever_less_often_and_for_ever(tmp_path: Path, call: str) -> None:
    created = bench(tmp_path)
    created.nvml.errors[call] = pynvml.NVML_ERROR_UNKNOWN
    tried = tries(created, call, 60)
    pauses = [after - before for before, after in pairwise(tried)]
    assert pauses == [1, 2, 4, 8, RETRY_SURVEYS_MAX, RETRY_SURVEYS_MAX, RETRY_SURVEYS_MAX]


def test_one_card_that_is_refused_keeps_no_other_from_being_waited_for(two: Bench) -> None:
    late = h100(THIRD)
    two.nvml.cards.append(late)
    put_on_bus(two.sysfs, THIRD)
    two.nvml.errors["nvmlDeviceRegisterEvents"] = pynvml.NVML_ERROR_NOT_SUPPORTED
    two.hardware.survey()
    assert two.hardware.wait_xid(0.0) is None
    assert set(two.hardware.unregistered()) == {THIRD}
    two.nvml.xid(two.card(FIRST), 43)
    assert two.hardware.wait_xid(SOON_S) == Xid(FIRST, 43)


def test_a_card_that_left_is_not_refused_any_more(two: Bench) -> None:
    two.nvml.errors["nvmlDeviceRegisterEvents"] = pynvml.NVML_ERROR_NOT_SUPPORTED
    two.hardware.set_mig(FIRST, enabled=True)
    assert set(two.hardware.unregistered()) == {FIRST, SECOND}
    two.card(FIRST).error = pynvml.NVML_ERROR_GPU_IS_LOST
    two.hardware.survey()
    assert set(two.hardware.unregistered()) == {SECOND}


def test_a_driver_that_was_loaded_again_is_tried_at_once(two: Bench) -> None:
    two.nvml.errors["nvmlDeviceRegisterEvents"] = pynvml.NVML_ERROR_NOT_SUPPORTED
    two.hardware.set_mig(FIRST, enabled=True)
    tries(two, "nvmlDeviceRegisterEvents", 10)
    del two.nvml.errors["nvmlDeviceRegisterEvents"]
    two.nvml.nvmlShutdown()
    assert two.hardware.survey().driver_missing
    assert two.hardware.unregistered() == {}
    two.hardware.survey()
    assert two.hardware.unregistered() == {}
    two.nvml.xid(two.card(FIRST), 79)
    assert two.hardware.wait_xid(SOON_S) == Xid(FIRST, 79)


def test_waits_that_fail_again_and_again_report_no_errors(two: Bench) -> None:
    two.nvml.errors["nvmlEventSetWait_v2"] = pynvml.NVML_ERROR_UNKNOWN
    for number in range(FAILED_WAITS_MAX):
        assert (set(two.hardware.unregistered()) == {FIRST, SECOND}) == (number == FAILED_WAITS_MAX)
        with pytest.raises(HardwareError):
            two.hardware.wait_xid(0.0)
    assert set(two.hardware.unregistered()) == {FIRST, SECOND}
    del two.nvml.errors["nvmlEventSetWait_v2"]
    assert two.hardware.wait_xid(0.0) is None
    assert two.hardware.unregistered() == {}


def test_an_error_ends_a_wait_while_calls_are_made(two: Bench) -> None:
    came: list[Xid | None] = []
    waiting = Thread(target=lambda: came.append(two.hardware.wait_xid(3600.0)))
    waiting.start()
    two.hardware.set_mig(FIRST, enabled=True)
    two.hardware.survey()
    two.hardware.set_mig(FIRST, enabled=False)
    _report_until_it_came(two, waiting)
    assert came == [Xid(SECOND, 62)]


def _report_until_it_came(two: Bench, waiting: Thread) -> None:
    """An error that comes while nobody is registered is the driver's to forget, so it comes again."""
    for _ in range(100):
        two.nvml.xid(two.card(SECOND), 62)
        waiting.join(SOON_S / 100)
        if not waiting.is_alive():
            return
