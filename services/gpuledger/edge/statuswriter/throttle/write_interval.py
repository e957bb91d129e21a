"""Limits how soon an object's status is written again after the last time.

Pure; times are arguments. The first write of a status goes at once. Changes that come during the pause after it are one
write when the pause is over. The pause lies between the moments at which others see the writes: a write is visible when
it is answered, and the next one no sooner than the fastest of the last ones took, so it may be sent that much earlier.

The pause adapts to how much is written: while there is little, there is next to none, and it grows to its full length
as the writes of all objects use up a burst, which comes back at a rate. So what one person changes shows at once, and
what a whole cluster changes costs a bounded number of writes.
"""

from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final, NamedTuple

from gpuledger.edge.statuswriter.cache.objects import ObjectCache
from gpuledger.edge.statuswriter.objects import Key, Kind
from gpuledger.edge.statuswriter.reconcile.decide import Action

PACED_KINDS: Final = frozenset({Kind.SLICE})
"""Kinds whose status follows what many people do at once."""

WRITES_TIMED: Final = 64
"""The fastest of so many last writes says how long the next one takes at least."""


class Pacing(NamedTuple):
    """The pause after a write where a burst of writes is used up; of that, so many writes come back a second."""

    pause_s: float
    per_s: float
    burst: int


class WriteInterval:
    """Keeps a pause between two writes of one object's status."""

    def __init__(self, pacing: Pacing, cache: ObjectCache, now: Callable[[], float]) -> None:
        self._pacing = pacing
        self._cache = cache
        self._now = now
        self._took_s: deque[float] = deque(maxlen=WRITES_TIMED)
        self._used, self._used_at_s = 0.0, now()

    def writable_at_s(self, key: Key, action: Action) -> float:
        """When the action may be taken."""
        return self._cache.state(key).writable_at_s if action is Action.STATUS else 0.0

    @contextmanager
    def timed(self, key: Key, action: Action) -> Iterator[None]:
        """Begin the pause after the write in the block, whether it succeeds or not."""
        began_s = self._now()
        try:
            yield
        finally:
            if action is Action.STATUS and key.kind in PACED_KINDS:
                now_s = self._now()
                self._took_s.append(now_s - began_s)
                pause_s = self._pacing.pause_s * self._use_up(now_s)
                self._cache.state(key).writable_at_s = now_s + max(0.0, pause_s - min(self._took_s))

    def _use_up(self, now_s: float) -> float:
        """Count a write; returns how much of the burst is used up, from 0 to 1."""
        per_s, burst = self._pacing.per_s, self._pacing.burst
        came_back = (now_s - self._used_at_s) * per_s
        self._used, self._used_at_s = min(max(0.0, self._used - came_back) + 1.0, burst), now_s
        return self._used / burst
