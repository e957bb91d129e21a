"""What becomes of a node's devices: when cards fail and recover, and when pools have them."""

import pytest

from gpuledger.events.device import DeviceHealthChanged, DeviceIdentified
from gpuledger.events.payload import CUT, TEXT_LENGTH_MAX, Payload
from gpuledger.events.settings import SettingsChanged
from support.bootstrap import (
    MODULE,
    NODE,
    Prepared,
    all_ready,
    assigned,
    described,
    detected,
    heartbeat,
    inventory,
    prepared,
    ready,
    steps,
)

DRIVER_FAILS = "failing:driver-validation"
UNFIT = DeviceHealthChanged(healthy=False, kind="XID 79", message="The GPU has fallen off the bus.")
FIT = DeviceHealthChanged(healthy=True)
AGAIN = [(NODE, "Validating"), ("d1", "Validating"), (NODE, "Ready"), ("d1", "Ready")]


def beat(node: Prepared, *times: float) -> None:
    for time in times:
        node.record(time, NODE, heartbeat())


@pytest.mark.parametrize(("phase", "state"), [("Pending", "Faulted"), ("Assigned", "Ready"), ("Unassigning", "Ready")])
def test_what_a_pool_has_keeps_its_state_when_the_infrastructure_fails(phase: str, state: str) -> None:
    node = ready("d1", "d2")
    node.record(9, "d1", assigned(phase))  # type: ignore[arg-type]
    node.record(10, NODE, heartbeat(fresh=False))
    assert (node.device("d1")[0], node.device("d2")[0]) == (state, "Faulted")
    assert node.device("d2") == ("Faulted", "InfrastructureDegraded")


@pytest.mark.parametrize("phase", ["Assigned", "Unassigning"])
def test_what_a_pool_has_on_a_disabled_node_keeps_its_state_until_it_is_given_back(phase: str) -> None:
    node = ready("d1", "d2")
    node.record(9, "d1", assigned(phase))  # type: ignore[arg-type]
    node.record(10, NODE, inventory(managed=False))
    assert (node.device("d1")[0], node.device("d2")) == ("Ready", ("Discovered", "ManagedDisabled"))
    node.record(11, "d1", assigned(None))
    assert node.device("d1") == ("Discovered", "ManagedDisabled")


def test_a_card_that_failed_needs_heartbeats_after_it_is_fit_again() -> None:
    node = ready("d1")
    node.record(10, "GPU-d1", UNFIT)
    assert node.device("d1") == ("Faulted", "HardwareFault")
    assert node.state.state.rows["d1"].message == "XID 79: The GPU has fallen off the bus."
    assert node.conditions()["ReadyForPooling"] == ("False", "DevicesNotReady")
    assert node.phase() == "Ready"
    node.record(20, "GPU-d1", FIT)
    beat(node, 21, 22, 23, 24)
    assert node.device("d1") == ("Faulted", "Recovering")
    assert steps(node.record(25, NODE, heartbeat())) == [(NODE, "Ready"), ("d1", "Validating"), ("d1", "Ready")]
    node.record(26, NODE, heartbeat(fresh=False))
    assert node.device("d1") == ("Faulted", "InfrastructureDegraded")


@pytest.mark.parametrize(
    ("subject", "harm", "cure"),
    [
        ("GPU-d1", UNFIT, FIT),
        ("d1", described(missing=True), described()),
        ("d1", described(ignored=True), described()),
    ],
)
def test_a_card_that_no_pool_can_use_keeps_no_other_one_out(subject: str, harm: Payload, cure: Payload) -> None:
    node = ready("d1", "d2")
    before = node.conditions()
    node.record(10, subject, harm)
    assert node.conditions() == before
    assert before["ReadyForPooling"] == ("True", "ReadyForPooling")
    assert node.device("d2") == ("Ready", "Validated")
    node.record(11, "GPU-d2", UNFIT)
    assert node.conditions()["ReadyForPooling"] == ("False", "DevicesNotReady")
    node.record(12, subject, cure)
    beat(node, 13, 14, 15, 16, 17)
    assert node.conditions()["ReadyForPooling"] == ("True", "ReadyForPooling")


def test_a_card_that_is_ignored_from_its_detection_on_makes_no_node_ready_for_pooling() -> None:
    node = prepared(facts=all_ready())
    node.record(6, "d1", detected("GPU-d1", ignored=True))
    assert node.conditions()["ReadyForPooling"] == ("False", "DevicesNotReady")


def test_a_fault_whose_kind_and_message_are_as_long_as_may_be_is_cut_and_decided_once() -> None:
    node = ready("d1")
    longest = DeviceHealthChanged(healthy=False, kind="XID 79", message="m" * TEXT_LENGTH_MAX)
    node.record(10, "GPU-d1", longest)
    message = node.state.state.rows["d1"].message
    assert (message[:9], message[-2:], len(message)) == ("XID 79: m", f"m{CUT}", TEXT_LENGTH_MAX)
    assert node.record(11, "GPU-d1", longest) == []


def test_a_card_that_was_missed_needs_heartbeats_after_it_is_seen_again() -> None:
    node = ready("d1")
    node.record(10, "d1", described(missing=True))
    assert node.device("d1") == ("Faulted", "NotObserved")
    node.record(20, "d1", described())
    assert node.device("d1") == ("Faulted", "Recovering")
    beat(node, 21, 22, 23, 24, 25)
    assert node.device("d1") == ("Ready", "Validated")


def test_a_recovered_card_waits_for_its_node() -> None:
    node = ready("d1")
    node.record(10, "GPU-d1", UNFIT)
    node.record(11, NODE, all_ready(validator=DRIVER_FAILS))
    node.record(20, "GPU-d1", FIT)
    beat(node, 21, 22, 23, 24, 25)
    assert node.device("d1") == ("Faulted", "InfrastructureDegraded")
    assert steps(node.record(30, NODE, all_ready())) == AGAIN


def test_a_failed_card_that_a_pool_has_is_faulted_until_the_pool_waits_for_it() -> None:
    node = ready("d1")
    node.record(9, "d1", assigned("Assigned"))
    node.record(10, "GPU-d1", UNFIT)
    node.record(11, "GPU-d1", FIT)
    beat(node, 12, 13, 14, 15, 16)
    assert (node.device("d1")[0], node.shown("d1")) == ("Faulted", "Faulted")
    assert steps(node.record(20, "d1", assigned("Pending"))) == [(NODE, "Ready"), ("d1", "Validating"), ("d1", "Ready")]
    assert node.shown("d1") == "PendingAssignment"


def test_without_an_exporter_of_ours_no_heartbeat_is_waited_for_after_a_fault() -> None:
    node = ready("d1")
    node.record(9, MODULE, SettingsChanged(dcgm_exporter_enabled=False))
    node.record(10, "GPU-d1", UNFIT)
    node.record(20, "GPU-d1", FIT)
    assert node.device("d1") == ("Ready", "Validated")


def test_a_provisional_device_cannot_be_missed() -> None:
    node = prepared(facts=all_ready())
    node.record(6, "d1", detected("w1/10de:2203#1", provisional=True, index=0))
    node.record(7, "d1", described(missing=True))
    assert node.device("d1") == ("Ready", "Validated")
    node.record(8, "d1", DeviceIdentified(card="GPU-1"))
    assert node.device("d1") == ("Faulted", "NotObserved")


def test_health_is_reported_by_the_place_of_a_card_too() -> None:
    node = prepared(facts=all_ready())
    node.record(6, "d1", detected("GPU-1", address="0000:17:00.0"))
    node.record(7, "w1/0000:17:00.0", UNFIT)
    assert node.device("d1") == ("Faulted", "HardwareFault")
    node.record(8, "d1", described(address="0000:18:00.0"))
    assert node.device("d1") == ("Ready", "Validated")
