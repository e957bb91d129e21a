"""Reads stored rows back that have left memory, before the events that may touch them are folded."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from psycopg import AsyncConnection

from gpuledger.domain.fact import State, Touched
from gpuledger.domain.table import Table
from gpuledger.projection.checker import Checked
from gpuledger.projection.fold import Fold
from gpuledger.projection.rows import RowStore

Page = Callable[[Touched], Awaitable[None]]
"""Reads back the retired rows that may be touched."""


async def fold_paged(fold: Fold, batch: Sequence[Checked], page: Page) -> None:
    """Fold messages that were checked, with the retired rows that they touch; raises as `Fold.apply_all`."""
    if fold.projection.pages:
        await page(fold.touched(batch))
    for touched in fold.applied(batch):
        await page(touched)


async def page_in(
    connection: AsyncConnection[Any], rows: Mapping[str, RowStore[Any]], state: State, touched: Touched
) -> None:
    """Read back the retired rows that may be touched; one query a table and column.

    A table whose spec names another one (`page_after`) is asked for what that one has, which is asked before.
    """
    values: dict[tuple[str, str], set[Any]] = {}
    for name, column, value in touched:
        values.setdefault((name, column), set()).add(value)
    stored: dict[str, set[Any]] = {}
    for name, column in sorted(values, key=lambda one: rows[one[0]].spec.page_after is not None):
        table: Table[Any] = state.tables()[name]
        absent = [value for value in values[name, column] if value not in table.rows]
        if table.spec.page_after in stored:
            absent = [value for value in absent if value in stored[table.spec.page_after]]
        stored.setdefault(name, set())
        if absent:
            found = await rows[name].page(connection, column, absent)
            stored[name].update(getattr(row, column) for row in found)
            table.load(found)
