"""Limits how often one object is written: how often drift is corrected, and how soon a status follows the last one.

Pure; times are arguments. Nobody is fought in a loop: an object that somebody else keeps changing is corrected so many
times an hour, and then left alone until the first of these corrections is an hour old. The first write of a status goes
at once. Changes that come during the pause after it are one write when the pause is over. The pause lies between the
moments at which others see the writes: a write is visible when it is answered, and the next one no sooner than the
fastest of the last ones took, so that much earlier it may be sent.
"""

from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from gpuledger.edge.statuswriter.cache.objects import HOUR_S, ObjectCache, ObjectState
from gpuledger.edge.statuswriter.objects import Key, Kind
from gpuledger.edge.statuswriter.reconcile.decide import Action

PACED_KINDS: Final = frozenset({Kind.SLICE})
"""Kinds whose status follows what many people do at once."""

WRITES_TIMED: Final = 64
"""The fastest of so many last writes says how long the next one takes at least."""


def correction_allowed_at_s(state: ObjectState, per_hour_max: int, now_s: float) -> float:
    """When drift of the object may be corrected; not later than now where it may be at once."""
    times = state.corrected_at_s
    return now_s if len(times) < per_hour_max else times[-per_hour_max] + HOUR_S


def note_correction(state: ObjectState, per_hour_max: int, now_s: float) -> None:
    """Drift is being corrected."""
    state.corrected_at_s = (*state.corrected_at_s, now_s)[-per_hour_max:]


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
