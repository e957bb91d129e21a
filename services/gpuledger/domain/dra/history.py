"""How the views of pools stood, and since when: conditions, and rows of history. A fold keeps it.

The past is kept in the order of the log: a fact that is older than the last one about its view counts from that one's
time on. Of a view that is gone nothing is remembered but its rows; one that comes again with an older fact, which only
a clock that was set back leads to, may begin before the rows of the view that was.
"""

from collections.abc import Iterator
from datetime import datetime

from gpuledger.domain.dra import rows
from gpuledger.domain.dra.evaluation import Evaluated
from gpuledger.domain.dra.objects import PoolId
from gpuledger.domain.dra.status import PoolCondition, conditions_of
from gpuledger.domain.dra.verdicts import DeviceState
from gpuledger.domain.table import Table

CONDITION_TYPES = ("Complete", "Valid")
_COUNTED = rows.PoolAvailability._fields.index("generation")


class PoolHistory:
    """The tables of conditions and of how many devices were in which state."""

    def __init__(self) -> None:
        self.condition = Table(rows.CONDITION, "pool")
        self.availability = Table(rows.AVAILABILITY, "pool")
        self._open: dict[PoolId, dict[str, rows.PoolAvailability]] = {}

    def conditions(self, pool: PoolId, view: str) -> Iterator[PoolCondition]:
        """The conditions of a view."""
        for type_ in CONDITION_TYPES:
            row = self.condition.get((*pool, view, type_))
            if row is not None:
                yield PoolCondition(row.type, row.status, row.reason, row.message, row.changed_at)

    def note(self, view: str, seen: Evaluated, at: datetime) -> None:
        """A view stands so from now on."""
        self._note_conditions(view, seen, at)
        self._note_counts(_counted(view, seen, at))

    def end(self, pool: PoolId, view: str, at: datetime) -> None:
        """A view is no more."""
        before = self._open_rows(pool).pop(view, None)
        if before is not None:
            self._end(before, at)
        for type_ in CONDITION_TYPES:
            self.condition.delete((*pool, view, type_))

    def forget(self, pool: PoolId) -> None:
        """Nothing is kept of a pool that is no more; its rows stay in the tables."""
        self._open.pop(pool, None)

    def _open_rows(self, pool: PoolId) -> dict[str, rows.PoolAvailability]:
        """How each view of a pool stands, as far as it was noted."""
        known = self._open.get(pool)
        if known is None:
            every = self.availability.where("pool", pool.name)
            known = {row.node: row for row in every if row.driver == pool.driver and row.valid_to is None}
            self._open[pool] = known
        return known

    def _note_conditions(self, view: str, seen: Evaluated, at: datetime) -> None:
        for type_, status, reason, message in conditions_of(seen.view):
            before = self.condition.get((*seen.pool, view, type_))
            since = at if before is None or before.status != status else before.changed_at
            since = since if before is None else max(since, before.changed_at)
            row = rows.PoolCondition(*seen.pool, view, type_, status, reason, message, since)
            if row != before:
                self.condition.put(row)

    def _note_counts(self, now: rows.PoolAvailability) -> None:
        """Begin another row where something changed; of one moment the last one counts."""
        open_ = self._open_rows(PoolId(now.driver, now.pool))
        before = open_.get(now.node)
        if before is not None:
            if before[_COUNTED:] == now[_COUNTED:]:
                return
            now = now._replace(valid_from=self._end(before, now.valid_from))
        open_[now.node] = now
        self.availability.put(now)

    def _end(self, row: rows.PoolAvailability, at: datetime) -> datetime:
        """End a row, not before it began; one that would have lasted no time never was. Returns when it ended."""
        if at <= row.valid_from:
            self.availability.delete((row.driver, row.pool, row.node, row.valid_from))
            return row.valid_from
        self.availability.put(row._replace(valid_to=at))
        return at


def _counted(view: str, seen: Evaluated, at: datetime) -> rows.PoolAvailability:
    counts, pool = seen.counts, seen.view
    return rows.PoolAvailability(
        *seen.pool, view, at, None, pool.generation, pool.is_complete, pool.is_valid,
        counts.total(), seen.allocated, counts[DeviceState.AVAILABLE],
        counts[DeviceState.PARTIAL], counts[DeviceState.UNAVAILABLE],
    )  # fmt: skip
