"""A migration in a process of its own ends as one in this process would, errors and their messages included."""

import psycopg
import pytest

from gpuledger.compose.migrating import ERRORS, FIRST_CODE, migrate_apart
from gpuledger.db import errors
from gpuledger.db.errors import DatabaseError, DatabaseUnavailableError, DatabaseUrlError, SchemaUnknownError
from gpuledger.db.migrate import migrate
from gpuledger.db.revision import HEAD_REVISION, current_revision

NOBODY = "postgresql://127.0.0.1:1/none"


async def test_an_empty_database_is_migrated_and_a_migrated_one_stays(database_url: str) -> None:
    await migrate_apart(database_url)
    await migrate_apart(database_url)
    assert current_revision(database_url) == HEAD_REVISION


async def test_a_newer_schema_is_refused_as_before(database_url: str) -> None:
    migrate(database_url)
    with psycopg.connect(database_url) as connection:
        connection.execute("UPDATE gpuledger.alembic_version SET version_num = '9999'")
        connection.execute("COMMENT ON TABLE gpuledger.alembic_version IS NULL")
    await check_same(database_url, SchemaUnknownError)


@pytest.mark.parametrize(
    ("url", "kind"), [(NOBODY, DatabaseUnavailableError), ("postgresql://h/?nonsense=1", DatabaseUrlError)]
)
async def test_what_cannot_be_reached_or_read_is_said_as_before(url: str, kind: type[DatabaseError]) -> None:
    await check_same(url, kind)


async def check_same(url: str, kind: type[DatabaseError]) -> None:
    with pytest.raises(kind) as here:
        migrate(url)
    with pytest.raises(kind) as apart:
        await migrate_apart(url)
    assert (type(apart.value), str(apart.value)) == (type(here.value), str(here.value))


def test_the_errors_of_a_migration_all_have_a_code() -> None:
    raised = (errors.SchemaUnknownError, errors.LockedError, errors.DatabaseUnavailableError, errors.MigrationError)
    assert {*raised, errors.DatabaseUrlError} <= {*ERRORS}
    assert FIRST_CODE > 2, "Python's own"
