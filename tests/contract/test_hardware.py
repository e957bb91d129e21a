"""What every implementation of `gpuledger.agent.hardware.api` keeps; the agent cannot tell them apart."""

import re
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from gpuledger.agent.hardware.api import WHOLE_CARD, CardFacts, NodeHardware, Xid
from gpuledger.agent.hardware.errors import BusyError, CardLostError, DriverMissingError, UnsupportedError
from gpuledger.agent.hardware.nvml import NvmlHardware
from gpuledger.agent.hardware.recording import read_recording, record, write_recording
from support.hardware import Machine, driver_is_here, nvml_machine, recorded_machine, simulated_machine

MACHINES = {"nvml": nvml_machine, "recorded": recorded_machine, "simulated": simulated_machine}
NOWHERE = "0000:ff:1f.0"
SHORT_S = 0.05
SOON_S = 10.0
"""How long an error is waited for that is sure to come."""

ADDRESS = re.compile(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]").fullmatch
PCI_ID = re.compile(r"[0-9a-f]{4}").fullmatch


@pytest.fixture(params=MACHINES)
def machine(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Machine]:
    made = MACHINES[request.param](tmp_path)
    yield made
    made.hardware.close()


@pytest.fixture
def hardware(machine: Machine) -> NodeHardware:
    return machine.hardware


@pytest.fixture
def real() -> Iterator[NodeHardware]:
    if not driver_is_here():
        pytest.skip("no driver answers on this machine, so that the real hardware was not exercised")
    hardware = NvmlHardware()
    yield hardware
    hardware.close()


def first(hardware: NodeHardware) -> CardFacts:
    return hardware.survey().cards[0]


def divided(hardware: NodeHardware) -> str:
    """The address of a card with MIG on."""
    address = first(hardware).address
    assert hardware.set_mig(address, enabled=True)
    return address


def check_survey(hardware: NodeHardware) -> None:
    survey = hardware.survey()
    addresses = [card.address for card in survey.cards]
    assert addresses == sorted(set(addresses))
    assert survey.driver_version
    assert survey.cuda_version
    assert not survey.driver_missing
    for card in survey.cards:
        assert ADDRESS(card.address)
        assert PCI_ID(card.pci_vendor)
        assert PCI_ID(card.pci_device)
        assert card.pci_class is None or PCI_ID(card.pci_class)
        assert all(ADDRESS(end) for end in card.nvlinks)
        assert all(ADDRESS(bridge) for bridge in card.pci_path)
        assert card.uuid is None or card.uuid.startswith("GPU-")
        assert card.memory_mib is None or card.memory_mib > 0


def check_readings(hardware: NodeHardware) -> None:
    for card in hardware.survey().cards:
        readings = hardware.readings(card.address)
        counters = (readings.ecc_corrected_aggregate, readings.ecc_uncorrected_volatile, readings.nvlink_errors)
        assert all(counter is None or counter >= 0 for counter in counters)
        assert readings.recovery is None or readings.recovery


def test_kind(hardware: NodeHardware, request: pytest.FixtureRequest) -> None:
    assert hardware.kind == request.node.callspec.params["machine"]


def test_survey_shows_cards_by_address(hardware: NodeHardware) -> None:
    check_survey(hardware)


def test_well_cards_report_so(hardware: NodeHardware) -> None:
    check_readings(hardware)


def test_errors_of_every_card_reach_the_agent(hardware: NodeHardware) -> None:
    hardware.survey()
    assert hardware.unregistered() == {}


def test_a_card_that_has_mig_reports_what_it_can_be_divided_by(hardware: NodeHardware) -> None:
    card = first(hardware)
    assert card.mig_enabled is False
    assert not card.mig_pending
    assert card.instances == ()
    by_name = {profile.name: profile for profile in card.profiles}
    assert by_name["1g.10gb"].starts == (0, 1, 2, 3, 4, 5, 6)
    assert by_name["1g.10gb+me"].instances_max == 1
    assert by_name["3g.40gb"]._replace(memory_mib=0) == by_name["3g.40gb"]._replace(
        compute=3, size=4, starts=(0, 4), instances_max=2, memory_mib=0
    )


def test_surveys_of_the_same_machine_are_equal(hardware: NodeHardware) -> None:
    assert hardware.survey() == hardware.survey()


def test_no_card_is_no_card_anywhere(hardware: NodeHardware) -> None:
    hardware.survey()
    with pytest.raises(CardLostError):
        hardware.readings(NOWHERE)
    with pytest.raises(CardLostError):
        hardware.users(NOWHERE)
    with pytest.raises(CardLostError):
        hardware.set_mig(NOWHERE, enabled=True)
    with pytest.raises(CardLostError):
        hardware.create_instance(NOWHERE, "1g.10gb", 0)
    with pytest.raises(CardLostError):
        hardware.destroy_instance(NOWHERE, "MIG-1")


def test_mig_is_turned_on_and_off(hardware: NodeHardware) -> None:
    address = divided(hardware)
    assert first(hardware).mig_enabled is True
    assert hardware.set_mig(address, enabled=True)
    assert hardware.set_mig(address, enabled=False)
    assert first(hardware).mig_enabled is False


def test_instances_are_made_and_taken_back(hardware: NodeHardware) -> None:
    address = divided(hardware)
    upper = hardware.create_instance(address, "3g.40gb", 4)
    lower = hardware.create_instance(address, "1g.10gb", 1)
    assert (upper.profile, upper.start, upper.size) == ("3g.40gb", 4, 4)
    assert upper.uuid.startswith("MIG-")
    assert upper.uuid != lower.uuid
    assert first(hardware).instances == (lower, upper)
    hardware.destroy_instance(address, upper.uuid)
    assert first(hardware).instances == (lower,)


def test_what_is_not_there_is_destroyed_already(hardware: NodeHardware) -> None:
    address = divided(hardware)
    made = hardware.create_instance(address, "1g.10gb", 0)
    hardware.destroy_instance(address, made.uuid)
    hardware.destroy_instance(address, made.uuid)
    assert first(hardware).instances == ()


def test_a_card_can_be_filled(hardware: NodeHardware) -> None:
    address = divided(hardware)
    made = [hardware.create_instance(address, "1g.10gb", start) for start in range(7)]
    assert first(hardware).instances == tuple(made)
    with pytest.raises(BusyError):
        hardware.create_instance(address, "1g.10gb", 6)


def test_a_place_that_is_taken_is_busy(hardware: NodeHardware) -> None:
    address = divided(hardware)
    made = hardware.create_instance(address, "2g.20gb", 2)
    with pytest.raises(BusyError):
        hardware.create_instance(address, "3g.40gb", 0)
    assert first(hardware).instances == (made,)


@pytest.mark.parametrize(("profile", "start"), [("1g.11gb", 0), ("3g.40gb", 1), ("7g.80gb", 8), ("MIG 1g.10gb", 0)])
def test_what_the_card_does_not_have_is_refused(hardware: NodeHardware, profile: str, start: int) -> None:
    address = divided(hardware)
    with pytest.raises(UnsupportedError):
        hardware.create_instance(address, profile, start)
    assert first(hardware).instances == ()


def test_a_card_without_mig_is_not_divided(hardware: NodeHardware) -> None:
    with pytest.raises(UnsupportedError):
        hardware.create_instance(first(hardware).address, "1g.10gb", 0)


def test_a_card_that_is_divided_keeps_its_mode(hardware: NodeHardware) -> None:
    address = divided(hardware)
    hardware.create_instance(address, "1g.10gb", 0)
    with pytest.raises(BusyError):
        hardware.set_mig(address, enabled=False)
    card = first(hardware)
    assert card.mig_enabled is True
    assert not card.mig_pending


def test_nobody_uses_a_new_machine(hardware: NodeHardware) -> None:
    assert hardware.users(first(hardware).address) == frozenset()


def test_a_card_in_use_keeps_its_mode(machine: Machine) -> None:
    if machine.use is None:
        pytest.skip("nobody can use what was recorded")
    address = first(machine.hardware).address
    machine.use(address, WHOLE_CARD)
    assert machine.hardware.users(address) == {WHOLE_CARD}
    with pytest.raises(BusyError):
        machine.hardware.set_mig(address, enabled=True)
    assert not first(machine.hardware).mig_pending


def test_an_instance_in_use_stays(machine: Machine) -> None:
    if machine.use is None:
        pytest.skip("nobody can use what was recorded")
    address = divided(machine.hardware)
    made = machine.hardware.create_instance(address, "2g.20gb", 0)
    idle = machine.hardware.create_instance(address, "2g.20gb", 2)
    machine.use(address, made.uuid)
    assert machine.hardware.users(address) == {made.uuid}
    with pytest.raises(BusyError):
        machine.hardware.destroy_instance(address, made.uuid)
    machine.hardware.destroy_instance(address, idle.uuid)
    assert first(machine.hardware).instances == (made,)


def test_a_lost_card_keeps_its_place(machine: Machine) -> None:
    if machine.lose is None:
        pytest.skip("no card of a recording is lost")
    before = machine.hardware.survey().cards
    machine.lose(before[0].address)
    lost, other = machine.hardware.survey().cards
    assert (lost.address, lost.pci_device, lost.pci_path) == (
        before[0].address,
        before[0].pci_device,
        before[0].pci_path,
    )
    assert lost.uuid is None
    assert other.uuid == before[1].uuid
    with pytest.raises(CardLostError):
        machine.hardware.readings(lost.address)
    with pytest.raises(CardLostError):
        machine.hardware.users(lost.address)
    machine.hardware.readings(other.address)


def test_without_a_driver_the_bus_is_seen(machine: Machine) -> None:
    if machine.unload is None:
        pytest.skip("the driver of a recording stays")
    before = machine.hardware.survey()
    machine.unload()
    after = machine.hardware.survey()
    assert after.driver_missing
    assert after.driver_version is None
    assert [card.address for card in after.cards] == [card.address for card in before.cards]
    assert {card.uuid for card in after.cards} == {None}
    with pytest.raises(DriverMissingError):
        machine.hardware.readings(after.cards[0].address)
    with pytest.raises(DriverMissingError):
        machine.hardware.wait_xid(SHORT_S)


def test_no_error_comes_of_well_cards(hardware: NodeHardware) -> None:
    hardware.survey()
    assert hardware.wait_xid(SHORT_S) is None


def test_errors_come_in_their_order(machine: Machine) -> None:
    if machine.xid is None:
        pytest.skip("no error comes of a recording")
    one, other = (card.address for card in machine.hardware.survey().cards)
    for address, number in ((one, 31), (other, 43), (one, 31)):
        machine.xid(address, number)
    came = [machine.hardware.wait_xid(SOON_S) for _ in range(3)]
    assert came == [Xid(one, 31), Xid(other, 43), Xid(one, 31)]
    assert machine.hardware.wait_xid(SHORT_S) is None


def test_closing_ends_a_wait(machine: Machine) -> None:
    machine.hardware.survey()
    waiting = threading.Thread(target=_wait, args=(machine.hardware,))
    waiting.start()
    machine.hardware.close()
    waiting.join(SOON_S)
    assert not waiting.is_alive()


def _wait(hardware: NodeHardware) -> None:
    try:
        hardware.wait_xid(3600.0)
    except Exception:  # noqa: BLE001 - how it ends is no matter here
        return


def test_a_recording_of_it_shows_the_same(hardware: NodeHardware) -> None:
    divided(hardware)
    made = record(hardware, anonymous=False)
    assert made.survey == hardware.survey()
    assert read_recording(write_recording(made)) == made


def test_the_real_hardware_is_surveyed(real: NodeHardware) -> None:
    check_survey(real)
    check_readings(real)


def test_the_real_hardware_can_be_recorded(real: NodeHardware) -> None:
    made = record(real, moments=2, anonymous=True)
    assert read_recording(write_recording(made)) == made


def test_the_real_hardware_waits_for_errors(real: NodeHardware) -> None:
    real.survey()
    assert real.wait_xid(SHORT_S) is None
