"""The times of a node's events, which never go back, whatever happens to the node's clock. Pure but for `Times`.

An event has the time of its fact, or just after the event before it where that is later: readers that count events by
time must be able to tell them apart. There is one exception. A clock that was years ahead would hold all later events
at its own time for years; so a time more than `CLOCK_AHEAD_MAX_S` ahead of the clock does not count, neither a fact's
nor that of the last event, after which times go back once, to the clock. A clock that was ahead by less, such as one
that showed local time, is caught up with. A clock before `CLOCK_FIRST` is itself wrong: nothing has set it since the
node booted, and events dated by it would lie behind everything that was recorded before.
"""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Final

from gpuledger.events.publishing import EVENT_AHEAD_MAX
from gpuledger.runtime.clock import Clock, Instant

CLOCK_JUMP_S: Final = 5.0
"""A wall clock that departs from the monotonic clock by more than this was set; less is slewing."""

JUST_AFTER: Final = timedelta(microseconds=1)
"""How much later than the event before it an event is dated that the clock would date earlier."""

CLOCK_AHEAD_MAX_S: Final = EVENT_AHEAD_MAX.total_seconds()
"""Every fold rejects an event that is further ahead."""

CLOCK_FIRST: Final = datetime(2026, 1, 1, tzinfo=UTC)
"""No agent ran before this."""

Monotonic = Callable[[], float]
"""Seconds of a clock that nobody sets."""


def event_time(reported: datetime, last: datetime | None, now: datetime) -> datetime:
    """The time of the next event, from its fact's time, the time of the event before it, and the clock."""
    latest = now + timedelta(seconds=CLOCK_AHEAD_MAX_S)
    time = reported if reported <= latest else now
    return time if last is None or last > latest >= CLOCK_FIRST or time >= last else last + JUST_AFTER


def jump_s(before: Instant, after: Instant) -> float | None:
    """By how many seconds the clock was set between two instants; None where it was not."""
    seconds = (after.at - before.at).total_seconds() - (after.monotonic_s - before.monotonic_s)
    return seconds if abs(seconds) > CLOCK_JUMP_S else None


def set_back_since_s(last: datetime | None, now: datetime) -> float | None:
    """By how many seconds at least (negative) the clock was set back since the last event of an earlier run."""
    seconds = 0.0 if last is None else (now - last).total_seconds()
    return seconds if seconds < -CLOCK_JUMP_S else None


class Times:
    """The node's clocks, and their previous instant."""

    def __init__(self, clock: Clock, monotonic: Monotonic) -> None:
        self._clock = clock
        self._monotonic = monotonic
        self._last = self._read()

    def now(self) -> datetime:
        """The wall clock."""
        return self._clock()

    def monotonic_s(self) -> float:
        """The monotonic clock."""
        return self._monotonic()

    def jump_since_last_s(self) -> float | None:
        """By how many seconds the clock was set since the previous call."""
        before, self._last = self._last, self._read()
        return jump_s(before, self._last)

    def _read(self) -> Instant:
        return Instant(self._monotonic(), self._clock())
