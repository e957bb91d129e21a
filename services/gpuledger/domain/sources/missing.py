"""The numbers of a source that the log lacks: ranges that were skipped, the gaps that these became, an index. Pure."""

from bisect import bisect_right, insort
from collections.abc import Container, Iterable, Iterator
from datetime import datetime
from typing import NamedTuple

from gpuledger.domain.sources.deduplication import HOLES_MAX, HOLES_OF_SOURCE_MAX


class Missing(NamedTuple):
    """A range of numbers that was skipped, and when the log showed it: a gap, if it stays so."""

    source: str
    epoch: str
    first: int
    last: int
    noticed_at: datetime
    left: int


class Gap(NamedTuple):
    """A range of numbers that stayed missing, and when its last one came after all.

    One of unknown length began with a new epoch of the source, which did not say how far the epoch before it went.
    """

    source: str
    epoch: str
    first: int
    last: int
    detected_at: datetime
    closed_at: datetime | None
    unknown_length: bool


MissingKey = tuple[str, str, int]
"""Source, epoch and first number."""


class MissingIndex:
    """The missing ranges in two orders: by number, to find the range of a number, and by time, to find overdue ones.

    It holds nothing that does not follow from the rows, and follows every change of them.
    """

    def __init__(self, rows: Iterable[Missing], gaps: Container[MissingKey]) -> None:
        self._firsts: dict[tuple[str, str], list[int]] = {}
        self._pending: dict[MissingKey, None] = {}
        self._of_source: dict[str, int] = {}
        self._gaps = gaps
        for row in sorted(rows, key=_when_noticed):
            self.add(row)

    def add(self, row: Missing) -> None:
        """Add a range that was noticed later than all others."""
        key = (row.source, row.epoch, row.first)
        insort(self._firsts.setdefault(key[:2], []), row.first)
        self._of_source[row.source] = self._of_source.get(row.source, 0) + 1
        if key not in self._gaps:
            self._pending[key] = None

    def mark_gap(self, key: MissingKey) -> None:
        """A range is recorded as a gap, and no longer pending."""
        self._pending.pop(key, None)

    def remove(self, row: Missing) -> None:
        """Remove a range that is complete."""
        firsts = self._firsts[row.source, row.epoch]
        del firsts[bisect_right(firsts, row.first) - 1]
        if not firsts:
            del self._firsts[row.source, row.epoch]
        self._of_source[row.source] -= 1
        self._pending.pop((row.source, row.epoch, row.first), None)

    def has_room(self, source: str, epoch: str) -> bool:
        """Whether one more range may be missing of an epoch, and of its source."""
        ranges, of_source = self._firsts.get((source, epoch), ()), self._of_source.get(source, 0)
        return len(ranges) < HOLES_MAX and of_source < HOLES_OF_SOURCE_MAX

    def of_epoch(self, source: str, epoch: str) -> list[MissingKey]:
        """The ranges of an epoch."""
        return [(source, epoch, first) for first in self._firsts.get((source, epoch), ())]

    def find(self, source: str, epoch: str, number: int) -> MissingKey | None:
        """The last range that begins at or before a number, which may lie behind its end."""
        firsts = self._firsts.get((source, epoch), ())
        at = bisect_right(firsts, number)
        return (source, epoch, firsts[at - 1]) if at else None

    def pending(self) -> Iterator[MissingKey]:
        """The ranges that are not recorded as gaps yet, in the order in which they were noticed."""
        return iter(self._pending)


def _when_noticed(row: Missing) -> tuple[datetime, str, str, int]:
    return (row.noticed_at, row.source, row.epoch, row.first)
