"""When a status may be written again."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuledger.edge.statuswriter.reconcile.decide import Action, Key, Kind
from gpuledger.edge.statuswriter.throttle.write_interval import WRITES_LOOKED_BACK, Pace

PAUSE_S = 0.2
SLICE, OTHER = Key(Kind.SLICE, "pool-1"), Key(Kind.SLICE, "pool-2")


class _Clock:
    now_s = 1000.0

    def __call__(self) -> float:
        return self.now_s

    def goes_on(self, by_s: float) -> None:
        self.now_s += by_s


def _write(pace: Pace, clock: _Clock, took_s: float, key: Key = SLICE) -> float:
    """Write as soon as one may; returns when the write showed."""
    clock.now_s = max(clock.now_s, pace.free_at_s(key, Action.STATUS))
    with pace.noted(key, Action.STATUS):
        clock.goes_on(took_s)
    return clock.now_s


def test_a_first_write_goes_at_once_and_the_next_shows_one_pause_later() -> None:
    clock = _Clock()
    pace = Pace(PAUSE_S, clock)
    assert pace.free_at_s(SLICE, Action.STATUS) <= clock.now_s
    shown = [_write(pace, clock, 0.008) for _ in range(3)]
    assert [round(later - earlier, 6) for earlier, later in pairwise(shown)] == [PAUSE_S, PAUSE_S]


def test_other_objects_and_other_writes_do_not_wait() -> None:
    clock = _Clock()
    pace = Pace(PAUSE_S, clock)
    device = Key(Kind.DEVICE, "pool-1")
    _write(pace, clock, 0.008)
    _write(pace, clock, 0.008, device)
    assert pace.free_at_s(SLICE, Action.STATUS) > clock.now_s
    assert pace.free_at_s(SLICE, Action.DELETE) == 0.0
    assert pace.free_at_s(OTHER, Action.STATUS) == pace.free_at_s(device, Action.STATUS) == 0.0


def test_a_failed_write_rests_too_and_pauses_that_are_over_are_forgotten() -> None:
    clock = _Clock()
    pace = Pace(PAUSE_S, clock)
    with pytest.raises(OSError, match="no"), pace.noted(SLICE, Action.STATUS):
        raise OSError("no")
    assert pace.free_at_s(SLICE, Action.STATUS) == clock.now_s + PAUSE_S
    clock.goes_on(PAUSE_S)
    _write(pace, clock, 0.0, OTHER)
    assert pace.free_at_s(SLICE, Action.STATUS) == 0.0


def test_a_fast_write_long_ago_is_forgotten() -> None:
    clock = _Clock()
    pace = Pace(PAUSE_S, clock)
    _write(pace, clock, 0.001)
    for _ in range(WRITES_LOOKED_BACK):
        last_s = _write(pace, clock, 0.05)
    assert round(pace.free_at_s(SLICE, Action.STATUS) - last_s, 6) == round(PAUSE_S - 0.05, 6)


@given(st.lists(st.floats(0.001, 1.0), min_size=2, max_size=40))
def test_writes_never_start_within_a_pause_of_each_other(took: list[float]) -> None:
    clock = _Clock()
    pace = Pace(PAUSE_S, clock)
    started, shown = [], []
    for took_s in took:
        shown.append(_write(pace, clock, took_s))
        started.append(shown[-1] - took_s)
    for times, at_least in ((started, PAUSE_S), (shown, PAUSE_S - max(took) + min(took))):
        gaps = [later - earlier for earlier, later in pairwise(times)]
        assert min(gaps) >= at_least - 1e-9
