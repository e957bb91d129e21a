"""Keeps day totals of what was held, beside the ranges in which it was held, so that a report of years reads days.

A short range adds to each of its days what it held of it. A longer one changes the totals at its ends alone, however
long it is: its beginning adds its amount to the amount held at the end of that day, and what it holds until
then to that day's sum; its end takes the same away again. A later day has a whole day of what was held when it began,
plus its own sum. So a range that ended is a bounded number of additions, and a correction by a late fact is the same
taken away: totals depend on the set of facts alone. Ranges that last are not in the totals. They are few, end at a
moment that no fold knows, and reports add them.
"""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from hashlib import sha256
from typing import NamedTuple

from gpuledger.domain.table import Sum

DAY = timedelta(days=1)
_HOUR_US, _DAY_US = 3_600_000_000, 86_400_000_000
_HOLDER_DIGITS = 32

DAYS_MAX = 31
"""How many days of a range have its part in their own sums; a report reads these without those before."""

HOLDERS_MAX = 10_000
"""How many holders' keys are kept at once; another one is computed."""


class DayChange(NamedTuple):
    """What a range changes on a day (UTC): the amount that later days have to add, and amount times µs held on it."""

    day: datetime
    held: Sum
    held_us: Sum


def changes_of(valid_from: datetime, valid_to: datetime, amount: int) -> Iterator[DayChange]:
    """What a range adds to the totals; with a negative amount, what it takes away. None for a range of no length."""
    if valid_to <= valid_from:
        return
    first, first_us = _split(valid_from)
    last, last_us = _split(valid_to)
    days = (last - first).days
    if days >= DAYS_MAX:
        yield DayChange(first, Sum(amount), Sum(amount * (_DAY_US - first_us)))
        yield DayChange(last, Sum(-amount), Sum(-amount * (_DAY_US - last_us)))
        return
    for number in range(days):
        yield DayChange(first + number * DAY, Sum(0), Sum(amount * (_DAY_US - (0 if number else first_us))))
    if last_us:
        yield DayChange(last, Sum(0), Sum(amount * (last_us - (0 if days else first_us))))


@lru_cache(HOLDERS_MAX)
def holder_of(*names: str | None) -> str:
    """A key of bounded length for who holds something, whatever the names; an index has no room for several of them."""
    lengths = "".join("-" if name is None else f"{len(name)}:{name}" for name in names)
    return sha256(lengths.encode()).hexdigest()[:_HOLDER_DIGITS]


def _split(at: datetime) -> tuple[datetime, int]:
    """The beginning of a moment's day in UTC, and the microseconds since."""
    if at.tzinfo is not UTC:
        at = at.astimezone(UTC)
    day = at.replace(hour=0, minute=0, second=0, microsecond=0)
    return day, at.hour * _HOUR_US + (at.minute * 60 + at.second) * 1_000_000 + at.microsecond
