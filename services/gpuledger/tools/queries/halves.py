"""Asks for all rows of a kind at a time over two sessions, each for half of the keys, both of one moment.

For each device of a large fleet PostgreSQL looks its version up, which is most of what `get --at` waits for. It does
not share that among workers of its own, as a look-up that depends on a row is for one process alone. Two sessions take
half the time where two processors are free.
"""

import asyncio
from dataclasses import replace
from datetime import datetime
from typing import Final

import psycopg
from psycopg.sql import SQL, Identifier, Literal

from gpuledger.db.engine import AsyncConnection
from gpuledger.db.errors import DatabaseUnavailableError
from gpuledger.db.readonly import reader_session
from gpuledger.runtime.tasks import abandon
from gpuledger.tools.queries.backend import Backend, read
from gpuledger.tools.queries.found_rows import FoundRows
from gpuledger.tools.queries.rows import LIVE, ROWS_SETTINGS, KeyRange, RowFilter, RowSource, rows_at

HALVED_ROWS_MIN: Final = 20_000
"""From so many rows on, a second session saves more time than it takes to begin."""

SECOND_LOCK_WAIT_MS: Final = 200
"""How long the second session waits for tables: a rebuild that waits for the first one would hold up both."""

NOT_HELD: Final = (
    psycopg.errors.InvalidParameterValue, psycopg.errors.UndefinedObject, psycopg.errors.ObjectNotInPrerequisiteState,
)  # fmt: skip
"""What a server answers that does not have the moment: the session reached another one, as a proxy chose it."""

_APPLICATION: Final = "gpuledger get"
_ROWS: Final = "SELECT reltuples::bigint FROM pg_class WHERE oid = to_regclass(%s)"


async def all_rows_at(
    backend: Backend, source: RowSource, at: datetime, row_filter: RowFilter, *, halved_min: int = HALVED_ROWS_MIN
) -> FoundRows:
    """The rows as they were at a time; those of a small table, and of some names, over one session.

    Raises:
        RequestError: this kind has no history in event time, or it is not kept since then.
        DatabaseUnavailableError: no connection can be made, or it is lost.
    """

    async def ask(connection: AsyncConnection) -> FoundRows:
        split = await _middle(connection, source, halved_min) if _may_halve(backend, source, row_filter) else None
        if split is None:
            return await rows_at(connection, source, at, row_filter)
        below, above = (replace(row_filter, keys=KeyRange(split, is_below=one)) for one in (True, False))
        moment = await moment_of(connection)
        another = asyncio.create_task(over_another(backend.database_url, moment, source, at, above))
        try:
            first = await rows_at(connection, source, at, below)
            second = await another
        finally:
            await abandon(another)
        return first.followed_by(await rows_at(connection, source, at, above) if second is None else second)

    return await read(backend, ask, application_name=_APPLICATION, settings=ROWS_SETTINGS)


def _may_halve(backend: Backend, source: RowSource, row_filter: RowFilter) -> bool:
    """A replica may cancel a question, which is then asked again as a whole."""
    is_of_all = not (row_filter.names or row_filter.where or row_filter.lasting)
    return is_of_all and len(source.order) == 1 and backend.replica is None and backend.session is None


async def _middle(connection: AsyncConnection, source: RowSource, halved_min: int) -> str | None:
    """The key in the middle of a table's rows, as PostgreSQL last counted them; None where they are few."""
    found = await (await connection.execute(_ROWS, [f"{LIVE}.{source.spec.name}"])).fetchone()
    if found is None or found[0] < halved_min:
        return None
    key, table = Identifier(source.order[0]), Identifier(LIVE, source.spec.name)
    query = SQL("SELECT {0} FROM {1} ORDER BY {0} LIMIT 1 OFFSET {2}").format(key, table, Literal(found[0] // 2))
    middle = await (await connection.execute(query)).fetchone()
    return None if middle is None else middle[0]


async def moment_of(connection: AsyncConnection) -> str:
    """What lets another session see the moment that a transaction shows, for as long as that goes on."""
    found = await (await connection.execute("SELECT pg_export_snapshot()")).fetchone()
    assert found is not None, "it returns one row"
    return str(found[0])


async def over_another(
    url: str, moment: str, source: RowSource, at: datetime, row_filter: RowFilter
) -> FoundRows | None:
    """The rows of a moment over a session of their own; None where none can be had, or it does not get to the rows."""
    try:
        async with reader_session(url, application_name=_APPLICATION, settings=ROWS_SETTINGS) as connection:
            await connection.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
            await connection.execute(SQL("SET TRANSACTION SNAPSHOT {}").format(Literal(moment)))
            await connection.execute(f"SET LOCAL lock_timeout = '{SECOND_LOCK_WAIT_MS}ms'".encode())
            return await rows_at(connection, source, at, row_filter)
    except (DatabaseUnavailableError, psycopg.errors.LockNotAvailable, *NOT_HELD):
        return None
