"""Rows of one thing out of the projections' tables, for pages about it."""

from collections.abc import Mapping, Sequence
from typing import Any

from psycopg import AsyncConnection
from psycopg.sql import SQL, Composable, Identifier, Literal

from gpuledger.cli.rows import RowDict
from gpuledger.domain.devices.fold import SLOT
from gpuledger.domain.inventory.device_names import place_of
from gpuledger.domain.table import R, TableSpec

LIVE = "gpuledger_live"
ROWS_MAX = 10_000
"""Rows that a page is made of at most."""


async def rows_where(
    connection: AsyncConnection[Any],
    spec: TableSpec[Any],
    where: Mapping[str, object],
    *,
    newest: Sequence[str] = (),
    limit: int = ROWS_MAX,
) -> list[RowDict]:
    """The rows whose columns have these values (a list: one of them); `newest` orders by columns, last first."""
    columns = SQL(", ").join(Identifier(name) for name in spec.columns)
    query = SQL("SELECT {} FROM {} WHERE {}").format(columns, Identifier(LIVE, spec.name), _condition(where))
    last_first = [SQL("{} DESC NULLS LAST").format(Identifier(name)) for name in newest]
    order = SQL(", ").join(last_first or map(Identifier, spec.key))
    cursor = await connection.execute(SQL("{} ORDER BY {} LIMIT {}").format(query, order, Literal(limit)))
    return [dict(zip(spec.columns, row, strict=True)) for row in await cursor.fetchall()]


def row_of(spec: TableSpec[R], found: RowDict) -> R:
    """A row that was found, as what the table is made of."""
    values: list[Any] = [found[name] for name in spec.columns]
    return spec.row(*values)


async def slots_of(connection: AsyncConnection[Any], node: str) -> list[RowDict]:
    """The slots that were declared to be in a node, and those that bear its name before a slash."""
    columns = SQL(", ").join(Identifier(name) for name in SLOT.columns)
    query = SQL("SELECT {} FROM {} WHERE node = {} OR (node IS NULL AND starts_with(slot, {})) ORDER BY slot LIMIT {}")
    table = Identifier(LIVE, SLOT.name)
    cursor = await connection.execute(
        query.format(columns, table, Literal(node), Literal(place_of(node, "")), Literal(ROWS_MAX))
    )
    return [dict(zip(SLOT.columns, row, strict=True)) for row in await cursor.fetchall()]


async def has_table(connection: AsyncConnection[Any], spec: TableSpec[Any]) -> bool:
    """Whether the projection that keeps this table was ever begun here."""
    cursor = await connection.execute("SELECT to_regclass(%s) IS NOT NULL", [f"{LIVE}.{spec.name}"])
    row = await cursor.fetchone()
    return bool(row and row[0])


def _condition(where: Mapping[str, object]) -> Composable:
    return SQL(" AND ").join(
        SQL("{} = ANY({})").format(Identifier(name), Literal(value if isinstance(value, list) else [value]))
        for name, value in where.items()
    )
