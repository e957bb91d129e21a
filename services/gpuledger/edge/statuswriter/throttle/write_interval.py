"""Limits how soon an object's status is written again after the last time.

Pure; times are arguments. The first write of a status goes at once. Changes that come during the pause after it are one
write when the pause is over. The pause lies between the moments at which others see the writes: a write is visible when
it is answered, and the next one no sooner than the fastest of the last ones took, so it may be sent that much earlier.
"""

from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from gpuledger.edge.statuswriter.cache.objects import ObjectCache
from gpuledger.edge.statuswriter.objects import Key, Kind
from gpuledger.edge.statuswriter.reconcile.decide import Action

PACED_KINDS: Final = frozenset({Kind.SLICE})
"""Kinds whose status follows what many people do at once."""

WRITES_TIMED: Final = 64
"""The fastest of so many last writes says how long the next one takes at least."""


class WriteInterval:
    """Keeps a pause between two writes of one object's status."""

    def __init__(self, pause_s: float, cache: ObjectCache, now: Callable[[], float]) -> None:
        self._pause_s = pause_s
        self._cache = cache
        self._now = now
        self._took_s: deque[float] = deque(maxlen=WRITES_TIMED)

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
                self._cache.state(key).writable_at_s = now_s + max(0.0, self._pause_s - min(self._took_s))
