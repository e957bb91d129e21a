"""Deletes the rows that ended before a history begins, a few pages of a table at a time, behind the checkpoint.

The fold has dropped them where it read that the history was shortened; they are none to everybody who compares. A pass
goes once through the pages that the table had when it began: whatever is written later has not ended before. Of a table
by months it goes through those that began before, and a month that lies wholly before is dropped where it can be (see
`whole_months`). That a pass is over stands in the table's comment, which goes where the table goes; a process that ends
before begins anew.
"""

from datetime import datetime
from typing import Any, Final, NamedTuple

import structlog
from psycopg.sql import SQL, Identifier, Literal

from gpuledger.domain.fact import State
from gpuledger.domain.table import TableSpec
from gpuledger.projection.checkpoint import LIVE, Checkpoint, schema_of
from gpuledger.projection.month_tables import MonthTables, Partition, partitions_of
from gpuledger.projection.store import ProjectionStore
from gpuledger.projection.whole_months import WholeMonth, clear, lies_before, look

PAGES_PER_STEP: Final = 2_048
"""How many pages of a table one transaction looks at: 16 MiB, which hold some ten thousand rows."""

_SWEPT: Final = "Without what ended before"
"""How the comment begins on a table through which a pass is over; the time follows."""

_COMMENT: Final = "SELECT obj_description(to_regclass(%s), 'pg_class')"
_PAGES: Final = "SELECT pg_relation_size(to_regclass(%s)) / current_setting('block_size')::bigint"
_DELETE: Final = SQL("DELETE FROM {} WHERE ctid >= {}::tid AND ctid < {}::tid AND {} < {}")

log = structlog.get_logger("gpuledger.projection")


class _Pass(NamedTuple):
    """A pass through a table: since when its history is kept, and the parts that are left, of which one is under way.

    `pages` is how many pages that part had when its turn came, and `month` what is found in it as long as it may go as
    a whole.
    """

    spec: TableSpec[Any]
    begins: datetime
    left: tuple[Partition, ...]
    next_page: int = 0
    pages: int | None = None
    month: WholeMonth | None = None
    deleted: int = 0
    months: int = 0

    @property
    def is_over(self) -> bool:
        """Whether it has been through all parts."""
        return not self.left

    def by_rows(self) -> "_Pass":
        """Begin anew with the part under way, and delete its rows."""
        return self._replace(next_page=0, month=None)

    def next_part(self) -> "_Pass":
        """Go on with the next part."""
        return self._replace(left=self.left[1:], next_page=0, pages=None, month=None)


class HistorySweep:
    """The passes through the live tables of one projection, one after the other."""

    def __init__(self, store: ProjectionStore) -> None:
        self._store = store
        self._swept: dict[str, datetime] = {}
        self._pass: _Pass | None = None

    async def step(self, state: State, ours: Checkpoint) -> bool:
        """Delete a few rows where there may be such; False where there are none.

        Raises:
            WriterFencedError: somebody else wrote or swapped the rows.
        """
        for name, table in state.tables().items():
            if table.begins is not None and self._swept.get(name) != table.begins:
                await self._step(table.spec, table.begins, ours)
                return True
        return False

    async def _step(self, spec: TableSpec[Any], begins: datetime, ours: Checkpoint) -> None:
        async with self._store.connection.transaction():
            await self._store.hold(ours)
            before = self._pass
            if before is None or (before.spec, before.begins) != (spec, begins):
                before = await self._begin(spec, begins)
            after = before if before is None else await self._advance(before)
        self._pass = after
        if after is None or after.is_over:
            self._swept[spec.name] = begins
        if after is not None and after.is_over:
            log.info(
                "history.swept", table=spec.name, begins=begins.isoformat(), rows=after.deleted, months=after.months
            )

    async def _begin(self, spec: TableSpec[Any], begins: datetime) -> _Pass | None:
        """A new pass; None where one is over already."""
        schema, connection = schema_of(LIVE), self._store.connection
        cursor = await connection.execute(_COMMENT, (Identifier(schema, spec.name).as_string(connection),))
        if await cursor.fetchone() == (_comment(begins),):
            return None
        parts = await partitions_of(connection, schema, spec.name)
        if parts is None:
            return _Pass(spec, begins, (Partition(schema, spec.name, None),))
        began = [one for one in parts if one.month is None or one.month.begins is None or one.month.begins < begins]
        return _Pass(spec, begins, tuple(began))

    async def _advance(self, one: _Pass) -> _Pass:
        """The pass after the next pages; the table's comment says when it is over."""
        if not one.is_over:
            one = await self._pages(one if one.pages is not None else await self._begin_part(one))
        if one.is_over:
            table = Identifier(schema_of(LIVE), one.spec.name)
            statement = SQL("COMMENT ON TABLE {} IS {}").format(table, Literal(_comment(one.begins)))
            await self._store.connection.execute(statement)
        return one

    async def _begin_part(self, one: _Pass) -> _Pass:
        part, connection = one.left[0], self._store.connection
        found = await (await connection.execute(_PAGES, (part.identifier.as_string(connection),))).fetchone()
        assert found is not None, "a size is one row"
        month = None
        if lies_before(part, one.begins):
            month = WholeMonth(part, one.spec.ends, one.begins)
            self._months(one).written.discard(month.month)
        return one._replace(pages=found[0], month=month)

    async def _pages(self, one: _Pass) -> _Pass:
        pages, end = one.pages, one.next_page + PAGES_PER_STEP
        assert pages is not None, "it has begun"
        if one.month is None:
            one = await self._delete(one, end)
        else:
            month = await look(self._store.connection, one.month, one.next_page, end)
            if month.is_kept or month.month in self._months(one).written:
                return one.by_rows()
            one = one._replace(month=month)
        if end < pages:
            return one._replace(next_page=end)
        return one.next_part() if one.month is None else await self._clear(one, one.month)

    async def _delete(self, one: _Pass, end: int) -> _Pass:
        pages = Literal(f"({one.next_page},0)"), Literal(f"({end},0)")
        part, begins = one.left[0].identifier, Literal(one.begins)
        cursor = await self._store.connection.execute(_DELETE.format(part, *pages, Identifier(one.spec.ends), begins))
        return one._replace(deleted=one.deleted + cursor.rowcount)

    async def _clear(self, one: _Pass, month: WholeMonth) -> _Pass:
        if not await clear(self._store.connection, month):
            return one.by_rows()
        self._months(one).forget()
        return one.next_part()._replace(months=one.months + 1)

    def _months(self, one: _Pass) -> MonthTables:
        months = self._store.months(one.spec.name)
        assert months is not None, "a part that lies before is a month"
        return months


def _comment(begins: datetime) -> str:
    return f"{_SWEPT} {begins.isoformat()}"
