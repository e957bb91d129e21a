"""Reads stored rows back that have left memory, before messages that may touch them are folded."""

from collections.abc import Mapping
from typing import Any

from psycopg import AsyncConnection

from gpuledger.domain.fact import State, Touched
from gpuledger.domain.table import Table
from gpuledger.projection.rows import RowStore


async def page_in(
    connection: AsyncConnection[Any], rows: Mapping[str, RowStore[Any]], state: State, touched: Touched
) -> None:
    """Read back the retired rows that may be touched; one query a table.

    A table whose spec names another one (`page_after`) is asked for what that one has, which is asked before.
    """
    keys: dict[str, set[Any]] = {}
    for name, key in touched:
        keys.setdefault(name, set()).add(key)
    stored: dict[str, set[Any]] = {}
    for name in sorted(keys, key=lambda name: rows[name].spec.page_after is not None):
        table: Table[Any] = state.tables()[name]
        absent = [key for key in keys[name] if key not in table.rows]
        if table.spec.page_after in stored:
            absent = [key for key in absent if key in stored[table.spec.page_after]]
        stored[name] = set()
        if absent:
            found = await rows[name].page(connection, absent)
            stored[name] = {getattr(row, table.spec.page_by or "") for row in found}
            table.load(found)
