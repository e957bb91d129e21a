"""What has to be looked at: every object at most once, at its time, and never by two at once.

It holds keys only. Who takes a key looks up what is wanted then, so that of many changes only the last is written.
Keys that are only gone through, as after a list of everything, are patient: what changed goes before them.
"""

import asyncio
from collections.abc import Callable
from heapq import heappop, heappush

from gpuledger.edge.statuswriter.reconcile.decide import Key, Kind


class Queue:
    """Keys in the order in which they came, and some for later. `now` gives seconds of a steady clock."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._ready: dict[Key, None] = {}
        self._patient: dict[Key, None] = {}
        self._later: dict[Key, float] = {}
        self._times: list[tuple[float, Key]] = []
        self._busy: set[Key] = set()
        self._again: dict[Key, float] = {}
        self._news = asyncio.Event()

    def __len__(self) -> int:
        return len(self._ready) + len(self._patient) + len(self._later) + len(self._busy)

    @property
    def waiting(self) -> int:
        """How many keys are to be taken now or are being looked at."""
        return len(self._ready) + len(self._patient) + len(self._busy)

    def depth(self, kind: Kind) -> int:
        """How many keys of a kind are to be taken now."""
        return sum(key.kind is kind for lane in (self._ready, self._patient) for key in lane)

    def add(self, key: Key, at_s: float = 0.0) -> None:
        """Have a key looked at, not before `at_s`; one that waits already keeps its place and its time."""
        if key in self._busy:
            self._again[key] = max(at_s, self._again.get(key, 0.0))
        elif key not in self._ready and key not in self._later:
            self._patient.pop(key, None)
            self._put(key, at_s)

    def add_patient(self, key: Key) -> None:
        """Have a key looked at when nothing else is ready; one that waits already, or is being looked at, stays."""
        if key not in self._busy and key not in self._ready and key not in self._later:
            self._patient[key] = None
            self._news.set()

    async def take(self) -> Key:
        """The next key, which is the caller's until `done`."""
        while True:
            self._ripen()
            if lane := self._ready or self._patient:
                key = next(iter(lane))
                del lane[key]
                self._busy.add(key)
                return key
            await self._wait()

    def done(self, key: Key) -> None:
        """The key was looked at; it comes again if it was added meanwhile."""
        self._busy.discard(key)
        if key in self._again:
            self._put(key, self._again.pop(key))

    def clear(self) -> None:
        """Forget everything that waits."""
        self._ready.clear()
        self._patient.clear()
        self._later.clear()
        self._times.clear()
        self._again.clear()

    def _put(self, key: Key, at_s: float) -> None:
        if at_s <= self._now():
            self._ready[key] = None
        else:
            self._later[key] = at_s
            heappush(self._times, (at_s, key))
        self._news.set()

    def _ripen(self) -> None:
        while self._times and self._times[0][0] <= self._now():
            at_s, key = heappop(self._times)
            if self._later.get(key) == at_s:
                del self._later[key]
                self._ready[key] = None

    async def _wait(self) -> None:
        self._news.clear()
        timeout_s = max(self._times[0][0] - self._now(), 0.0) if self._times else None
        try:
            await asyncio.wait_for(self._news.wait(), timeout_s)
        except TimeoutError:
            return
