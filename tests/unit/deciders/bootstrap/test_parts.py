"""The parts of the preparation by themselves: streaks, waits, and the ways between phases and states."""

import pytest

from gpuledger.api.phases import DeviceState, PreparationPhase
from gpuledger.deciders.bootstrap.decide import phases_to
from gpuledger.deciders.bootstrap.device_states import READY, VALIDATING, TargetState, is_usable, states_to
from gpuledger.domain.bootstrap.facts import BootstrapDevice, Streak, Timeouts, extend_streak
from gpuledger.events.node import ComponentPod, NodeComponentsObserved
from support.bootstrap import prepared, second

DISABLED, BEGUN, GFD = PreparationPhase.DISABLED, PreparationPhase.VALIDATING, PreparationPhase.GFD
MONITORING, DONE, FAILED = PreparationPhase.MONITORING, PreparationPhase.READY, PreparationPhase.VALIDATING_FAILED

WAYS = [
    (None, False, DISABLED, [DISABLED]),
    (None, False, BEGUN, [BEGUN]),
    (None, False, DONE, [BEGUN, DONE]),
    (None, False, FAILED, [BEGUN, FAILED]),
    (DISABLED, False, DISABLED, [DISABLED]),
    (DISABLED, False, MONITORING, [BEGUN, MONITORING]),
    (BEGUN, True, GFD, [GFD]),
    (BEGUN, True, DONE, [DONE]),
    (GFD, False, BEGUN, [BEGUN]),
    (MONITORING, True, MONITORING, [MONITORING]),
    (MONITORING, False, FAILED, [FAILED]),
    (DONE, False, DONE, [DONE]),
    (DONE, True, DONE, [BEGUN, DONE]),
    (DONE, True, FAILED, [FAILED]),
    (DONE, True, DISABLED, [DISABLED]),
    (DONE, False, GFD, [BEGUN, GFD]),
    (FAILED, True, FAILED, [FAILED]),
    (FAILED, False, BEGUN, [BEGUN]),
    (FAILED, False, GFD, [BEGUN, GFD]),
    (FAILED, False, DONE, [BEGUN, DONE]),
    (FAILED, False, DISABLED, [DISABLED]),
]


@pytest.mark.parametrize(("current", "has_new_device", "desired", "way"), WAYS)
def test_way(
    current: PreparationPhase | None, has_new_device: bool, desired: PreparationPhase, way: list[PreparationPhase]
) -> None:
    assert phases_to(desired, current, has_new_device=has_new_device) == way


NEW, FAULTED, OTHERWISE = TargetState("Discovered", ""), TargetState("Faulted", "a"), TargetState("Faulted", "b")
BETWEEN = [
    (NEW, VALIDATING, [VALIDATING]),
    (NEW, READY, [VALIDATING, READY]),
    (NEW, FAULTED, [VALIDATING, FAULTED]),
    (VALIDATING, VALIDATING, []),
    (VALIDATING, READY, [READY]),
    (VALIDATING, FAULTED, [FAULTED]),
    (READY, FAULTED, [FAULTED]),
    (READY, VALIDATING, [VALIDATING]),
    (READY, NEW, [NEW]),
    (FAULTED, READY, [VALIDATING, READY]),
    (FAULTED, VALIDATING, [VALIDATING]),
    (FAULTED, OTHERWISE, [OTHERWISE]),
    (FAULTED, NEW, [NEW]),
]


@pytest.mark.parametrize(("current", "desired", "states"), BETWEEN)
def test_states_between(current: TargetState, desired: TargetState, states: list[TargetState]) -> None:
    assert states_to(current, desired) == states


STREAKS: list[tuple[list[tuple[bool, int]], Streak]] = [
    ([(True, 1)], Streak(True, second(1), second(1), None)),
    ([(True, 1), (True, 3)], Streak(True, second(1), second(3), None)),
    ([(True, 1), (False, 3)], Streak(False, second(3), second(3), second(1))),
    ([(True, 3), (True, 1)], Streak(True, second(1), second(3), None)),
    ([(True, 3), (False, 1)], Streak(True, second(3), second(3), second(1))),
    ([(True, 1), (True, 5), (False, 3)], Streak(True, second(5), second(5), second(3))),
    ([(False, 3), (True, 5), (True, 1)], Streak(True, second(5), second(5), second(3))),
    ([(True, 2), (False, 2)], Streak(False, second(2), second(2), second(2))),
]


@pytest.mark.parametrize(("reports", "streak"), STREAKS)
def test_streak(reports: list[tuple[bool, int]], streak: Streak) -> None:
    current: Streak | None = None
    for holds, at in reports:
        current = extend_streak(current, holds, second(at))
    assert current == streak


@pytest.mark.parametrize(("holds", "lost_at"), [(True, 1), (False, 5)])
def test_when_a_streak_was_lost(holds: bool, lost_at: int) -> None:
    assert Streak(holds, second(3), second(5), second(1)).lost_at == second(lost_at)


def test_waits_are_over_in_their_order_and_once() -> None:
    waits = Timeouts()
    for node, at in (("w3", 3), ("w1", 1), ("w2", 2), ("w9", 9)):
        waits.track("validator", second(at), node)
    assert [wait.node for wait in waits.expired("validator", second(3), 2)] == ["w1", "w2"]
    assert [wait.node for wait in waits.expired("validator", second(3), 2)] == ["w3"]
    assert list(waits.expired("validator", second(3), 2)) == []
    assert list(waits.expired("node-agent", second(9), 2)) == []


def test_a_wait_that_ended_or_began_anew_is_passed_over() -> None:
    waits = Timeouts()
    waits.track("validator", second(1), "w1")
    waits.track("validator", second(1), "w2")
    waits.track("validator", None, "w1")
    waits.track("validator", second(5), "w2")
    assert list(waits.expired("validator", second(4), 10)) == []
    assert [wait.node for wait in waits.expired("validator", second(5), 10)] == ["w2"]


@pytest.mark.parametrize("name", ["a", "z"])
def test_a_validators_pod_that_was_evicted_at_its_last_step_hides_no_other(name: str) -> None:
    evicted = ComponentPod(
        component="validator", pod="m", ready=False, failing=True, step="plugin-validation", reason="Evicted"
    )
    other = ComponentPod(component="validator", pod=name, ready=False, failing=True, step="driver-validation")
    node = prepared("d1", facts=NodeComponentsObserved(pods=(evicted, other)), heartbeat_count=0)
    assert node.conditions()["DriverMissing"] == ("True", "DriverValidationFailed")


@pytest.mark.parametrize("state", [phase.value for phase in DeviceState])
@pytest.mark.parametrize("missing", [False, True])
@pytest.mark.parametrize("ignored", [False, True])
def test_a_pool_may_take_a_ready_card_that_is_there_and_not_ignored(state: str, missing: bool, ignored: bool) -> None:
    device = BootstrapDevice("d", "w1", "GPU-1", None, False, missing, None, None, ignored)
    assert is_usable(device, state) == ((state, missing, ignored) == ("Ready", False, False))
