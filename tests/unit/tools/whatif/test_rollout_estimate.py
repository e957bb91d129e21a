"""What a rollout takes and disturbs, by its order, its budget, and how long allocations last."""

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuledger.tools.whatif.rollout_estimate import SAMPLES_MIN, PastLengths, Step, StepLengths, estimate
from support.events import hour

LENGTHS = StepLengths(drain_s=1200, apply_s=600)
NOTHING = PastLengths([])
HOURS = PastLengths([float(3600 * number) for number in range(1, SAMPLES_MIN + 1)])
BUSY = Step("busy", True, (hour(0), hour(1)))
IDLE = [Step(f"idle-{number}", True, ()) for number in range(3)]


def test_nodes_go_as_the_budget_has_places() -> None:
    assert estimate(IDLE, 1, LENGTHS, NOTHING, hour(2)).took_s == 3 * 1800
    assert estimate(IDLE, 2, LENGTHS, NOTHING, hour(2)).took_s == 2 * 1800
    assert estimate(IDLE, 9, LENGTHS, NOTHING, hour(2)).took_s == 1800
    assert estimate(IDLE, 2, LENGTHS, NOTHING, hour(2)).node_hours == pytest.approx(1.5)


def test_a_node_that_is_not_drained_only_applies_and_a_reboot_adds_to_it() -> None:
    new = [IDLE[0]._replace(is_drained=False)]
    assert estimate(new, 1, LENGTHS, NOTHING, hour(2)).took_s == 600
    assert estimate(new, 1, LENGTHS._replace(reboot_s=300), NOTHING, hour(2)).took_s == 900


def test_without_a_past_what_is_held_stays_held() -> None:
    found = estimate([BUSY], 1, LENGTHS, NOTHING, hour(3))
    assert (found.devices, found.busy_nodes) == (2, 1)
    assert found.interrupted_gpu_h == pytest.approx(3 + 2)
    assert found.disturbed_gpu_h == pytest.approx(2 * 0.5)


def test_idle_nodes_first_leave_the_busy_one_time_to_become_free() -> None:
    now = hour(3)
    last = estimate([*IDLE, BUSY], 1, LENGTHS, HOURS, now)
    first = estimate([BUSY, *IDLE], 1, LENGTHS, HOURS, now)
    assert last.took_s == first.took_s
    assert last.devices < first.devices == 2
    assert last.disturbed_gpu_h < first.disturbed_gpu_h


def test_what_lasts_longer_than_everything_that_ended_is_assumed_to_stay() -> None:
    assert HOURS.stays(100 * 3600, 3600) == 1
    assert HOURS.stays(0, 0) == 1
    assert HOURS.stays(0, 10 * 3600) == pytest.approx(0.5)
    assert PastLengths([1.0] * (SAMPLES_MIN - 1)).stays(0, 10) == 1


@given(
    held=st.lists(st.lists(st.floats(0, 100), max_size=4), min_size=1, max_size=8),
    at_once=st.integers(1, 4),
    lengths=st.lists(st.floats(0, 10**6), max_size=60),
)
def test_it_is_never_more_than_what_is_held(held: list[list[float]], at_once: int, lengths: list[float]) -> None:
    now = hour(100)
    steps = [Step(str(at), True, [now - timedelta(hours=age) for age in ages]) for at, ages in enumerate(held)]
    found = estimate(steps, at_once, LENGTHS, PastLengths(lengths), now)
    assert 0 <= found.devices <= sum(map(len, held)) + 1e-9
    assert found.busy_nodes <= found.devices + 1e-9
    assert found.disturbed_gpu_h == pytest.approx(found.devices * 0.5)
    assert found.took_s == pytest.approx(-(-len(held) // at_once) * 1800)
