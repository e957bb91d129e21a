"""When what is left of something that is gone may be forgotten. Pure; the log is the only clock.

A fact that is older than an end must not bring back what has ended, so a fold keeps the time of the end. It keeps it
until nothing older is to be expected: facts are recorded within `LATE_MAX` of their time, or say when they were first
recorded. Within that bound the rows do not depend on the order of recording. A fact that comes later still, about
something that is gone, counts like one about something new; the next fact about it ends it again.
"""

from collections.abc import Iterator
from datetime import datetime, timedelta
from heapq import heappop, heappush
from typing import Final

LATE_MAX: Final = timedelta(days=7)
"""How long after it happened a fact may be recorded and still be told from one about something new."""


class Tombstones:
    """Ends by their times, so that finding those that may go costs as much as there are of them."""

    def __init__(self) -> None:
        self._ends: list[tuple[datetime, str]] = []

    def __len__(self) -> int:
        return len(self._ends)

    def add(self, key: str, ended_at: datetime) -> None:
        """Something has ended."""
        heappush(self._ends, (ended_at, key))

    def pop_expired(self, recorded_at: datetime) -> Iterator[tuple[str, datetime]]:
        """The ends of which nothing older is to be expected behind a fact that was recorded then; each only once."""
        while self._ends and self._ends[0][0] + LATE_MAX < recorded_at:
            ended_at, key = heappop(self._ends)
            yield key, ended_at
