"""Deletes the rows that ended before a history begins, a few pages of a table at a time, behind the checkpoint.

The fold has dropped them where it read that the history was shortened; they are none to everybody who compares. A pass
goes once through the pages that the table had when it began: whatever is written later has not ended before. That a
pass is over stands in the table's comment, which goes where the table goes; a process that ends before begins anew.
"""

from datetime import datetime
from typing import Any, Final, NamedTuple

import structlog
from psycopg.sql import SQL, Identifier, Literal

from gpuledger.domain.fact import State
from gpuledger.domain.table import TableSpec
from gpuledger.projection.checkpoint import LIVE, Checkpoint, schema_of
from gpuledger.projection.store import ProjectionStore

PAGES_PER_STEP: Final = 2_048
"""How many pages of a table one transaction looks at: 16 MiB, which hold some ten thousand rows."""

_SWEPT: Final = "Without what ended before"
"""How the comment begins on a table through which a pass is over; the time follows."""

_FOUND: Final = """
SELECT obj_description(oid, 'pg_class'), pg_relation_size(oid) / current_setting('block_size')::bigint
FROM pg_class WHERE oid = to_regclass(%s)
"""
_DELETE: Final = SQL("DELETE FROM {} WHERE ctid >= {}::tid AND ctid < {}::tid AND {} < {}")

log = structlog.get_logger("gpuledger.projection")


class _Pass(NamedTuple):
    """A pass through a table: since when its history is kept, the next page, how many there were, and rows deleted."""

    spec: TableSpec[Any]
    begins: datetime
    next_page: int
    pages: int
    deleted: int = 0

    @property
    def is_over(self) -> bool:
        """Whether it has been through all pages."""
        return self.next_page >= self.pages


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
            after = before if before is None else await self._delete(before)
        self._pass = after
        if after is None or after.is_over:
            self._swept[spec.name] = begins
        if after is not None and after.is_over:
            log.info("history.swept", table=spec.name, begins=begins.isoformat(), rows=after.deleted)

    async def _begin(self, spec: TableSpec[Any], begins: datetime) -> _Pass | None:
        """A new pass; None where one is over already."""
        connection = self._store.connection
        cursor = await connection.execute(_FOUND, (_table(spec).as_string(connection),))
        found = await cursor.fetchone()
        assert found is not None, "the rows are loaded"
        comment, pages = found
        return None if comment == _comment(begins) else _Pass(spec, begins, 0, pages)

    async def _delete(self, one: _Pass) -> _Pass:
        """The pass after the next pages; the table's comment says when it is over."""
        connection, table, end = self._store.connection, _table(one.spec), one.next_page + PAGES_PER_STEP
        pages = Literal(f"({one.next_page},0)"), Literal(f"({end},0)")
        cursor = await connection.execute(_DELETE.format(table, *pages, Identifier(one.spec.ends), Literal(one.begins)))
        after = one._replace(next_page=end, deleted=one.deleted + cursor.rowcount)
        if after.is_over:
            await connection.execute(SQL("COMMENT ON TABLE {} IS {}").format(table, Literal(_comment(one.begins))))
        return after


def _table(spec: TableSpec[Any]) -> Identifier:
    return Identifier(schema_of(LIVE), spec.name)


def _comment(begins: datetime) -> str:
    return f"{_SWEPT} {begins.isoformat()}"
