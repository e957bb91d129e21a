"""Keeps the history of a pool's views: their conditions, and how many devices were in which state from when to when.

The history follows the order of the log: a fact that is older than the last one about its view takes effect at the time
of that last one. A view that disappears leaves only its rows, so one that returns with an older fact, after a clock was
set back, may begin before rows of its former self.
"""

from collections.abc import Iterator
from datetime import datetime

from gpuledger.domain.dra import rows
from gpuledger.domain.dra.device_state import AvailabilityState
from gpuledger.domain.dra.evaluation import PoolEvaluation
from gpuledger.domain.dra.objects import PoolId
from gpuledger.domain.dra.status import CONDITION_TYPES, conditions_of
from gpuledger.domain.table import Table

_COUNTED = rows.PoolAvailability._fields.index("generation")


class PoolHistory:
    """The tables of conditions and of how many devices were in which state."""

    def __init__(self) -> None:
        self.condition = Table(rows.CONDITION, "pool")
        self.availability = Table(rows.AVAILABILITY, "pool")
        self._open: dict[PoolId, dict[str, rows.PoolAvailability]] = {}

    def conditions(self, pool: PoolId, view: str) -> Iterator[rows.SlicePoolCondition]:
        """The conditions of a view."""
        for type_ in CONDITION_TYPES:
            row = self.condition.get((*pool, view, type_))
            if row is not None:
                yield row

    def record(self, view: str, evaluation: PoolEvaluation, at: datetime) -> None:
        """Record a view's conditions and counts from this time on."""
        self._record_conditions(view, evaluation, at)
        self._record_counts(_availability_row(view, evaluation, at))

    def end(self, pool: PoolId, view: str, at: datetime) -> None:
        """End the history of a view."""
        before = self._open_rows(pool).pop(view, None)
        if before is not None:
            self._end(before, at)
        for type_ in CONDITION_TYPES:
            self.condition.delete((*pool, view, type_))

    def forget(self, pool: PoolId) -> None:
        """Forget a pool that is gone; its rows stay in the tables."""
        self._open.pop(pool, None)

    def _open_rows(self, pool: PoolId) -> dict[str, rows.PoolAvailability]:
        """The open row of each view of a pool."""
        open_rows = self._open.get(pool)
        if open_rows is None:
            every = self.availability.where("pool", pool.name)
            open_rows = {row.node: row for row in every if row.driver == pool.driver and row.valid_to is None}
            self._open[pool] = open_rows
        return open_rows

    def _record_conditions(self, view: str, evaluation: PoolEvaluation, at: datetime) -> None:
        for type_, status, reason, message in conditions_of(evaluation.view):
            before = self.condition.get((*evaluation.pool, view, type_))
            row = rows.SlicePoolCondition(*evaluation.pool, view, type_, status, reason, message, at)
            if before is not None:
                is_as_before = before.shown_status == row.shown_status
                row = row._replace(changed_at=before.changed_at if is_as_before else max(at, before.changed_at))
            if row != before:
                self.condition.put(row)

    def _record_counts(self, row: rows.PoolAvailability) -> None:
        """Begin a new row where a count changed; of several at one moment the last one counts."""
        open_ = self._open_rows(PoolId(row.driver, row.pool))
        before = open_.get(row.node)
        if before is not None:
            if before[_COUNTED:] == row[_COUNTED:]:
                return
            row = row._replace(valid_from=self._end(before, row.valid_from))
        open_[row.node] = row
        self.availability.put(row)

    def _end(self, row: rows.PoolAvailability, at: datetime) -> datetime:
        """End a row and return when it ended: not before it began. A row that would last no time is deleted."""
        if at <= row.valid_from:
            self.availability.delete((row.driver, row.pool, row.node, row.valid_from))
            return row.valid_from
        self.availability.put(row._replace(valid_to=at))
        return at


def _availability_row(view: str, evaluation: PoolEvaluation, at: datetime) -> rows.PoolAvailability:
    counts, pool = evaluation.counts, evaluation.view
    return rows.PoolAvailability(
        *evaluation.pool, view, at, None, pool.generation, pool.is_complete, pool.is_consistent is not False,
        counts.total(), evaluation.allocated, counts[AvailabilityState.AVAILABLE],
        counts[AvailabilityState.PARTIAL], counts[AvailabilityState.UNAVAILABLE],
    )  # fmt: skip
