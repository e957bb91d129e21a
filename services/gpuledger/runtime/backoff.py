"""The one exponential backoff: how long to wait before something that failed is tried again.

Nothing here waits, and nothing gives up: the caller decides which errors are worth another attempt, and for how long.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from random import SystemRandom
from typing import Final

DOUBLINGS_MAX: Final = 32

Jitter = Callable[[], float]
"""Draws a number from 0 to 1."""

system_jitter: Final[Jitter] = SystemRandom().random


def no_jitter() -> float:
    """Every pause as long as it may be; for what only one process retries."""
    return 1.0


@dataclass(frozen=True, slots=True)
class Backoff:
    """Bounds of the pauses after failures in a row: they double from `first_s` to `max_s`, and jitter cuts up to half.

    A connection that lived for `healthy_after_s` ends the row. A server's own Retry-After counts up to
    `retry_after_max_s`.
    """

    first_s: float = 0.2
    max_s: float = 30.0
    healthy_after_s: float = 10.0
    retry_after_max_s: float = 300.0

    def pause_s(self, failures: int, jitter: float = 1.0, retry_after_s: float | None = None) -> float:
        """Seconds to wait after so many failures in a row (at least one), `jitter` being from 0 to 1.

        The pause is at least the `retry_after_s` that a server requested, and at most half as long again.
        """
        doubled_s = min(self.max_s, self.first_s * 2.0 ** min(failures - 1, DOUBLINGS_MAX))
        requested_s = min(retry_after_s or 0.0, self.retry_after_max_s)
        return max(doubled_s, requested_s) * (1 + jitter) / 2 + requested_s / 2


@dataclass(slots=True)
class Retries:
    """Counts the failures in a row of one thing that is retried."""

    backoff: Backoff = field(default_factory=Backoff)
    jitter: Jitter = no_jitter
    failures: int = 0

    def pause_s(self, retry_after_s: float | None = None) -> float:
        """Count one more failure; returns the seconds to wait before the next attempt."""
        self.failures += 1
        return self.backoff.pause_s(self.failures, self.jitter(), retry_after_s)

    def reset(self) -> None:
        """Count from the beginning: an attempt succeeded."""
        self.failures = 0
