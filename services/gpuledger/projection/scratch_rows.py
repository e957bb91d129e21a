"""A fold's rows in temporary tables: written as the fold goes on, so that memory holds what has not retired.

It keeps no checkpoint, no numbers and no outbox: what it writes is never continued.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping, Sequence
from datetime import datetime
from typing import Any

from psycopg import AsyncConnection

from gpuledger.domain.fact import State, Touched, changed_rows
from gpuledger.projection.definition import Projection
from gpuledger.projection.paging import page_in
from gpuledger.projection.rows import Piece, RowStore

CHANGED_ROWS_MAX = 100_000
"""How many rows may have changed before they are written: the fewer writes, the fewer rows are written twice."""


class ScratchRows:
    """The tables of one projection that are kept; `names` are those that have another name in the schema."""

    def __init__(
        self,
        connection: AsyncConnection[Any],
        projection: Projection,
        state: State,
        schema: str,
        names: Mapping[str, str],
        after_write: Callable[[], Awaitable[None]],
    ) -> None:
        """`after_write` is awaited whenever something was written; it raises where the tables take too much room."""
        self._connection = connection
        self._state = state
        self._after_write = after_write
        self._rows: dict[str, RowStore[Any]] = {
            spec.name: RowStore(spec._replace(name=names[spec.name]), schema)
            for spec in projection.specs
            if spec.name in names
        }
        self._begins: dict[str, datetime] = {}

    @property
    def names(self) -> Sequence[str]:
        """The tables that are kept."""
        return list(self._rows)

    @property
    def filled_at_once(self) -> int:
        """One: temporary tables are those of a session."""
        return 1

    async def fill(self, table: str, pieces: AsyncIterator[Piece]) -> None:
        """Write all rows of a table that is empty; see `RowStore.fill`."""
        await self._rows[table].fill(self._connection, self._watched(pieces))

    async def _watched(self, pieces: AsyncIterator[Piece]) -> AsyncIterator[Piece]:
        async for piece in pieces:
            yield piece
            await self._after_write()

    async def empty(self) -> None:
        """Remove every row of every table."""
        for rows in self._rows.values():
            await rows.empty(self._connection)

    @property
    def is_full(self) -> bool:
        """Whether it is time to write."""
        return changed_rows(self._state) >= CHANGED_ROWS_MAX

    async def page_in(self, touched: Touched) -> None:
        """Read back the retired rows that may be touched."""
        await page_in(self._connection, self._rows, self._state, touched)

    async def flush(self) -> None:
        """Write what changed since the last time, and delete what ended before its history begins.

        Changes of tables that are not kept are dropped.
        """
        async with self._connection.transaction():
            for name, table in self._state.tables().items():
                if table.has_changes():
                    changes = table.take_changes()
                    if name in self._rows:
                        await self._rows[name].write(self._connection, changes)
                if name in self._rows and table.begins is not None and self._begins.get(name) != table.begins:
                    await self._rows[name].delete_before(self._connection, table.begins)
                    self._begins[name] = table.begins
        await self._after_write()


def kept_tables(projection: Projection, reached: Collection[str]) -> list[str]:
    """The tables to keep for a query that reaches some: those, and the ones that rows are read back from."""
    return [spec.name for spec in projection.specs if spec.name in reached or spec.page_by]
