"""Which partition a stored row of a table by months is in, and what that is called. Pure.

The writer makes a month when a row of it comes, so there is no partition for whatever else may come: it would have to
be locked, against everybody who reads the table, for each month that is made. Two partitions take all that lies before
and behind, so that nothing that is recorded makes partitions without end.
"""

import re
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Final, NamedTuple

FIRST_YEAR: Final = 2020
"""Rows of before are in one partition; Kubernetes has told nobody earlier which container has which device."""

END_YEAR: Final = 2100
"""Rows from then on are in one partition."""

ANY_MONTH: Final = "any_month"
"""How the name of the partition ends that takes the rows of a build which knows no months.

A migration makes it in a database without rows; a build that makes months has none beside them.
"""

_BEFORE: Final = f"before_{FIRST_YEAR}"
_BEHIND: Final = f"from_{END_YEAR}"
_NUMBERED: Final = re.compile(r"_([0-9]{4})_(0[1-9]|1[0-2])")


class Month(NamedTuple):
    """The rows of a partition: from `begins` up to, not including, `ends`. None: all that is before, or behind."""

    begins: datetime | None
    ends: datetime | None

    @property
    def suffix(self) -> str:
        """How the name of the partition ends."""
        if self.begins is None:
            return _BEFORE
        return _BEHIND if self.ends is None else f"{self.begins:%Y_%m}"


BEFORE: Final = Month(None, datetime(FIRST_YEAR, 1, 1, tzinfo=UTC))
BEHIND: Final = Month(datetime(END_YEAR, 1, 1, tzinfo=UTC), None)


def months_of(times: Iterable[datetime]) -> set[Month]:
    """The months of some times."""
    found = {(at.year, at.month) for at in (time.astimezone(UTC) for time in times)}
    return {_month(*one) for one in found}


def _month(year: int, month: int) -> Month:
    if year < FIRST_YEAR:
        return BEFORE
    if year >= END_YEAR:
        return BEHIND
    following = (year + 1, 1) if month == 12 else (year, month + 1)
    return Month(datetime(year, month, 1, tzinfo=UTC), datetime(*following, 1, tzinfo=UTC))


def partition_of(table: str, month: Month) -> str:
    """The name of the partition with a month's rows."""
    return f"{table}_{month.suffix}"


def month_named(table: str, partition: str) -> Month | None:
    """The month whose rows a partition has by its name; None: it is none that the writer makes."""
    for month in (BEFORE, BEHIND):
        if partition == partition_of(table, month):
            return month
    found = _NUMBERED.fullmatch(partition.removeprefix(table))
    named = None if found is None else _month(int(found[1]), int(found[2]))
    return named if named is not None and partition == partition_of(table, named) else None
