"""When what is left of something that is gone may be forgotten. Pure; the log is the only clock.

A fact that is older than an end must not bring back what has ended, so a fold keeps the time of the end. It keeps it
until nothing older is to be expected: facts are recorded within `LATE_MAX` of their time, or say when they were first
recorded. Within that bound the rows do not depend on the order of recording. A fact that comes later still, about
something that is gone, counts like one about something new; the next fact about it ends it again.
"""

from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from heapq import heappop, heappush
from typing import Any, Final, Generic, TypeVar

from gpuledger.domain.fact import Fact, counted_as_recorded, is_late
from gpuledger.domain.table import Key, Table, TableSpec

LATE_MAX: Final = timedelta(days=7)
"""How long after it happened a fact may be recorded and still be told from one about something new."""


class Tombstones:
    """Ends by their times, so that finding those that may go costs as much as there are of them."""

    def __init__(self) -> None:
        self._ends: list[tuple[datetime, Key]] = []

    def __len__(self) -> int:
        return len(self._ends)

    def add(self, key: Key, ended_at: datetime) -> None:
        """Something has ended."""
        heappush(self._ends, (ended_at, key))

    def pop_expired(self, recorded_at: datetime) -> Iterator[tuple[Key, datetime]]:
        """The ends of which nothing older is to be expected behind a fact that was recorded then; each only once."""
        while self._ends and self._ends[0][0] + LATE_MAX < recorded_at:
            ended_at, key = heappop(self._ends)
            yield key, ended_at


R = TypeVar("R", bound=tuple[Any, ...])


class RowEnds(Generic[R]):
    """The ends that a table keeps as rows, by the one column of its key.

    `ended_at` says when what a row is about has ended, None while it goes on. The rows that were loaded before the
    first fact count.
    """

    def __init__(self, table: Table[R], ended_at: Callable[[R], datetime | None]) -> None:
        self._table = table
        self._ended_at = ended_at
        self._tombstones: Tombstones | None = None

    def note(self, row: R) -> None:
        """The table has got this row."""
        ended_at = self._ended_at(row)
        if ended_at is not None:
            self._ends().add(self._table.key_of(row), ended_at)

    def forget(self, fact: Fact) -> list[str]:
        """Delete the ends of which nothing older is to be expected behind this fact; returns their keys."""
        forgotten = []
        recorded_at = counted_as_recorded(fact.event, fact.recorded_ns)
        for key, ended_at in self._ends().pop_expired(recorded_at):
            row = self._table.get(key)
            if row is not None and self._ended_at(row) == ended_at:
                self._table.delete(key)
                forgotten.append(key)
        return forgotten

    def _ends(self) -> Tombstones:
        if self._tombstones is None:
            self._tombstones = Tombstones()
            for row in self._table.rows.values():
                self.note(row)
        return self._tombstones


class LatestRows(Generic[R]):
    """The latest row of each key by event time, in a table that nobody writes; what is gone stays for a while.

    A row has three columns: the key, a value (None: what it is about is gone), and as of when.
    """

    def __init__(self, spec: TableSpec[R]) -> None:
        self.table: Table[R] = Table(spec)
        self.table.never_written()
        self._ends = RowEnds(self.table, _gone_at)

    def put(self, fact: Fact, row: R) -> bool:
        """Take a row in, unless a later one is there, and forget ends that are old enough; says whether it was."""
        key, _, at = row
        before = self.table.get(key)
        is_taken = before is None or not is_late(before[2], at)
        if is_taken:
            self.table.put(row)
            self._ends.note(row)
        self._ends.forget(fact)
        return is_taken


def _gone_at(row: tuple[Any, ...]) -> datetime | None:
    _, value, at = row
    ended_at: datetime | None = at if value is None else None
    return ended_at
