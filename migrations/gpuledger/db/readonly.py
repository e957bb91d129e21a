"""Runs queries that people write, and that cannot change the database.

Three things prevent a write, each enough: the reader's role has no right to any, the transaction is read only and has
begun to read, and a statement comes alone. It is no protection against a user with the database's password.
"""

from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from typing import Any, Final

import psycopg

from gpuledger.db.engine import NO_SETTINGS, AsyncConnection, connect
from gpuledger.db.errors import QueryError
from gpuledger.db.sql_text import first_word
from gpuledger.db.views import READER_ROLE

STATEMENT_TIMEOUT_S = 60
"""How long one query may take."""

LOCK_TIMEOUT_S = 10
"""How long a query waits while a rebuild swaps tables."""

SEARCH_PATH = "report,gpuledger_live,gpuledger"
"""The schemas in which names are looked up, so that `SELECT * FROM fleet` is enough."""

READ_ONLY: Final = {"default_transaction_read_only": "on"}
"""The setting of a session that writes nothing."""

_MAY_BE_READER = (
    "SELECT coalesce((SELECT pg_has_role(current_user, oid, 'MEMBER') FROM pg_roles WHERE rolname = %s), false)"
)


@asynccontextmanager
async def read_only(
    url: str,
    *,
    application_name: str = "gpuledger sql",
    statement_timeout_s: int = STATEMENT_TIMEOUT_S,
    settings: Mapping[str, str] = NO_SETTINGS,
) -> AsyncIterator[AsyncConnection]:
    """A connection that only reads, in one transaction that shows one moment; rolled back at the end.

    `settings` are further ones of the session.

    Without the reader's role, or the permission to take it, the read-only transaction has to do.

    Raises:
        DatabaseUnavailableError: no connection can be made, or it is lost.
    """
    session = reader_session(
        url, application_name=application_name, statement_timeout_s=statement_timeout_s, settings=settings
    )
    async with session as connection, one_moment(connection):
        yield connection


@asynccontextmanager
async def reader_session(
    url: str,
    *,
    application_name: str,
    statement_timeout_s: int = STATEMENT_TIMEOUT_S,
    settings: Mapping[str, str] = NO_SETTINGS,
) -> AsyncIterator[AsyncConnection]:
    """A session whose transactions only read, as the reader where it may; raises as `read_only` does."""
    of_session = {
        **settings,
        **READ_ONLY,
        "statement_timeout": f"{statement_timeout_s}s",
        "lock_timeout": f"{LOCK_TIMEOUT_S}s",
        "search_path": SEARCH_PATH,
    }
    async with connect(url, application_name=application_name, settings=of_session) as connection:
        await become_reader(connection)
        yield connection


@asynccontextmanager
async def one_moment(connection: AsyncConnection) -> AsyncIterator[None]:
    """One transaction of such a session, which shows one moment; rolled back at the end."""
    await connection.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
    await connection.execute("SELECT 1")
    try:
        yield
    finally:
        if not connection.broken:
            await connection.rollback()


async def query(connection: AsyncConnection, statement: str) -> psycopg.AsyncCursor[tuple[Any, ...]]:
    """Run one query; the cursor has the columns and rows of the result.

    Raises:
        QueryError: PostgreSQL refuses it, it takes too long, or it returns no rows.
    """
    if first_word(statement) == "copy":
        raise QueryError("COPY is not supported here. Write the SELECT itself, with `-o csv` for a file.")
    cursor = connection.cursor()
    with refused():
        await cursor.execute(statement.encode(), prepare=True)
    if cursor.description is None:
        raise QueryError("The statement returns no rows. Write a query, such as SELECT * FROM fleet.")
    return cursor


async def become_reader(connection: AsyncConnection) -> None:
    """Take the reader's role for the session, where it is there and the user may."""
    allowed = await (await connection.execute(_MAY_BE_READER, [READER_ROLE])).fetchone()
    if allowed == (True,):
        try:
            await connection.execute(f"SET ROLE {READER_ROLE}".encode())
        except psycopg.errors.InsufficientPrivilege:
            return


@contextmanager
def refused() -> Iterator[None]:
    """Word what PostgreSQL says of a query that it does not run to its end."""
    try:
        yield
    except psycopg.errors.QueryCanceled as error:
        raise QueryError("The query took too long and was stopped. Narrow it, or use a report instead.") from error
    except psycopg.errors.ReadOnlySqlTransaction as error:
        raise QueryError("The query would change the database, which only the ledger's events do.") from error
    except psycopg.errors.LockNotAvailable as error:
        raise QueryError("A rebuild is just replacing tables. Run the query again in a moment.") from error
    except (psycopg.ProgrammingError, psycopg.DataError, psycopg.NotSupportedError, psycopg.InternalError) as error:
        raise QueryError(_explained(error)) from error


def _explained(error: psycopg.Error) -> str:
    reason = error.diag.message_primary or str(error)
    hint = f" {error.diag.message_hint}" if error.diag.message_hint else ""
    return f"PostgreSQL refuses the query: {reason}.{hint}"
