"""How often changes by others were undone lately, so that nobody is fought in a loop. Pure; times are arguments."""

from collections import deque
from typing import Final

from gpuledger.edge.statuswriter.reconcile.decide import Key

HOUR_S: Final = 3600.0


class Undos:
    """How often changes by others were undone lately; times are seconds of any steady clock."""

    def __init__(self, per_hour_max: int) -> None:
        self._max = per_hour_max
        self._times: dict[Key, deque[float]] = {}

    def allowed_at(self, key: Key, now_s: float) -> float:
        """From when on a change of the object may be undone; not later than now where it may be at once."""
        times = self._times.get(key)
        return now_s if times is None or len(times) < self._max else times[0] + HOUR_S

    def note(self, key: Key, now_s: float) -> None:
        """A change is being undone."""
        for other in [other for other, times in self._times.items() if times[-1] + HOUR_S <= now_s]:
            del self._times[other]
        self._times.setdefault(key, deque(maxlen=self._max)).append(now_s)
