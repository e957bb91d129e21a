"""The times of a node's events: they never go back, whatever becomes of its clock. Pure but for `Times`.

An event's time is what its fact says, or just after the time of the event before it where that is later: who counts
events by their times has to be able to tell them apart. There is one exception. A
clock that was years ahead would hold every later event at its own time for years; so what lies more than
`CLOCK_AHEAD_MAX_S` ahead of the clock does not count: neither as the last event's time, after which times go back once,
to the clock, nor as a fact's. A clock that was ahead by less, as one that shows local time is, is caught up with. A
clock that shows a time from before there were agents is the one that is wrong: it was not set yet since the node
began to run, and what is told by it would be history only, behind everything that was told before.
"""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Final, NamedTuple

from gpuledger.runtime.clock import Clock

CLOCK_JUMP_S: Final = 5.0
"""A clock that went apart from the time that passed by more than this was set; less is corrected by slewing."""

JUST_AFTER: Final = timedelta(microseconds=1)
"""So much later than the event before it is one that a clock says to have been earlier."""

CLOCK_AHEAD_MAX_S: Final = 86_400.0
"""No mistake about a time zone puts a clock ahead by more than a day."""

CLOCK_FIRST: Final = datetime(2026, 1, 1, tzinfo=UTC)
"""No agent ran earlier than this."""

Monotonic = Callable[[], float]
"""Seconds since some moment; it is never set."""


class Instant(NamedTuple):
    """What both clocks said at a moment."""

    wall: datetime
    monotonic_s: float


def event_time(said: datetime, last: datetime | None, now: datetime) -> datetime:
    """The time of the next event: `said` is its fact's, `last` the time of the event before it."""
    latest = now + timedelta(seconds=CLOCK_AHEAD_MAX_S)
    time = said if said <= latest else now
    return time if last is None or last > latest >= CLOCK_FIRST or time >= last else last + JUST_AFTER


def jump_s(before: Instant, after: Instant) -> float | None:
    """By how many seconds the clock was set between two readings; None where it was not."""
    seconds = (after.wall - before.wall).total_seconds() - (after.monotonic_s - before.monotonic_s)
    return seconds if abs(seconds) > CLOCK_JUMP_S else None


def set_back_s(last: datetime | None, now: datetime) -> float | None:
    """By how many seconds at least (negative) the clock was set back since the last event, of an earlier run."""
    seconds = 0.0 if last is None else (now - last).total_seconds()
    return seconds if seconds < -CLOCK_JUMP_S else None


class Times:
    """The node's clocks, and what they showed last."""

    def __init__(self, clock: Clock, monotonic: Monotonic) -> None:
        self._clock = clock
        self._monotonic = monotonic
        self._last = self._read()

    def now(self) -> datetime:
        """What the clock shows."""
        return self._clock()

    def monotonic_s(self) -> float:
        """See `Monotonic`."""
        return self._monotonic()

    def jumped_s(self) -> float | None:
        """By how many seconds the clock was set since this was asked last."""
        before, self._last = self._last, self._read()
        return jump_s(before, self._last)

    def _read(self) -> Instant:
        return Instant(self._clock(), self._monotonic())
