"""MIG partitions in NVML: incomplete ones, refused changes, and users."""

from pathlib import Path

import pynvml
import pytest

from gpuledger.agent.hardware.api import WHOLE_CARD
from gpuledger.agent.hardware.errors import BusyError, CardLostError, HardwareError, UnsupportedError
from gpuledger.agent.hardware.nvml_mig_profiles import profile_name
from gpuledger.domain.mig.geometry import Instance
from gpuledger.domain.mig.models import H100_80GB
from support.fake_nvml_cards import FakeCard
from support.hardware import FIRST, SECOND, Bench, bench, h100


@pytest.fixture
def one(tmp_path: Path) -> Bench:
    """A card with MIG on."""
    return bench(tmp_path, h100(FIRST, mig=(1, 1)))


def instances(created: Bench) -> tuple[Instance, ...]:
    return created.hardware.survey().cards[0].instances


def half(card: FakeCard, start: int = 0) -> None:
    """A GPU instance without a compute instance, as a crash between two steps leaves it."""
    card.divide(card.profile(19), start)


@pytest.mark.parametrize(
    ("expected", "name"),
    [
        ("MIG 1g.10gb", "1g.10gb"),
        ("MIG 1g.10gb+me", "1g.10gb+me"),
        ("1g.5gb", "1g.5gb"),
        ("MIG 1c.2g.20gb ", "1c.2g.20gb"),
    ],
)
def test_names_of_profiles(expected: str, name: str) -> None:
    assert profile_name(expected) == name


def test_a_mode_that_waits_for_a_reset_is_reported(tmp_path: Path) -> None:
    created = bench(tmp_path, h100(FIRST, needs_reset=True))
    assert created.hardware.set_mig(FIRST, enabled=True) is False
    card = created.hardware.survey().cards[0]
    assert (card.mig_enabled, card.mig_pending) == (False, True)


def test_a_mode_that_waits_can_be_taken_back(tmp_path: Path) -> None:
    created = bench(tmp_path, h100(FIRST, mig=(0, 1)))
    assert created.hardware.set_mig(FIRST, enabled=False) is True
    assert created.hardware.survey().cards[0].mig_pending is False


def test_waiting_for_errors_does_not_keep_a_card_from_changing_its_mode(tmp_path: Path) -> None:
    created = bench(tmp_path, h100(FIRST, events_are_use=True))
    created.hardware.survey()
    assert created.hardware.wait_xid(0.0) is None
    assert created.hardware.set_mig(FIRST, enabled=True) is True


def test_the_numbers_of_mig_devices_may_have_holes(one: Bench) -> None:
    created = one.hardware.create_instance(FIRST, "1g.10gb", 3)
    assert created.uuid.startswith("MIG-")
    assert instances(one) == (created,)


def test_what_was_made_half_is_seen_by_the_same_name_and_can_be_destroyed(one: Bench) -> None:
    half(one.card(FIRST), 2)
    seen = instances(one)
    assert seen == (Instance(f"{one.card(FIRST).uuid}/gi-1", "0c.1g.10gb", 2, 1, gpu_instance=1),)
    assert instances(one) == seen
    one.hardware.destroy_instance(FIRST, seen[0].uuid)
    assert instances(one) == ()


def test_an_instance_with_a_part_of_its_compute_is_named_by_it(one: Bench) -> None:
    card = one.card(FIRST)
    part = card.divide(card.profile(9), 4)
    card.compute_in(part, 1)
    assert [(each.profile, each.start) for each in instances(one)] == [("1c.3g.40gb", 4)]
    card.compute_in(part, 2)
    seen = instances(one)
    assert [each.profile for each in seen] == ["1c.3g.40gb"]
    one.hardware.destroy_instance(FIRST, seen[0].uuid)
    assert card.gpu_instances == {}


@pytest.mark.parametrize(
    ("code", "ours"),
    [
        (pynvml.NVML_ERROR_INSUFFICIENT_RESOURCES, BusyError),
        (pynvml.NVML_ERROR_UNKNOWN, HardwareError),
        (pynvml.NVML_ERROR_GPU_IS_LOST, CardLostError),
    ],
)
def test_what_cannot_be_made_whole_is_taken_back(one: Bench, code: int, ours: type[HardwareError]) -> None:
    one.nvml.errors["nvmlGpuInstanceCreateComputeInstance"] = code
    with pytest.raises(ours):
        one.hardware.create_instance(FIRST, "2g.20gb", 0)
    assert one.card(FIRST).gpu_instances == {}


def test_what_has_no_mig_device_is_taken_back(one: Bench) -> None:
    one.nvml.errors["nvmlDeviceGetMigDeviceHandleByIndex"] = pynvml.NVML_ERROR_NOT_FOUND
    with pytest.raises(HardwareError, match="and destroyed"):
        one.hardware.create_instance(FIRST, "2g.20gb", 0)
    assert one.card(FIRST).gpu_instances == {}


def test_what_can_neither_be_made_whole_nor_taken_back_is_seen(one: Bench) -> None:
    one.nvml.errors["nvmlGpuInstanceCreateComputeInstance"] = pynvml.NVML_ERROR_UNKNOWN
    one.nvml.errors["nvmlGpuInstanceDestroy"] = pynvml.NVML_ERROR_UNKNOWN
    with pytest.raises(HardwareError, match=r"Creating a 2g\.20gb at 0"):
        one.hardware.create_instance(FIRST, "2g.20gb", 0)
    assert [each.profile for each in instances(one)] == ["0c.2g.20gb"]


def test_an_agent_without_rights_divides_nothing(one: Bench) -> None:
    one.nvml.errors["nvmlDeviceGetGpuInstancePossiblePlacements"] = pynvml.NVML_ERROR_NO_PERMISSION
    one.nvml.errors["nvmlDeviceGetGpuInstances"] = pynvml.NVML_ERROR_NO_PERMISSION
    card = one.hardware.survey().cards[0]
    assert {profile.starts for profile in card.profiles} == {()}
    with pytest.raises(UnsupportedError):
        one.hardware.create_instance(FIRST, "1g.10gb", 0)


@pytest.mark.parametrize("code", [pynvml.NVML_ERROR_UNKNOWN, pynvml.NVML_ERROR_INSUFFICIENT_RESOURCES])
@pytest.mark.parametrize("is_counted", [False, True])
def test_places_that_cannot_be_had_hide_no_card(one: Bench, is_counted: bool, code: int) -> None:
    made = one.hardware.create_instance(FIRST, "1g.10gb", 3)
    whole = one.hardware.survey().cards[0]
    one.hardware._cache.forget(FIRST)
    if is_counted:
        one.card(FIRST).places_error = code
    else:
        one.nvml.errors["nvmlDeviceGetGpuInstancePossiblePlacements"] = code
    found = one.hardware.survey().cards[0]
    assert (found.uuid, found.instances) == (whole.uuid, (made,))
    assert [each.name for each in found.profiles] == [each.name for each in whole.profiles]
    with pytest.raises(HardwareError):
        one.hardware.create_instance(FIRST, "1g.10gb", 0)
    one.card(FIRST).places_error = 0
    one.nvml.errors.clear()
    assert one.hardware.survey().cards[0] == whole, "it is not kept"


OLD_DRIVER = "nvmlDeviceGetGpuInstanceProfileInfoV"


@pytest.mark.parametrize("code", [pynvml.NVML_ERROR_FUNCTION_NOT_FOUND, pynvml.NVML_ERROR_ARGUMENT_VERSION_MISMATCH])
@pytest.mark.parametrize("mig", [(0, 0), (1, 1)])
def test_a_driver_that_does_not_name_profiles_has_them_named_by_the_cards_model(
    tmp_path: Path, mig: tuple[int, int], code: int
) -> None:
    created = bench(tmp_path, h100(FIRST, mig=mig))
    whole = created.hardware.survey().cards[0].profiles
    old = bench(tmp_path / "old", h100(FIRST, mig=mig))
    old.nvml.errors[OLD_DRIVER] = code
    assert old.hardware.survey().cards[0].profiles == whole
    old.hardware.set_mig(FIRST, enabled=True)
    assert old.hardware.create_instance(FIRST, "1g.20gb", 2).profile == "1g.20gb"


def test_a_card_that_reports_no_profiles_while_mig_is_off_can_be_divided(tmp_path: Path) -> None:
    created = bench(tmp_path, h100(FIRST, shows_profiles=False))
    card = created.hardware.survey().cards[0]
    assert card.profiles == H100_80GB.profiles
    created.hardware.set_mig(FIRST, enabled=True)
    made = created.hardware.create_instance(FIRST, "3g.40gb", 4)
    assert created.hardware.survey().cards[0].instances == (made,)


@pytest.mark.parametrize("name", ["NVIDIA H999", "NVIDIA GB200"])
def test_profiles_of_an_unknown_model_are_not_guessed(tmp_path: Path, name: str) -> None:
    created = bench(tmp_path, h100(FIRST, name=name, shows_profiles=False))
    assert created.hardware.survey().cards[0].profiles == ()
    created.hardware.set_mig(FIRST, enabled=True)
    assert created.hardware.survey().cards[0].profiles != ()


def test_a_driver_that_reports_no_profiles_with_mig_on_has_none(one: Bench) -> None:
    for call in (OLD_DRIVER, "nvmlDeviceGetGpuInstanceProfileInfo"):
        one.nvml.errors[call] = pynvml.NVML_ERROR_NOT_SUPPORTED
    assert one.hardware.survey().cards[0].profiles == ()
    with pytest.raises(UnsupportedError, match="it has none"):
        one.hardware.create_instance(FIRST, "1g.10gb", 0)


@pytest.mark.parametrize("hides", [False, True])
@pytest.mark.parametrize("kind", ["compute", "graphics"])
def test_users_of_instances(one: Bench, kind: str, hides: bool) -> None:
    used = one.hardware.create_instance(FIRST, "1g.10gb", 0)
    one.hardware.create_instance(FIRST, "1g.10gb", 1)
    card = one.card(FIRST)
    card.processes, card.hides_processes = [(1, 1, kind), (2, 1, kind)], hides
    assert one.hardware.users(FIRST) == {used.uuid}


def test_users_of_the_card_and_of_an_instance(one: Bench) -> None:
    used = one.hardware.create_instance(FIRST, "1g.10gb", 0)
    one.card(FIRST).processes = [(1, 1, "compute"), (2, 0xFFFFFFFF, "graphics")]
    assert one.hardware.users(FIRST) == {used.uuid, WHOLE_CARD}


def test_users_that_nobody_reports_are_an_error_and_keep_instances(one: Bench) -> None:
    created = one.hardware.create_instance(FIRST, "1g.10gb", 0)
    for kind in ("Compute", "Graphics"):
        one.nvml.errors[f"nvmlDeviceGet{kind}RunningProcesses_v3"] = pynvml.NVML_ERROR_NO_PERMISSION
    with pytest.raises(UnsupportedError):
        one.hardware.users(FIRST)
    with pytest.raises(UnsupportedError):
        one.hardware.destroy_instance(FIRST, created.uuid)
    assert instances(one) == (created,)


def test_instances_whose_users_only_some_report_are_stored(one: Bench) -> None:
    one.hardware.create_instance(FIRST, "1g.10gb", 0)
    silent = one.hardware.create_instance(FIRST, "1g.10gb", 1)
    card = one.card(FIRST)
    card.hides_processes, card.secretive, card.processes = True, {2}, [(1, 2, "compute")]
    with pytest.raises(UnsupportedError):
        one.hardware.users(FIRST)
    with pytest.raises(UnsupportedError):
        one.hardware.destroy_instance(FIRST, silent.uuid)


def test_graphics_processes_alone_are_not_enough(one: Bench) -> None:
    one.nvml.errors["nvmlDeviceGetComputeRunningProcesses_v3"] = pynvml.NVML_ERROR_NO_PERMISSION
    with pytest.raises(UnsupportedError):
        one.hardware.users(FIRST)


def test_the_driver_has_the_last_word_on_what_is_in_use(one: Bench) -> None:
    created = one.hardware.create_instance(FIRST, "1g.10gb", 0)
    one.nvml.errors["nvmlComputeInstanceDestroy"] = pynvml.NVML_ERROR_IN_USE
    with pytest.raises(BusyError, match=created.uuid):
        one.hardware.destroy_instance(FIRST, created.uuid)
    assert instances(one) == (created,)


def test_cards_are_divided_apart(tmp_path: Path) -> None:
    created = bench(tmp_path, h100(FIRST, mig=(1, 1)), h100(SECOND, mig=(1, 1)))
    one, other = (created.hardware.create_instance(address, "1g.10gb", 0) for address in (FIRST, SECOND))
    assert one.uuid != other.uuid
    created.hardware.destroy_instance(FIRST, other.uuid)
    assert [card.instances for card in created.hardware.survey().cards] == [(one,), (other,)]
