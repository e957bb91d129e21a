"""How fast a rebuild copies the rows of a snapshot, beside psql, which copies the same rows without looking at them."""

import asyncio
import subprocess
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

from psycopg import AsyncConnection
from psycopg.sql import SQL, Identifier

from bench.commands import took_s
from bench.report import Figure
from gpuledger.db.engine import connect
from gpuledger.local.servers.postgres_binaries import find_binaries
from gpuledger.projection.checkpoint import LIVE, NEXT, schema_of
from gpuledger.projection.definition import Projection
from gpuledger.projection.editions import drop_edition
from gpuledger.projection.fold_snapshots.begun_tables import begin_tables
from gpuledger.projection.replay import skipped_positions
from gpuledger.projection.rows import create_like
from gpuledger.projection.shadow_rows import ShadowRows
from gpuledger.projection.store import ProjectionStore
from gpuledger.tools.queries.backend import Backend

CEILING: Final = "bench_copied"
"""The schema of the tables that psql fills."""


async def copying(backend: Backend, projection: Projection, label: str) -> Figure:
    """Rows a second with their indexes; the projection was built, and nobody rebuilds it meanwhile."""
    async with connect(backend.database_url, application_name="bench") as connection:
        try:
            copied_s = await _copied_s(connection, backend, projection)
            rows = await _row_count(connection, projection)
            psql_s = await _psql_s(connection, backend.database_url, projection)
        finally:
            await drop_edition(connection, projection, NEXT)
    peer = "psql, tables one by one, then the indexes"
    return Figure(f"rows copied from a snapshot, {label}", rows / copied_s, "rows/s", peer, rows / psql_s, None)


async def _copied_s(connection: AsyncConnection[Any], backend: Backend, projection: Projection) -> float:
    """How long it takes to fill new tables, without the rows that the fold keeps in memory."""
    await _create(connection, projection, schema_of(NEXT))
    ledger, store = backend.ledger, ProjectionStore(connection, projection, NEXT)
    shadow = ShadowRows(store, await store.create(ledger.identity, "bench"), backend.database_url)
    until, skipped, loaded_s = await ledger.head(), await skipped_positions(ledger), 0.0
    began_s = asyncio.get_running_loop().time()

    def tables_of(_: object) -> ShadowRows:
        nonlocal loaded_s
        loaded_s = asyncio.get_running_loop().time() - began_s
        return shadow

    whole = await took_s(begin_tables(projection, backend.snapshots, until, skipped, tables_of))
    return whole.wall_s - loaded_s


async def _create(connection: AsyncConnection[Any], projection: Projection, schema: str) -> None:
    for spec in projection.specs:
        served = Identifier(schema_of(LIVE), spec.name)
        await create_like(connection, Identifier(schema, spec.name), served, spec.by_month)


async def _row_count(connection: AsyncConnection[Any], projection: Projection) -> int:
    found = 0
    for spec in projection.specs:
        count = SQL("SELECT count(*) FROM {}").format(Identifier(schema_of(NEXT), spec.name))
        ((rows,),) = await (await connection.execute(count)).fetchall()
        found += rows
    return found


async def _psql_s(connection: AsyncConnection[Any], database_url: str, projection: Projection) -> float:
    """The same rows by psql into tables without indexes, one after the other, and then the indexes."""
    schema = Identifier(CEILING)
    await connection.execute(SQL("CREATE SCHEMA {}").format(schema))
    try:
        with TemporaryDirectory() as folder:
            for spec in projection.specs:
                like = SQL("CREATE TABLE {} (LIKE {})").format(
                    Identifier(CEILING, spec.name), Identifier(schema_of(NEXT), spec.name)
                )
                await connection.execute(like)
                source = f"{schema_of(NEXT)}.{spec.name}"
                await _psql(database_url, f"\\copy {source} TO '{_file(folder, spec.name)}' csv")
            return (await took_s(_fill(connection, database_url, projection, folder))).wall_s
    finally:
        await connection.execute(SQL("DROP SCHEMA {} CASCADE").format(schema))


async def _fill(connection: AsyncConnection[Any], database_url: str, projection: Projection, folder: str) -> None:
    for spec in projection.specs:
        await _psql(database_url, f"\\copy {CEILING}.{spec.name} FROM '{_file(folder, spec.name)}' csv")
    for spec in projection.specs:
        source = f"{schema_of(NEXT)}.{spec.name}"
        indexes = "SELECT pg_get_indexdef(indexrelid) FROM pg_index WHERE indrelid = %s::regclass"
        for (definition,) in await (await connection.execute(indexes, (source,))).fetchall():
            await connection.execute(definition.replace(f" ON {source} ", f" ON {CEILING}.{spec.name} ").encode())


async def _psql(database_url: str, command: str) -> None:
    arguments = [str(find_binaries() / "psql"), database_url, "-qc", command]
    await asyncio.to_thread(subprocess.run, arguments, check=True, stdout=subprocess.DEVNULL)


def _file(folder: str, table: str) -> Path:
    return Path(folder) / f"{table}.csv"
