"""Numbers over time as steps, and where the ticks of their axes go; other modules draw that. Pure."""

from bisect import bisect_right
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Final, NamedTuple

TIME_TICKS_MAX: Final = 6
COUNT_TICKS_MAX: Final = 5

_DAY_S: Final = 86_400
_TIME_STEPS_S: Final = (
    *(1, 5, 15, 30, 60, 300, 900, 1_800, 3_600, 10_800, 21_600, 43_200),
    *(
        _DAY_S * days
        for days in (1, 2, 7, 14, 28, 91, 182, 364, 728, 1_820, 3_640, 7_280, 18_200, 36_400, 182_000, 728_000)
    ),
)
"""Possible distances of ticks; the first that gives few enough ticks is used."""

_COUNT_STEPS: Final = tuple(nice * 10**power for power in range(19) for nice in (1, 2, 5))
_MIDNIGHT = datetime(1970, 1, 1, tzinfo=UTC)
_MONDAY = datetime(1970, 1, 5, tzinfo=UTC)
"""Ticks that are weeks apart stand on Mondays."""


class Point(NamedTuple):
    """From this time on there are so many; None where nothing is there that could be counted."""

    at: datetime
    value: int | None


class Series(NamedTuple):
    """One line: its points in the order of their times."""

    name: str
    points: tuple[Point, ...]

    def at(self, time: datetime) -> int | None:
        """The number at a time."""
        index = bisect_right(self.points, time, key=lambda point: point.at)
        return self.points[index - 1].value if index else None

    def between(self, first: datetime, last: datetime) -> list[int]:
        """Every number that there is from one time up to, not including, another."""
        low = bisect_right(self.points, first, key=lambda point: point.at)
        counts = [self.at(first)]
        for point in self.points[low:]:
            if point.at >= last:
                break
            counts.append(point.value)
        return [count for count in counts if count is not None]


class Chart(NamedTuple):
    """Lines over one range of time, which is not empty; their last points hold up to its end."""

    title: str
    begins: datetime
    ends: datetime
    series: tuple[Series, ...]

    @property
    def top(self) -> int:
        """The largest number, or 1 where there is none above 0."""
        return max((point.value or 1 for one in self.series for point in one.points), default=1)

    def share_of(self, time: datetime) -> float:
        """The position of a time in the range: 0 at its beginning, 1 at its end."""
        return (time - self.begins) / (self.ends - self.begins)

    def time_at(self, share: float) -> datetime:
        """The time so far along the range."""
        return self.begins + (self.ends - self.begins) * share


def count_ticks(top: int, ticks_max: int = COUNT_TICKS_MAX) -> list[int]:
    """Round numbers, evenly apart, from 0 to the first that is not below the top; so many besides 0 at most."""
    step = next(step for step in _COUNT_STEPS if -(-top // step) <= ticks_max)
    return [number * step for number in range(-(-top // step) + 1)]


def time_ticks(begins: datetime, ends: datetime, ticks_max: int = TIME_TICKS_MAX) -> list[datetime]:
    """Round times (UTC) within a range, evenly apart; one more than so many at most."""
    span_s = (ends - begins).total_seconds()
    step_s = next(step_s for step_s in _TIME_STEPS_S if span_s / step_s <= ticks_max)
    origin, step = _MONDAY if step_s >= 7 * _DAY_S else _MIDNIGHT, timedelta(seconds=step_s)
    first = -((origin - begins) // step)
    last = (ends - origin) // step
    return [origin + number * step for number in range(first, last + 1)]


def time_label(time: datetime, ticks: Sequence[datetime]) -> str:
    """A tick's label: its date, or its time of day where ticks are less than a day apart."""
    apart_s = (ticks[1] - ticks[0] if len(ticks) > 1 else time - _MIDNIGHT).total_seconds()
    if apart_s % _DAY_S == 0:
        return f"{time:%Y-%m-%d}"
    return f"{time:%H:%M:%S}" if apart_s % 60 else f"{time:%H:%M}"
