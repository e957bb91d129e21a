"""The editions of a projection's rows, which change places as a whole: their tables, and what is kept beside these."""

from typing import Any

from psycopg import AsyncConnection
from psycopg.sql import SQL, Identifier

from gpuledger.projection.checkpoint import LIVE, Checkpoint, schema_of
from gpuledger.projection.definition import Projection
from gpuledger.projection.month_tables import move_table

_OF_EDITIONS = ("seen", "enforced_rule")
"""The tables beside an edition's own that have rows of it."""


def rebuild_lock(projection: Projection) -> str:
    """The name of the lock of whoever makes an edition, or changes those that are there."""
    return f"rebuild:{projection.name}"


async def move_edition(connection: AsyncConnection[Any], projection: Projection, before: str, after: str) -> None:
    """Let an edition take another's place, which is free."""
    for spec in projection.specs:
        await move_table(connection, spec.name, schema_of(before), schema_of(after))
    await connection.execute(
        "UPDATE gpuledger.projection SET edition = %s WHERE name = %s AND edition = %s",
        (after, projection.name, before),
    )
    for bookkeeping in _OF_EDITIONS:
        table = Identifier("gpuledger", bookkeeping)
        await connection.execute(
            SQL("UPDATE {} SET edition = %s WHERE projection = %s AND edition = %s").format(table),
            (after, projection.name, before),
        )


async def renew_edition(
    connection: AsyncConnection[Any], projection: Projection, before: Checkpoint, incarnation: str
) -> Checkpoint:
    """Give the live rows another incarnation, so that whoever has loaded them before writes them no more."""
    await connection.execute(
        "UPDATE gpuledger.projection SET incarnation = %s WHERE name = %s AND edition = %s",
        (incarnation, projection.name, LIVE),
    )
    return before._replace(incarnation=incarnation)


async def drop_edition(connection: AsyncConnection[Any], projection: Projection, edition: str) -> None:
    """Drop an edition with all that is kept of it."""
    async with connection.transaction():
        await drop_tables(connection, projection, edition)
        await connection.execute(
            "DELETE FROM gpuledger.projection WHERE name = %s AND edition = %s", (projection.name, edition)
        )
        for bookkeeping in _OF_EDITIONS:
            table = Identifier("gpuledger", bookkeeping)
            await connection.execute(
                SQL("DELETE FROM {} WHERE projection = %s AND edition = %s").format(table), (projection.name, edition)
            )


async def drop_tables(connection: AsyncConnection[Any], projection: Projection, edition: str) -> None:
    """Drop an edition's own tables."""
    for spec in projection.specs:
        table = Identifier(schema_of(edition), spec.name)
        await connection.execute(SQL("DROP TABLE IF EXISTS {} CASCADE").format(table))
