"""Finds a database's schema revision, and whether this build works with it.

Every command checks this first, so it needs neither Alembic nor SQLAlchemy. Nothing here changes a database.
"""

from gpuledger.db.engine import AsyncConnection, Connection, connect_blocking
from gpuledger.db.errors import SchemaOutdatedError, SchemaUnknownError
from gpuledger.db.views import are_current

KNOWN_REVISIONS = tuple(f"{number:04}" for number in range(1, 15))
"""Oldest first; the last one is what this build needs."""

HEAD_REVISION = KNOWN_REVISIONS[-1]

BOOKKEEPING = "gpuledger"
"""The schema of checkpoints, numbers seen, deciders and the outbox."""

_TABLE = f"{BOOKKEEPING}.alembic_version"
_HAS_TABLE = f"SELECT to_regclass('{_TABLE}') IS NOT NULL"
_REVISION = f"SELECT version_num FROM {_TABLE}"  # noqa: S608 - our own words


def current_revision(database_url: str) -> str | None:
    """The database's revision, or None where nothing has been migrated yet.

    Raises:
        DatabaseUnavailableError: no connection can be made.
    """
    with connect_blocking(database_url, application_name="gpuledger revision") as connection:
        return revision_of(connection)


def check_current(database_url: str) -> None:
    """Check that the database has this build's schema.

    Raises:
        SchemaOutdatedError: it has to be migrated.
        SchemaUnknownError: a newer build migrated it.
        DatabaseUnavailableError: no connection can be made.
    """
    _check(current_revision(database_url))


def needs_migration(database_url: str) -> bool:
    """Whether `migrate` would change anything: the schema, or views that another build made.

    Raises:
        SchemaUnknownError: a newer build migrated the database.
        DatabaseUnavailableError: no connection can be made.
    """
    with connect_blocking(database_url, application_name="gpuledger revision") as connection:
        revision = revision_of(connection)
        check_known(revision)
        return revision != HEAD_REVISION or not are_current(connection)


async def check_connection(connection: AsyncConnection) -> None:
    """`check_current` over an existing connection."""
    has_table = await (await connection.execute(_HAS_TABLE)).fetchone()
    row = await (await connection.execute(_REVISION)).fetchone() if has_table == (True,) else None
    _check(row[0] if row else None)


def revision_of(connection: Connection) -> str | None:
    """`current_revision` over an existing connection."""
    if connection.execute(_HAS_TABLE).fetchone() != (True,):
        return None
    row = connection.execute(_REVISION).fetchone()
    return row[0] if row else None


def check_known(revision: str | None) -> None:
    """Check that this build can migrate from this revision.

    Raises:
        SchemaUnknownError: a newer build migrated the database.
    """
    if revision is not None and revision not in KNOWN_REVISIONS:
        raise SchemaUnknownError(
            f"The database is at revision {revision}, which this build does not know (it needs {HEAD_REVISION}); "
            "use the newer gpuledger that migrated it, or another database."
        )


def _check(revision: str | None) -> None:
    check_known(revision)
    if revision != HEAD_REVISION:
        at = f"at revision {revision}" if revision else "empty"
        raise SchemaOutdatedError(f"The database is {at}, this build needs {HEAD_REVISION}; run `gpuledger migrate`.")
