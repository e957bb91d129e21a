"""What is to happen at which simulated time. Pure; whoever notes something says what comes of it.

Times are simulated seconds since the beginning. Of several things at one time the one that was noted first comes first.
"""

from collections.abc import Callable
from heapq import heappop, heappush
from math import inf
from typing import Any, Generic, NamedTuple, TypeVar

T = TypeVar("T")


class _Entry(NamedTuple):
    at_s: float
    number: int
    act: Callable[[Any], list[Any]]
    what: Any


class Agenda(Generic[T]):
    """Acts that wait for their time; each gives what then happens."""

    def __init__(self) -> None:
        self._entries: list[_Entry] = []
        self._noted = 0
        self.now_s = 0.0

    @property
    def due_s(self) -> float:
        """When the next act is due."""
        return self._entries[0].at_s if self._entries else inf

    def note(self, after_s: float, act: Callable[[Any], list[T]], what: object) -> None:
        """Have something done so many seconds from now."""
        self._noted += 1
        heappush(self._entries, _Entry(self.now_s + after_s, self._noted, act, what))

    def advance(self, to_s: float, most: int) -> list[T]:
        """What happens up to and including `to_s`, in order; at least `most` leave the rest for the next call."""
        happened: list[T] = []
        while self.due_s <= to_s and len(happened) < most:
            entry = heappop(self._entries)
            self.now_s = entry.at_s
            happened += entry.act(entry.what)
        return happened
