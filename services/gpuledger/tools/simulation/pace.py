"""How simulated time follows the real one. Pure; the clock's readings are arguments.

A real second is `speed` simulated ones. Whoever cannot keep up has simulated time slow down, so that nothing piles up,
and a clock that jumps moves the simulation by no more than `LAG_MAX_S`.
"""

from datetime import datetime
from typing import Final

from gpuledger.tools.simulation.errors import SpeedError

SPEED_MAX: Final = 1_000_000.0
WAIT_MIN_S: Final = 0.001
LAG_MAX_S: Final = 5.0
"""Real seconds that simulated time catches up with at most."""


class Pace:
    """Simulated seconds since the beginning.

    Raises:
        SpeedError: the speed is out of bounds.
    """

    def __init__(self, began: datetime, speed: float) -> None:
        if not 0 < speed <= SPEED_MAX:
            raise SpeedError(f"--speed: {speed:g} is out of bounds; give a number above 0, up to {SPEED_MAX:g}.")
        self._speed = speed
        self._last = began
        self.simulated_s = 0.0

    def tick(self, now: datetime, due_s: float) -> float:
        """The simulated time now; it waits for what was due at `due_s` and is more than `LAG_MAX_S` late."""
        passed_s = min(max((now - self._last).total_seconds(), 0.0), LAG_MAX_S)
        latest_s = max(due_s, 0.0) + LAG_MAX_S * self._speed
        self._last = now
        self.simulated_s = max(self.simulated_s, min(self.simulated_s + passed_s * self._speed, latest_s))
        return self.simulated_s

    def wait_s(self, due_s: float) -> float:
        """Real seconds until a simulated time: none, or so many that a clock of microseconds notices them."""
        left_s = (due_s - self.simulated_s) / self._speed
        return max(left_s, WAIT_MIN_S) if left_s > 0 else 0.0
