"""Faults of simulated hardware: how they are written, what they do, and how they end."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager, suppress
from threading import Thread

import pytest

from gpuledger.agent.hardware.api import CardFacts, NodeHardware, Readings, Xid
from gpuledger.agent.hardware.errors import CardLostError, DriverMissingError, HardwareError
from gpuledger.agent.hardware.nvml_health import RECOVERY_ACTIONS, THROTTLE_REASONS
from gpuledger.agent.hardware.simulated import XIDS_MAX, SimulatedHardware
from gpuledger.agent.hardware.simulated_faults import FAULTS, InjectedFault, InjectedFaultError, parse_fault

FIRST = "0000:17:00.0"
LONG_S = 30.0
"""Far longer than anything here takes."""


def _card(hardware: NodeHardware) -> CardFacts:
    return next(card for card in hardware.survey().cards if card.address == FIRST)


@contextmanager
def _running(thread: Thread) -> Iterator[None]:
    thread.start()
    yield
    thread.join(LONG_S)
    assert not thread.is_alive()


WELL = Readings(
    *(0, 0, 0, 0),
    remap_pending=False,
    remap_failed=False,
    nvlink_errors=0,
    sram_uncorrected_volatile=0,
    sram_threshold_exceeded=False,
)


@pytest.mark.parametrize(
    ("fault", "readings"),
    [
        ("ecc-corrected", WELL._replace(ecc_corrected_volatile=1, ecc_corrected_aggregate=1)),
        ("ecc-uncorrected", WELL._replace(ecc_uncorrected_volatile=1, ecc_uncorrected_aggregate=1)),
        (
            "sram-threshold",
            WELL._replace(
                ecc_uncorrected_volatile=1,
                ecc_uncorrected_aggregate=1,
                sram_uncorrected_volatile=1,
                sram_threshold_exceeded=True,
            ),
        ),
        ("row-remap-pending", WELL._replace(remap_pending=True, recovery="GpuReset")),
        ("row-remap-failed", WELL._replace(remap_failed=True)),
        ("thermal", WELL._replace(throttled=frozenset({"HwSlowdown", "HwThermalSlowdown"}))),
        ("power-brake", WELL._replace(throttled=frozenset({"HwSlowdown", "HwPowerBrakeSlowdown"}))),
        ("nvlink-down", WELL._replace(nvlinks_down=(0,))),
        ("nvlink-errors", WELL._replace(nvlink_errors=1)),
        ("xid:31", WELL),
        ("xid:48", WELL._replace(ecc_uncorrected_volatile=1, ecc_uncorrected_aggregate=1)),
        ("xid:63", WELL._replace(remap_pending=True, recovery="GpuReset")),
        ("xid:64", WELL._replace(remap_failed=True)),
        ("xid:74", WELL._replace(nvlink_errors=1)),
        ("xid:94", WELL._replace(ecc_uncorrected_volatile=1, ecc_uncorrected_aggregate=1)),
    ],
)
def test_a_fault_shows_in_readings_until_the_card_is_reset(fault: str, readings: Readings) -> None:
    hardware = SimulatedHardware("2xH100")
    assert hardware.readings(FIRST) == WELL
    hardware.inject(fault)
    assert hardware.readings(FIRST) == readings
    assert hardware.readings("0000:18:00.0") == WELL
    hardware.inject("recover")
    after = hardware.readings(FIRST)
    assert after == WELL._replace(
        ecc_corrected_aggregate=readings.ecc_corrected_aggregate,
        ecc_uncorrected_aggregate=readings.ecc_uncorrected_aggregate,
    )


def test_a_link_that_is_down_is_not_among_the_links() -> None:
    hardware = SimulatedHardware("8xH100")
    before = _card(hardware).nvlinks
    hardware.inject("nvlink-down")
    assert _card(hardware).nvlinks == before[1:]


@pytest.mark.parametrize("fault", ["off-bus", "xid:79"])
def test_a_card_off_the_bus_is_only_a_slot_with_something_in_it(fault: str) -> None:
    hardware = SimulatedHardware("2xH100")
    whole = _card(hardware)
    hardware.inject(fault)
    lost, other = hardware.survey().cards
    assert (lost.uuid, lost.product, lost.memory_mib, lost.mig_enabled, lost.profiles) == (None, None, None, None, ())
    assert lost.address == whole.address
    assert (lost.pci_device, lost.numa_node, lost.pci_path) == (whole.pci_device, whole.numa_node, whole.pci_path)
    assert other.uuid is not None
    for call in (
        lambda: hardware.readings(FIRST),
        lambda: hardware.users(FIRST),
        lambda: hardware.set_mig(FIRST, enabled=True),
        lambda: hardware.create_instance(FIRST, "1g.10gb", 0),
        lambda: hardware.destroy_instance(FIRST, "MIG-1"),
    ):
        with pytest.raises(CardLostError, match="fallen off the bus"):
            call()
    hardware.inject(f"recover@{FIRST}")
    assert _card(hardware) == whole


def test_a_card_that_is_not_there_is_lost() -> None:
    with pytest.raises(CardLostError, match=FIRST):
        SimulatedHardware("1xH100").readings("0000:ff:00.0")


def test_without_a_driver_only_the_bus_is_seen() -> None:
    hardware = SimulatedHardware("2xH100")
    hardware.inject("driver-missing")
    survey = hardware.survey()
    assert (survey.driver_missing, survey.driver_version, survey.cuda_version) == (True, None, None)
    assert {card.uuid for card in survey.cards} == {None}
    for call in (lambda: hardware.readings(FIRST), lambda: hardware.wait_xid(0), lambda: hardware.users(FIRST)):
        with pytest.raises(DriverMissingError):
            call()
    hardware.inject("recover")
    assert hardware.survey().driver_version is not None


def test_errors_come_in_their_order_and_stay_until_they_are_read() -> None:
    hardware = SimulatedHardware("2xH100")
    for fault in ("xid:31", "xid:13@1", "xid:79"):
        hardware.inject(fault)
    hardware.inject("recover")
    assert [hardware.wait_xid(0) for _ in range(4)] == [
        Xid(FIRST, 31),
        Xid("0000:18:00.0", 13),
        Xid(FIRST, 79),
        None,
    ]


def test_of_too_many_errors_the_oldest_go() -> None:
    hardware = SimulatedHardware("1xH100")
    hardware.inject("xid:31")
    for _ in range(XIDS_MAX):
        hardware.inject("xid:13")
    assert hardware.wait_xid(0) == Xid(FIRST, 13)


def test_who_waits_for_an_error_is_woken_by_it() -> None:
    hardware = SimulatedHardware("1xH100")
    got: list[Xid | None] = []
    with _running(Thread(target=lambda: got.append(hardware.wait_xid(LONG_S)))):
        hardware.inject("xid:31")
    assert got == [Xid(FIRST, 31)]


def test_who_waits_for_an_error_is_woken_by_the_end() -> None:
    hardware = SimulatedHardware("1xH100")
    got: list[Xid | None] = []

    def wait() -> None:
        with suppress(HardwareError):  # it may be closed before anybody waits
            got.append(hardware.wait_xid(LONG_S))

    with _running(Thread(target=wait)):
        hardware.close()
    assert set(got) <= {None}
    with pytest.raises(HardwareError, match="closed"):
        hardware.wait_xid(LONG_S)


def test_calls_hang_until_the_driver_answers_again_and_errors_are_reported_all_the_same() -> None:
    with ThreadPoolExecutor() as threads, closing(SimulatedHardware("1xH100")) as hardware:
        hardware.inject("hang")
        hanging = [threads.submit(hardware.users, FIRST) for _ in range(2)]
        hardware.inject("xid:119")
        assert hardware.wait_xid(LONG_S) == Xid(FIRST, 119)
        assert not any(call.done() for call in hanging)
        hardware.inject("recover")
        assert [call.result(LONG_S) for call in hanging] == [frozenset()] * 2


def test_calls_that_hang_end_when_the_hardware_is_closed() -> None:
    with ThreadPoolExecutor() as threads, closing(SimulatedHardware("1xH100")) as hardware:
        hardware.inject("hang")
        hanging = threads.submit(hardware.readings, FIRST)
        hardware.close()
        with pytest.raises(HardwareError, match="closed"):
            hanging.result(LONG_S)


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("xid:79@0000:17:00.0", InjectedFault("xid", 79, FIRST)),
        (" XID:31 ", InjectedFault("xid", 31)),
        ("thermal@0", InjectedFault("thermal", None, "0")),
        ("hang", InjectedFault("hang")),
        ("recover@GPU-1", InjectedFault("recover", None, "GPU-1")),
    ],
)
def test_a_fault_is_read(text: str, fault: InjectedFault) -> None:
    assert parse_fault(text) == fault


@pytest.mark.parametrize("text", ["", "fire", "xid", "xid:", "xid:0", "xid:1024", "xid:NUMBER", "xid:-1", "xid:99999"])
def test_an_unknown_fault_lists_the_faults(text: str) -> None:
    with pytest.raises(InjectedFaultError, match="off-bus"):
        SimulatedHardware("1xH100").inject(text)


@pytest.mark.parametrize("target", ["2", "-1", "", "0000:18:00.1", "GPU-1"])
def test_an_unknown_card_lists_the_cards(target: str) -> None:
    with pytest.raises(InjectedFaultError, match=r"0 is 0000:17:00\.0, 1 is 0000:18:00\.0"):
        SimulatedHardware("2xH100").inject(f"thermal@{target}")


@pytest.mark.parametrize("fault", ["hang", "driver-missing"])
def test_what_befalls_a_node_takes_no_card(fault: str) -> None:
    with pytest.raises(InjectedFaultError, match="whole node"):
        SimulatedHardware("1xH100").inject(f"{fault}@0")


@pytest.mark.parametrize(
    "fault", ["nvlink-down", "nvlink-errors", "row-remap-pending", "row-remap-failed", "sram-threshold"]
)
def test_a_card_cannot_have_a_fault_of_a_part_that_it_has_not(fault: str) -> None:
    hardware = SimulatedHardware("1xT4")
    with pytest.raises(InjectedFaultError, match="The card"):
        hardware.inject(fault)
    hardware.inject("xid:63")
    assert hardware.readings(FIRST).remap_pending is None


def test_a_card_is_named_by_number_address_or_uuid() -> None:
    hardware = SimulatedHardware("2xH100")
    second = hardware.survey().cards[1]
    for target in ("1", second.address.upper(), second.uuid):
        hardware.inject(f"xid:31@{target}")
        assert hardware.wait_xid(0) == Xid(second.address, 31)


@pytest.mark.parametrize("fault", [name.replace("NUMBER", "31") for name in FAULTS])
def test_every_fault_that_is_listed_can_be_had_and_is_reported(fault: str) -> None:
    sentence = SimulatedHardware("2xH100").inject(fault)
    assert sentence.startswith(fault)
    assert sentence.endswith(".")


def test_readings_have_the_messages_of_the_real_driver() -> None:
    hardware = SimulatedHardware("1xH100")
    for fault in ("thermal", "power-brake", "row-remap-pending"):
        hardware.inject(fault)
    readings = hardware.readings(FIRST)
    assert readings.throttled <= set(THROTTLE_REASONS)
    assert readings.recovery in RECOVERY_ACTIONS.values()


def test_errors_of_a_card_whose_driver_refuses_to_report_them_do_not_come() -> None:
    hardware = SimulatedHardware("2xH100")
    assert hardware.unregistered() == {}
    hardware.inject("events-refused")
    assert {address: why.reason for address, why in hardware.unregistered().items()} == {FIRST: "Refused"}
    assert "refuses" in hardware.inject("xid:31@0")
    hardware.inject("xid:43@1")
    assert hardware.wait_xid(0.0) == Xid("0000:18:00.0", 43)
    hardware.inject("recover")
    assert hardware.unregistered() == {}
    hardware.inject("xid:31@0")
    assert hardware.wait_xid(0.0) == Xid(FIRST, 31)
