"""Real hardware over a fake driver: surveys, and drivers and cards that come and go."""

from importlib import reload
from pathlib import Path
from typing import Any

import pynvml
import pytest

from gpuledger.agent.hardware.errors import (
    BusyError,
    CardLostError,
    DriverMissingError,
    HardwareError,
    HungError,
    UnsupportedError,
)
from gpuledger.agent.hardware.nvml import NvmlHardware, cuda_version
from gpuledger.agent.hardware.nvml_calls import translated, translating_errors
from gpuledger.agent.hardware.nvml_driver import SURVEYS_BETWEEN_TRIES, SilentCards, load_nvml
from support.hardware import FIRST, SECOND, THIRD, Bench, bench, h100, put_on_bus


@pytest.fixture
def two(tmp_path: Path) -> Bench:
    return bench(tmp_path)


def reads(created: Bench, name: str) -> int:
    return created.nvml.calls.count(name)


def test_what_is_reported_a_card(two: Bench) -> None:
    card = two.hardware.survey().cards[0]
    assert card._replace(profiles=()) == (
        FIRST,
        "10de",
        "2330",
        "0302",
        "GPU-17000000-0000-4000-8000-000000000000",
        "1650123004545",
        "NVIDIA H100 80GB HBM3",
        81559,
        (9, 0),
        0,
        ("0000:16:01.0",),
        (SECOND, SECOND),
        False,
        False,
        (),
        (),
        0,
        1,
        None,
    )
    assert [profile.name for profile in card.profiles] == [
        "1g.10gb",
        "1g.10gb+me",
        "1g.20gb",
        "2g.20gb",
        "3g.40gb",
        "4g.40gb",
        "7g.80gb",
    ]


def test_versions_are_reported(two: Bench) -> None:
    survey = two.hardware.survey()
    assert (survey.driver_version, survey.cuda_version) == ("570.86.15", "12.8")


@pytest.mark.parametrize(("number", "version"), [(12040, "12.4"), (13000, "13.0"), (11080, "11.8"), (None, None)])
def test_cuda_versions(number: int | None, version: str | None) -> None:
    assert cuda_version(number) == version


def test_a_card_without_serial_links_or_mig(tmp_path: Path) -> None:
    created = bench(tmp_path, h100(FIRST, name="Tesla T4", serial=None, mig=None))
    (card,) = created.hardware.survey().cards
    assert (card.product, card.serial, card.nvlinks, card.mig_enabled, card.profiles) == (
        "Tesla T4",
        None,
        (),
        None,
        (),
    )
    with pytest.raises(UnsupportedError):
        created.hardware.set_mig(FIRST, enabled=True)


def test_a_machine_whose_sysfs_is_hidden_is_seen_by_the_driver(two: Bench, tmp_path: Path) -> None:
    seen = NvmlHardware(two.nvml.load, sysfs=tmp_path / "none").survey().cards[0]
    assert (seen.address, seen.pci_vendor, seen.pci_device, seen.pci_class) == (FIRST, "10de", "2330", None)
    assert seen.uuid is not None


def test_links_that_are_inactive_end_nowhere(tmp_path: Path) -> None:
    created = bench(tmp_path, h100(FIRST, links=[f"0000{SECOND}", None, f"0000{THIRD}".upper()]))
    assert created.hardware.survey().cards[0].nvlinks == (SECOND, THIRD)


def test_links_to_a_switch_whose_address_the_driver_masks_end_nowhere_that_is_known(tmp_path: Path) -> None:
    created = bench(tmp_path, h100(FIRST, links=["ffffffff:ff:ff.0", "FFFFFFFF:FF:FF.0", f"0000{SECOND}"]))
    assert created.hardware.survey().cards[0].nvlinks == (SECOND,)


@pytest.mark.parametrize(
    ("call", "lacks"),
    [
        ("nvmlDeviceGetSerial", {"serial": None}),
        ("nvmlDeviceGetName", {"product": None}),
        ("nvmlDeviceGetMemoryInfo", {"memory_mib": None}),
        ("nvmlDeviceGetCudaComputeCapability", {"compute": None}),
        ("nvmlDeviceGetNvLinkState", {"nvlinks": ()}),
        ("nvmlDeviceGetNvLinkRemotePciInfo", {"nvlinks": ()}),
        ("nvmlSystemGetDriverVersion", {}),
    ],
)
@pytest.mark.parametrize("code", [pynvml.NVML_ERROR_UNKNOWN, pynvml.NVML_ERROR_MEMORY, 12345])
def test_a_property_that_cannot_be_had_hides_no_card(two: Bench, call: str, lacks: dict[str, Any], code: int) -> None:
    whole = NvmlHardware(two.nvml.load, sysfs=two.sysfs).survey()
    two.nvml.errors[call] = code
    found = two.hardware.survey()
    assert found.cards == tuple(card._replace(**lacks) for card in whole.cards)
    assert (found.driver_version is None) == (call == "nvmlSystemGetDriverVersion")
    del two.nvml.errors[call]
    assert two.hardware.survey() == whole


@pytest.mark.parametrize("code", [pynvml.NVML_ERROR_GPU_IS_LOST, pynvml.NVML_ERROR_TIMEOUT])
def test_a_card_that_is_lost_while_it_is_described_does_not_answer(two: Bench, code: int) -> None:
    two.nvml.errors["nvmlDeviceGetSerial"] = code
    assert [card.uuid for card in two.hardware.survey().cards] == [None, None]


@pytest.mark.parametrize(
    ("code", "ours"),
    [
        (pynvml.NVML_ERROR_UNINITIALIZED, DriverMissingError),
        (pynvml.NVML_ERROR_DRIVER_NOT_LOADED, DriverMissingError),
        (pynvml.NVML_ERROR_LIBRARY_NOT_FOUND, DriverMissingError),
        (pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH, DriverMissingError),
        (pynvml.NVML_ERROR_GPU_IS_LOST, CardLostError),
        (pynvml.NVML_ERROR_RESET_REQUIRED, CardLostError),
        (pynvml.NVML_ERROR_NOT_FOUND, CardLostError),
        (pynvml.NVML_ERROR_IN_USE, BusyError),
        (pynvml.NVML_ERROR_INSUFFICIENT_RESOURCES, BusyError),
        (pynvml.NVML_ERROR_NOT_SUPPORTED, UnsupportedError),
        (pynvml.NVML_ERROR_NO_PERMISSION, UnsupportedError),
        (pynvml.NVML_ERROR_TIMEOUT, HungError),
        (pynvml.NVML_ERROR_UNKNOWN, HardwareError),
        (12345, HardwareError),
    ],
)
def test_errors_are_translated(code: int, ours: type[HardwareError]) -> None:
    error = translated(pynvml, pynvml.NVMLError(code), "Looking")
    assert type(error) is ours
    assert str(error).startswith("Looking failed: ")
    assert f"NVML error {code}" in str(error)


def test_the_librarys_error_is_stored_as_the_cause() -> None:
    with pytest.raises(BusyError) as raised, translating_errors(pynvml, "Changing"):
        raise pynvml.NVMLError(pynvml.NVML_ERROR_IN_USE)
    assert isinstance(raised.value.__cause__, pynvml.NVMLError)


def test_bytes_that_are_no_text_are_an_error_of_ours() -> None:
    with pytest.raises(HardwareError, match="no text"), translating_errors(pynvml, "Looking"):
        b"\xff\xfe".decode()


@pytest.mark.parametrize("code", [pynvml.NVML_ERROR_DRIVER_NOT_LOADED, pynvml.NVML_ERROR_LIBRARY_NOT_FOUND])
def test_a_driver_may_come_later(two: Bench, code: int) -> None:
    two.nvml.init_error = code
    missing = two.hardware.survey()
    assert missing.driver_missing
    assert [card.address for card in missing.cards] == [FIRST, SECOND]
    with pytest.raises(DriverMissingError):
        two.hardware.readings(FIRST)
    with pytest.raises(DriverMissingError):
        two.hardware.wait_xid(0.0)
    two.nvml.init_error = 0
    assert not two.hardware.survey().driver_missing
    two.hardware.readings(FIRST)
    assert two.hardware.wait_xid(0.0) is None


def test_a_driver_that_goes_and_comes_back_is_found(two: Bench) -> None:
    two.hardware.survey()
    two.nvml.nvmlShutdown()
    assert two.hardware.survey().driver_missing
    after = two.hardware.survey()
    assert not after.driver_missing
    assert after.cards[0].uuid is not None
    assert set(two.nvml.loads) == {False}


def test_a_driver_that_goes_is_let_go_of_by_any_call(two: Bench) -> None:
    two.hardware.survey()
    two.nvml.errors["nvmlDeviceGetTotalEccErrors"] = pynvml.NVML_ERROR_DRIVER_NOT_LOADED
    with pytest.raises(DriverMissingError):
        two.hardware.readings(FIRST)
    del two.nvml.errors["nvmlDeviceGetTotalEccErrors"]
    two.hardware.readings(FIRST)
    assert reads(two, "nvmlInit") == 2


def test_a_driver_of_another_version_has_its_library_loaded_again(two: Bench) -> None:
    two.nvml.init_error = pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH
    assert two.hardware.survey().driver_missing
    two.nvml.init_error = 0
    assert not two.hardware.survey().driver_missing
    assert two.nvml.loads == [False, True]


def test_the_library_is_loaded_again() -> None:
    try:
        assert load_nvml(fresh=False) is pynvml
        pynvml.nvmlLib = "an old library"
        assert load_nvml(fresh=True) is pynvml
        assert pynvml.nvmlLib is None
    finally:
        reload(pynvml)


def test_a_driver_that_refuses_is_an_error(two: Bench) -> None:
    two.nvml.init_error = pynvml.NVML_ERROR_NO_PERMISSION
    with pytest.raises(UnsupportedError):
        two.hardware.survey()


def test_a_card_that_comes_later_is_found(two: Bench) -> None:
    two.hardware.survey()
    two.nvml.cards.append(h100(THIRD))
    put_on_bus(two.sysfs, THIRD)
    assert [card.address for card in two.hardware.survey().cards] == [FIRST, SECOND, THIRD]


def test_a_card_that_the_driver_does_not_list_stands_there_from_the_bus(two: Bench) -> None:
    two.card(FIRST).left = True
    lost, other = two.hardware.survey().cards
    assert (lost.address, lost.uuid, lost.numa_node) == (FIRST, None, 0)
    assert other.uuid is not None
    with pytest.raises(CardLostError):
        two.hardware.readings(FIRST)


def test_a_card_that_recovers_is_found_by_a_later_survey(two: Bench) -> None:
    two.hardware.survey()
    two.card(FIRST).error = pynvml.NVML_ERROR_GPU_IS_LOST
    assert two.hardware.survey().cards[0].uuid is None
    two.card(FIRST).error = 0
    assert two.hardware.survey().cards[0].uuid is not None


def test_nvml_is_initialised_anew_for_silent_cards_now_and_then(two: Bench) -> None:
    two.card(FIRST).left = True
    for _ in range(SURVEYS_BETWEEN_TRIES + 1):
        two.hardware.survey()
    assert reads(two, "nvmlInit") == 3


def test_cards_of_other_kernel_drivers_are_not_waited_for(tmp_path: Path) -> None:
    created = bench(tmp_path, h100(FIRST))
    put_on_bus(tmp_path, SECOND, driver="vfio-pci")
    put_on_bus(tmp_path, THIRD, driver=None)
    assert [card.address for card in created.hardware.survey().cards] == [FIRST, SECOND, THIRD]
    created.hardware.survey()
    assert reads(created, "nvmlInit") == 1


def test_when_to_begin_anew() -> None:
    silence = SilentCards()
    surveys = [set(), {"a"}, {"a"}, {"a", "b"}, *[{"a", "b"}] * SURVEYS_BETWEEN_TRIES, set(), {"a"}]
    expected = [silence.should_reinitialize(silent) for silent in surveys]
    assert expected == [False, True, False, True, *[False] * (SURVEYS_BETWEEN_TRIES - 1), True, False, True]


def test_closing_lets_the_driver_go(two: Bench) -> None:
    two.hardware.survey()
    two.hardware.close()
    two.hardware.close()
    assert reads(two, "nvmlShutdown") == 1
    assert two.hardware.wait_xid(3600.0) is None
