"""Finds a database's schema revision, and whether this build works with it.

Every command checks this first, so it needs neither Alembic nor SQLAlchemy. Nothing here changes a database.

From revision 0014 on, a migration first only expands: it adds what the build before does without. What that build still
uses is contracted by a later migration. Each says which of both it does (`EXPANDS`), and the database says which is the
oldest revision whose builds work with it, so that an older build knows whether it may go on after an upgrade.
"""

from typing import NamedTuple

from gpuledger.db.engine import AsyncConnection, Connection, connect_blocking
from gpuledger.db.errors import SchemaOutdatedError, SchemaUnknownError
from gpuledger.db.views import are_current

KNOWN_REVISIONS = tuple(f"{number:04}" for number in range(1, 44))
"""Oldest first; the last one is what this build needs."""

HEAD_REVISION = KNOWN_REVISIONS[-1]

OLDEST_REVISION = "0013"
"""The oldest revision whose builds work with a database at the newest: all migrations after it only expand."""

JSONB_REVISION = "0027"
"""The oldest revision whose builds write jsonb: no build before it works with a database that has any."""

BOOKKEEPING = "gpuledger"
"""The schema of checkpoints, numbers seen, deciders and the outbox."""

_TABLE = f"{BOOKKEEPING}.alembic_version"
_HAS_TABLE = f"SELECT to_regclass('{_TABLE}') IS NOT NULL"
_REVISION = f"SELECT version_num, obj_description('{_TABLE}'::regclass, 'pg_class') FROM {_TABLE}"  # noqa: S608
_OLDEST_COMMENT = "Builds work with it from revision"


class Schema(NamedTuple):
    """A database's revision (None: empty), and the oldest one whose builds work with it (None: it does not say)."""

    revision: str | None
    oldest: str | None

    @property
    def is_newer(self) -> bool:
        """Whether a newer build migrated it."""
        return self.revision is not None and self.revision not in KNOWN_REVISIONS

    @property
    def works(self) -> bool:
        """Whether this build works with it as it is."""
        if self.is_newer:
            return self.oldest in KNOWN_REVISIONS
        return self.revision == HEAD_REVISION

    @property
    def has_jsonb(self) -> bool:
        """Whether builds that write no jsonb have been given up here."""
        return (self.oldest or "") >= JSONB_REVISION

    def noting(self, oldest: str) -> bytes:
        """The statement that tells older builds from which revision on they work with it, which never goes down."""
        return f"COMMENT ON TABLE {_TABLE} IS '{_OLDEST_COMMENT} {max(self.oldest or oldest, oldest)}'".encode()


def current_revision(database_url: str) -> str | None:
    """The database's revision, or None where nothing has been migrated yet.

    Raises:
        DatabaseUnavailableError: no connection can be made.
    """
    with connect_blocking(database_url, application_name="gpuledger revision") as connection:
        return schema_of(connection).revision


def check_current(database_url: str) -> None:
    """Check that the database has this build's schema, or one that a newer build only expanded.

    Raises:
        SchemaOutdatedError: it has to be migrated.
        SchemaUnknownError: a newer build migrated it to what this one does not work with.
        DatabaseUnavailableError: no connection can be made.
    """
    with connect_blocking(database_url, application_name="gpuledger revision") as connection:
        _check(schema_of(connection))


def needs_migration(database_url: str) -> bool:
    """Whether `migrate` would change anything: the schema, or views that another build made.

    Raises:
        SchemaUnknownError: a newer build migrated the database to what this one does not work with.
        DatabaseUnavailableError: no connection can be made.
    """
    with connect_blocking(database_url, application_name="gpuledger revision") as connection:
        schema = schema_of(connection)
        check_compatible(schema)
        return not schema.is_newer and not (schema.works and are_current(connection))


async def check_connection(connection: AsyncConnection) -> Schema:
    """`check_current` over an existing connection; returns what it found."""
    schema = await schema_over(connection)
    _check(schema)
    return schema


async def schema_over(connection: AsyncConnection) -> Schema:
    """`schema_of` for asyncio."""
    has_table = await (await connection.execute(_HAS_TABLE)).fetchone()
    return _schema(await (await connection.execute(_REVISION)).fetchone() if has_table == (True,) else None)


def schema_of(connection: Connection) -> Schema:
    """The schema's revision, and what it says of older builds."""
    if connection.execute(_HAS_TABLE).fetchone() != (True,):
        return _schema(None)
    return _schema(connection.execute(_REVISION).fetchone())


def check_compatible(schema: Schema) -> None:
    """Check that this build can migrate from this schema, or work with it.

    Raises:
        SchemaUnknownError: a newer build migrated the database to what this one does not work with.
    """
    if schema.is_newer and not schema.works:
        since = f", and only builds from revision {schema.oldest} on work with it" if schema.oldest else ""
        raise SchemaUnknownError(
            f"The database is at revision {schema.revision}, which this build does not know (it needs "
            f"{HEAD_REVISION}){since}. Use the newer gpuledger that migrated it, or restore the database from a backup "
            "of before (docs/operations.md, Roll back)."
        )


def _schema(row: tuple[str, str | None] | None) -> Schema:
    if row is None:
        return Schema(None, None)
    revision, comment = row
    is_note = comment is not None and comment.startswith(_OLDEST_COMMENT)
    return Schema(revision, comment.removeprefix(_OLDEST_COMMENT).strip() if comment and is_note else None)


def _check(schema: Schema) -> None:
    check_compatible(schema)
    if not schema.works:
        at = f"at revision {schema.revision}" if schema.revision else "empty"
        raise SchemaOutdatedError(f"The database is {at}, this build needs {HEAD_REVISION}; run `gpuledger migrate`.")
