"""How soon a status may be written again after it was written. Pure; the clock is an argument.

The first write goes at once. What changes meanwhile waits, and is one write when the pause is over. What lies a pause
apart is what others see: a write shows when it is answered, and the next one shows no sooner than the fastest of the
last ones took, so that much earlier it may be sent.
"""

from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from gpuledger.edge.statuswriter.reconcile.decide import Action, Key, Kind

PACED: Final = frozenset({Kind.SLICE})
"""Kinds whose status follows what many people do at once."""

WRITES_LOOKED_BACK: Final = 64
"""Of how many writes the fastest tells how long the next one takes at least."""


class Pace:
    """When each object may be written; those that may at once are not remembered."""

    def __init__(self, pause_s: float, now: Callable[[], float]) -> None:
        self._pause_s = pause_s
        self._now = now
        self._free_at_s: dict[Key, float] = {}
        self._took_s: deque[float] = deque(maxlen=WRITES_LOOKED_BACK)

    def free_at_s(self, key: Key, action: Action) -> float:
        """From when on this may be done."""
        return self._free_at_s.get(key, 0.0) if action is Action.STATUS else 0.0

    @contextmanager
    def noted(self, key: Key, action: Action) -> Iterator[None]:
        """Note that this is done in the block, or tried."""
        began_s = self._now()
        try:
            yield
        finally:
            self._wrote(key, action, began_s)

    def _wrote(self, key: Key, action: Action, began_s: float) -> None:
        if action is Action.STATUS and key.kind in PACED:
            now_s = self._now()
            self._forget(now_s)
            self._took_s.append(now_s - began_s)
            self._free_at_s.pop(key, None)
            self._free_at_s[key] = now_s + max(0.0, self._pause_s - min(self._took_s))

    def _forget(self, now_s: float) -> None:
        """Pauses that are over, as far as they stand first."""
        while self._free_at_s:
            key, at_s = next(iter(self._free_at_s.items()))
            if at_s > now_s:
                return
            del self._free_at_s[key]
