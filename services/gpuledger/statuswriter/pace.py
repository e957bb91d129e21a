"""How soon a status may be written again after it was written. Pure; the clock is an argument.

The first write goes at once. What changes meanwhile waits, and is one write when the pause is over.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from gpuledger.statuswriter.decide import Action, Key, Kind

PACED: Final = frozenset({Kind.SLICE})
"""Kinds whose status follows what many people do at once."""


class Pace:
    """When each object may be written; those that may at once are not remembered."""

    def __init__(self, pause_s: float, now: Callable[[], float]) -> None:
        self._pause_s = pause_s
        self._now = now
        self._free_at_s: dict[Key, float] = {}

    def free_at_s(self, key: Key, action: Action) -> float:
        """From when on this may be done."""
        return self._free_at_s.get(key, 0.0) if action is Action.STATUS else 0.0

    @contextmanager
    def noted(self, key: Key, action: Action) -> Iterator[None]:
        """Note that this is done in the block, or tried."""
        try:
            yield
        finally:
            self._wrote(key, action)

    def _wrote(self, key: Key, action: Action) -> None:
        if action is Action.STATUS and key.kind in PACED:
            now_s = self._now()
            self._forget(now_s)
            self._free_at_s.pop(key, None)
            self._free_at_s[key] = now_s + self._pause_s

    def _forget(self, now_s: float) -> None:
        """Pauses that are over; they stand first."""
        while self._free_at_s:
            key, at_s = next(iter(self._free_at_s.items()))
            if at_s > now_s:
                return
            del self._free_at_s[key]
