"""For how long something has been so: a value with the time since which it holds, by the times of what was said.

The latest by event time is in force, whatever the order of recording.
"""

from datetime import datetime
from typing import NamedTuple


class Streak(NamedTuple):
    """Whether something holds, since when, when that was last said, and when the contrary last was."""

    holds: bool
    since: datetime
    told_at: datetime
    other_at: datetime | None

    @property
    def lost_at(self) -> datetime | None:
        """When it was last said not to hold."""
        return self.other_at if self.holds else self.told_at


def told(known: Streak | None, holds: bool, time: datetime) -> Streak:
    """The streak after something more was said."""
    if known is None:
        return Streak(holds, time, time, None)
    if holds == known.holds:
        return _confirmed(known, time)
    if time >= known.told_at:
        return Streak(holds, time, time, known.told_at)
    return _interrupted(known, time)


def _confirmed(known: Streak, time: datetime) -> Streak:
    is_of_streak = known.other_at is None or known.other_at < time
    since = min(known.since, time) if is_of_streak else known.since
    return known._replace(since=since, told_at=max(known.told_at, time))


def _interrupted(known: Streak, time: datetime) -> Streak:
    """The contrary was said earlier than what is in force; the streak is not older than that."""
    other_at = time if known.other_at is None else max(known.other_at, time)
    since = known.told_at if known.since <= time else known.since
    return known._replace(since=since, other_at=other_at)
