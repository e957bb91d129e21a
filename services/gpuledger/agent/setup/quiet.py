"""When what is wanted has stopped changing, so that what is asked for together is done together. It reads no clock."""

from typing import Final

from gpuledger.events.node import WantedDevice

DEBOUNCE_S: Final = 2.0
"""For so long nothing more must have been asked for."""

DEBOUNCE_MAX_S: Final = 20.0
"""So long changes are waited out at most, however they keep coming."""

Wanted = tuple[WantedDevice, ...] | None


class Quiet:
    """Follows what is wanted."""

    def __init__(self) -> None:
        self._wanted: Wanted = None
        self._until = self._latest = 0.0
        self._rested = True

    def until(self, wanted: Wanted, now: float) -> float:
        """When it counts, if nothing more comes; in seconds of the same clock as `now`."""
        if wanted != self._wanted:
            if self._rested:
                self._latest = now + DEBOUNCE_MAX_S
            self._wanted, self._until = wanted, min(now + DEBOUNCE_S, self._latest)
        self._rested = now >= self._until
        return self._until
