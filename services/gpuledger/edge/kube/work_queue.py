"""Work queue of keys: each key is in it at most once, becomes ready at its time, and is worked on by one worker.

It holds keys only. Whoever takes a key looks up what is desired then, so that of many changes only the last is
written. Keys in the background lane, such as those of a full list, wait until no changed object is ready.
"""

import asyncio
from collections.abc import Callable
from heapq import heappop, heappush
from typing import Any, Generic, TypeVar

K = TypeVar("K", bound=tuple[Any, ...] | str)
"""Keys have an order, which decides between those that are due at one moment."""


class WorkQueue(Generic[K]):
    """Keys in the order in which they came, and some for later. `now` gives seconds of a steady clock."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._ready: dict[K, None] = {}
        self._background: dict[K, None] = {}
        self._later: dict[K, float] = {}
        self._times: list[tuple[float, K]] = []
        self._busy: set[K] = set()
        self._again: dict[K, float] = {}
        self._hastened: set[K] = set()
        self._added = asyncio.Event()

    def __len__(self) -> int:
        return self.active + len(self._later)

    def now_s(self) -> float:
        """Seconds of the queue's clock."""
        return self._now()

    @property
    def active(self) -> int:
        """How many keys are ready or being worked on."""
        return len(self._ready) + len(self._background) + len(self._busy)

    def depth(self, is_counted: Callable[[K], bool]) -> int:
        """How many of the keys that are ready count."""
        return sum(is_counted(key) for lane in (self._ready, self._background) for key in lane)

    def add(self, key: K, at_s: float = 0.0) -> None:
        """Queue a key, not to be taken before `at_s`; one that is queued already keeps its place and its time."""
        if key in self._busy:
            self._again[key] = max(at_s, self._again.get(key, 0.0))
        elif key not in self._ready and key not in self._later:
            self._background.pop(key, None)
            self._put(key, at_s)

    def hasten(self, key: K) -> None:
        """Queue a key to be taken at once, also one that waits for its time, or is queued again when it is done."""
        if key in self._busy:
            self._hastened.add(key)
        else:
            self._later.pop(key, None)
            self.add(key)

    def add_background(self, key: K) -> None:
        """Queue a key behind all others; one that is queued already, or being worked on, stays as it is."""
        if key not in self._busy and key not in self._ready and key not in self._later:
            self._background[key] = None
            self._added.set()

    async def take(self) -> K:
        """The next key, which is the caller's until `done`."""
        while True:
            self._ripen()
            if lane := self._ready or self._background:
                key = next(iter(lane))
                del lane[key]
                self._busy.add(key)
                return key
            await self._wait()

    def done(self, key: K) -> None:
        """The caller has worked on the key; it comes again if it was added meanwhile."""
        self._busy.discard(key)
        at_s = self._again.pop(key, None)
        if key in self._hastened:
            self._hastened.discard(key)
            at_s = 0.0
        if at_s is not None:
            self._put(key, at_s)

    def clear(self) -> None:
        """Forget all keys that nobody works on."""
        for lane in (self._ready, self._background, self._later, self._times, self._again, self._hastened):
            lane.clear()

    def _put(self, key: K, at_s: float) -> None:
        if at_s <= self._now():
            self._ready[key] = None
        else:
            self._later[key] = at_s
            heappush(self._times, (at_s, key))
        self._added.set()

    def _ripen(self) -> None:
        while self._times and self._times[0][0] <= self._now():
            at_s, key = heappop(self._times)
            if self._later.get(key) == at_s:
                del self._later[key]
                self._ready[key] = None

    async def _wait(self) -> None:
        self._added.clear()
        timeout_s = max(self._times[0][0] - self._now(), 0.0) if self._times else None
        try:
            await asyncio.wait_for(self._added.wait(), timeout_s)
        except TimeoutError:
            return
