"""Simulated time: which acts happen when, and how simulated time follows real time. Pure; clock readings are arguments.

Times are simulated seconds since the beginning, and a real second is `speed` of them. A simulation that cannot keep up
slows simulated time down, so that nothing piles up, and a clock that jumps moves it by no more than `LAG_MAX_S`.
"""

from collections.abc import Callable
from datetime import datetime
from heapq import heappop, heappush
from math import inf
from typing import Any, Final, Generic, NamedTuple, TypeVar

from gpuledger.tools.simulation.fleet import SimulationError

T = TypeVar("T")

SPEED_MAX: Final = 1_000_000.0
WAIT_MIN_S: Final = 0.001
LAG_MAX_S: Final = 5.0
"""The most real seconds that simulated time catches up with."""


class SpeedError(SimulationError):
    """The value of `--speed` is out of bounds."""


class _ScheduledAct(NamedTuple):
    at_s: float
    number: int
    act: Callable[[Any], list[Any]]
    what: Any


class Schedule(Generic[T]):
    """Acts that wait for their time, in order of time and addition; each returns what happens then."""

    def __init__(self) -> None:
        self._entries: list[_ScheduledAct] = []
        self._noted = 0
        self.now_s = 0.0

    @property
    def due_s(self) -> float:
        """When the next act is due."""
        return self._entries[0].at_s if self._entries else inf

    def add(self, after_s: float, act: Callable[[Any], list[T]], what: object) -> None:
        """Add an act so many seconds from now."""
        self._noted += 1
        heappush(self._entries, _ScheduledAct(self.now_s + after_s, self._noted, act, what))

    def advance(self, to_s: float, most: int) -> list[T]:
        """The happenings up to and including `to_s`, in order; after at least `most`, the rest is left."""
        happened: list[T] = []
        while self.due_s <= to_s and len(happened) < most:
            entry = heappop(self._entries)
            self.now_s = entry.at_s
            happened += entry.act(entry.what)
        if self.due_s > to_s:
            self.now_s = max(self.now_s, to_s)
        return happened


class Pace:
    """Simulated seconds since the beginning.

    Raises:
        SpeedError: the speed is out of bounds.
    """

    def __init__(self, began: datetime, speed: float) -> None:
        if not 0 < speed <= SPEED_MAX:
            raise SpeedError(f"--speed: {speed:g} is out of bounds; give a number above 0, up to {SPEED_MAX:g}.")
        self._speed = speed
        self._last = began
        self.simulated_s = 0.0

    def tick(self, now: datetime, due_s: float) -> float:
        """The simulated time now; it does not pass `due_s` by more than `LAG_MAX_S` real seconds."""
        passed_s = min(max((now - self._last).total_seconds(), 0.0), LAG_MAX_S)
        latest_s = max(due_s, 0.0) + LAG_MAX_S * self._speed
        self._last = now
        self.simulated_s = max(self.simulated_s, min(self.simulated_s + passed_s * self._speed, latest_s))
        return self.simulated_s

    def wait_s(self, due_s: float) -> float:
        """Real seconds until a simulated time: none, or at least `WAIT_MIN_S`."""
        left_s = (due_s - self.simulated_s) / self._speed
        return max(left_s, WAIT_MIN_S) if left_s > 0 else 0.0
