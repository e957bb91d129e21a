"""A projection's state, loaded from the tables that it writes. Nothing here writes."""

from collections.abc import Collection, Mapping
from typing import Any, Protocol

from gpuledger.cli.backend import Backend
from gpuledger.db.readonly import read_only
from gpuledger.domain.table import Table
from gpuledger.projection.rows import RowStore
from gpuledger.projection.store import LIVE, schema_of


class HasTables(Protocol):
    """A state that is kept in tables."""

    def tables(self) -> Mapping[str, Table[Any]]:
        """Every table, by name."""
        ...


async def load(place: Backend, state: HasTables, *, without: Collection[str] = ()) -> None:
    """Fill a new state with the rows of now, but for the tables of these names; it must never be written."""
    for table in state.tables().values():
        table.never_written()
    async with read_only(place.database_url, application_name="gpuledger state") as connection:
        for table in (table for name, table in state.tables().items() if name not in without):
            async for rows in RowStore(table.spec, schema_of(LIVE)).live(connection):
                table.load(rows)
