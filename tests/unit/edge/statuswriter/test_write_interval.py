"""When a status may be written again."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuledger.edge.statuswriter.cache.objects import ObjectCache
from gpuledger.edge.statuswriter.objects import Key, Kind
from gpuledger.edge.statuswriter.reconcile.decide import Action
from gpuledger.edge.statuswriter.throttle.write_interval import WRITES_TIMED, Pacing, WriteInterval

PAUSE_S = 0.2
ALWAYS = Pacing(PAUSE_S, per_s=1.0, burst=1)
"""Every write uses up the burst, so the pause always has its full length."""

ADAPTING = Pacing(PAUSE_S, per_s=100.0, burst=250)
SLICE, OTHER = Key(Kind.SLICE, "pool-1"), Key(Kind.SLICE, "pool-2")


class _Clock:
    now_s = 1000.0

    def __call__(self) -> float:
        return self.now_s

    def goes_on(self, by_s: float) -> None:
        self.now_s += by_s


def _write(interval: WriteInterval, clock: _Clock, took_s: float, key: Key = SLICE) -> float:
    """Write as soon as one may; returns when the write showed."""
    clock.now_s = max(clock.now_s, interval.writable_at_s(key, Action.STATUS))
    with interval.timed(key, Action.STATUS):
        clock.goes_on(took_s)
    return clock.now_s


def test_a_first_write_goes_at_once_and_the_next_shows_one_pause_later() -> None:
    clock = _Clock()
    interval = WriteInterval(ALWAYS, ObjectCache(), clock)
    assert interval.writable_at_s(SLICE, Action.STATUS) <= clock.now_s
    shown = [_write(interval, clock, 0.008) for _ in range(3)]
    assert [round(later - earlier, 6) for earlier, later in pairwise(shown)] == [PAUSE_S, PAUSE_S]


def test_other_objects_and_other_writes_do_not_wait() -> None:
    clock = _Clock()
    interval = WriteInterval(ALWAYS, ObjectCache(), clock)
    device = Key(Kind.DEVICE, "pool-1")
    _write(interval, clock, 0.008)
    _write(interval, clock, 0.008, device)
    assert interval.writable_at_s(SLICE, Action.STATUS) > clock.now_s
    assert interval.writable_at_s(SLICE, Action.DELETE) == 0.0
    assert interval.writable_at_s(OTHER, Action.STATUS) == interval.writable_at_s(device, Action.STATUS) == 0.0


def test_a_failed_write_is_followed_by_a_pause_too() -> None:
    clock = _Clock()
    interval = WriteInterval(ALWAYS, ObjectCache(), clock)
    with pytest.raises(OSError, match="no"), interval.timed(SLICE, Action.STATUS):
        raise OSError("no")
    assert interval.writable_at_s(SLICE, Action.STATUS) == clock.now_s + PAUSE_S


def test_a_fast_write_long_ago_is_forgotten() -> None:
    clock = _Clock()
    interval = WriteInterval(ALWAYS, ObjectCache(), clock)
    _write(interval, clock, 0.001)
    for _ in range(WRITES_TIMED):
        last_s = _write(interval, clock, 0.05)
    assert round(interval.writable_at_s(SLICE, Action.STATUS) - last_s, 6) == round(PAUSE_S - 0.05, 6)


@given(st.lists(st.floats(0.001, 1.0), min_size=2, max_size=40))
def test_writes_never_start_within_a_pause_of_each_other(took: list[float]) -> None:
    clock = _Clock()
    interval = WriteInterval(ALWAYS, ObjectCache(), clock)
    started, shown = [], []
    for took_s in took:
        shown.append(_write(interval, clock, took_s))
        started.append(shown[-1] - took_s)
    for times, at_least in ((started, PAUSE_S), (shown, PAUSE_S - max(took) + min(took))):
        gaps = [later - earlier for earlier, later in pairwise(times)]
        assert min(gaps) >= at_least - 1e-9


def test_writes_that_the_rate_allows_wait_for_next_to_nothing() -> None:
    clock = _Clock()
    interval = WriteInterval(ADAPTING, ObjectCache(), clock)
    for _ in range(1000):
        clock.goes_on(1 / ADAPTING.per_s)
        _write(interval, clock, 0.0)
        assert interval.writable_at_s(SLICE, Action.STATUS) - clock.now_s <= 2 * PAUSE_S / ADAPTING.burst


def test_a_burst_of_other_objects_makes_the_pause_long_and_it_gets_short_again() -> None:
    clock = _Clock()
    interval = WriteInterval(ADAPTING, ObjectCache(), clock)
    for number in range(ADAPTING.burst):
        _write(interval, clock, 0.0, Key(Kind.SLICE, f"pool-{number}"))
    _write(interval, clock, 0.0)
    assert interval.writable_at_s(SLICE, Action.STATUS) == pytest.approx(clock.now_s + PAUSE_S)
    clock.goes_on(ADAPTING.burst / ADAPTING.per_s)
    _write(interval, clock, 0.0)
    assert interval.writable_at_s(SLICE, Action.STATUS) == pytest.approx(clock.now_s + PAUSE_S / ADAPTING.burst)


@given(st.lists(st.floats(0.0, 0.05), min_size=1, max_size=60), st.integers(1, 20), st.floats(1.0, 200.0))
def test_one_object_that_always_changes_is_bounded_by_burst_and_pause(
    took: list[float], burst: int, per_s: float
) -> None:
    clock = _Clock()
    interval = WriteInterval(Pacing(PAUSE_S, per_s, burst), ObjectCache(), clock)
    began_s = clock.now_s
    for took_s in took:
        _write(interval, clock, took_s)
    elapsed_s = clock.now_s - began_s
    assert len(took) <= burst + 1 + elapsed_s * per_s + elapsed_s / (PAUSE_S - max(took) + min(took))
