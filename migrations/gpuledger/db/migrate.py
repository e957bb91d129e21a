"""Brings a database's schema up to what this build needs: all of it, in one transaction, or nothing.

It never waits long for others' locks, and two of them never run at once in one database.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple, cast

import psycopg
import sqlalchemy
from alembic import command
from alembic.config import Config
from sqlalchemy.pool import NullPool

from gpuledger.db.engine import Connection, open_blocking, unavailable
from gpuledger.db.errors import DatabaseError, LockedError, MigrationError
from gpuledger.db.json_columns import convert_empty
from gpuledger.db.locks import VIEWS_LOCK, lock_key
from gpuledger.db.revision import (
    BOOKKEEPING,
    HEAD_REVISION,
    JSONB_REVISION,
    OLDEST_REVISION,
    check_compatible,
    schema_of,
)
from gpuledger.db.views import READER_ROLE, keep_views, recreate_views

LOCK_TIMEOUT_S = 10
"""How long one statement waits for a lock; every session behind it in the queue waits as long."""

STATEMENT_TIMEOUT_S = 600
"""How long one statement may run."""

MIGRATIONS_FOLDER = Path(__file__).parent / "migrations"

LIVE = "gpuledger_live"
"""The schema of the rows that serve."""

_IS_SUPERUSER = "SELECT rolsuper FROM pg_roles WHERE rolname = current_user"
_ROLE_EXISTS = "SELECT EXISTS (SELECT FROM pg_roles WHERE rolname = %s)"
_LOCKS = ("migrate", VIEWS_LOCK)
_SETTINGS = {"lock_timeout": f"{LOCK_TIMEOUT_S}s", "statement_timeout": f"{STATEMENT_TIMEOUT_S}s"}


class MigrationResult(NamedTuple):
    """From which revision (None: an empty database) to which; `has_reader`: the read-only role is there."""

    from_revision: str | None
    to_revision: str
    has_reader: bool


def migrate(database_url: str) -> MigrationResult:
    """Bring the schema up to date, recreate the views, and make the read-only role where that is permitted.

    A schema that a newer build only expanded stays as it is, views included. In one that is made new, documents are
    jsonb at once: no build of before can come back to it.

    Raises:
        SchemaUnknownError: a newer build migrated this database to what this one does not work with.
        LockedError: another session migrates, or uses a table that has to change, for too long.
        DatabaseUnavailableError: no connection can be made.
        MigrationError: PostgreSQL refuses, for want of a permission for example.
    """
    with _translated(database_url), _begun(database_url) as connection:
        raw = cast("Connection", connection.connection.driver_connection)
        for name in _LOCKS:
            raw.execute("SELECT pg_advisory_xact_lock(%s)", [lock_key(name)])
        schema = schema_of(raw)
        check_compatible(schema)
        before = schema.revision
        if before is not None and schema.is_newer:
            return MigrationResult(before, before, _exists(raw))
        if before is None:
            raw.execute(f"CREATE SCHEMA IF NOT EXISTS {BOOKKEEPING}".encode())
        else:
            keep_views(raw)
        command.upgrade(alembic_config(connection), "head")
        if before is None:
            convert_empty(raw, LIVE)
        raw.execute(schema.noting(JSONB_REVISION if before is None else OLDEST_REVISION))
        has_reader = ensure_reader(raw)
        recreate_views(raw)
    return MigrationResult(before, HEAD_REVISION, has_reader)


def alembic_config(connection: sqlalchemy.Connection | None = None) -> Config:
    """Alembic's settings; they need no file."""
    config = Config()
    config.set_main_option("script_location", str(MIGRATIONS_FOLDER).replace("%", "%%"))
    config.set_main_option("path_separator", "os")
    config.attributes["connection"] = connection
    return config


def ensure_reader(connection: Connection) -> bool:
    """Make the read-only role where it is missing and that is permitted; returns whether it is there.

    Roles belong to the server and not to one database, so another database may have it already, or it may not be ours
    to make. Its rights are part of `gpuledger.db.views.view_statements`.
    """
    if not _exists(connection) and not _try(connection, f"CREATE ROLE {READER_ROLE} NOLOGIN"):
        return _exists(connection)
    if connection.execute(_IS_SUPERUSER).fetchone() != (True,):
        _try(connection, f"GRANT {READER_ROLE} TO CURRENT_USER")
    return True


def _exists(connection: Connection) -> bool:
    return connection.execute(_ROLE_EXISTS, [READER_ROLE]).fetchone() == (True,)


def _try(connection: Connection, statement: str) -> bool:
    try:
        with connection.transaction():
            connection.execute(statement.encode())
    except (
        psycopg.errors.InsufficientPrivilege,
        psycopg.errors.DuplicateObject,
        psycopg.errors.UniqueViolation,  # two databases of one server are being migrated
    ):
        return False
    return True


@contextmanager
def _begun(database_url: str) -> Iterator[sqlalchemy.Connection]:
    def open_one() -> psycopg.Connection[Any]:
        return open_blocking(database_url, application_name="gpuledger migrate", autocommit=False, settings=_SETTINGS)

    engine = sqlalchemy.create_engine("postgresql+psycopg://", creator=open_one, poolclass=NullPool)
    with engine.connect() as connection, connection.begin():
        yield connection


@contextmanager
def _translated(database_url: str) -> Iterator[None]:
    try:
        yield
    except sqlalchemy.exc.DBAPIError as error:
        raise _ours(database_url, cast("psycopg.Error", error.orig)) from error
    except psycopg.Error as error:
        raise _ours(database_url, error) from error


def _ours(database_url: str, error: psycopg.Error) -> DatabaseError:
    if isinstance(error, psycopg.errors.LockNotAvailable):
        return LockedError(
            f"Another session held what the migration needs for more than {LOCK_TIMEOUT_S} s; nothing was changed. "
            "Stop the programs that use the database, or try again later."
        )
    if error.sqlstate is None or error.sqlstate.startswith(("08", "57P")):
        return unavailable(database_url, error)
    reason = error.diag.message_primary or str(error)
    return MigrationError(
        f"The database was not migrated, nothing was changed: {reason}. "
        "The user in DATABASE_URL must own the database's gpuledger schemas and may need CREATE on the database."
    )
