"""Expand first, contract later: a build works with a database that a newer one only expanded, and with no other."""

import inspect
import re
from collections.abc import Mapping
from types import ModuleType

import psycopg
import pytest
from alembic.script import ScriptDirectory

from gpuledger.db.engine import connect
from gpuledger.db.errors import SchemaUnknownError
from gpuledger.db.migrate import alembic_config, migrate
from gpuledger.db.revision import (
    HEAD_REVISION,
    OLDEST_REVISION,
    Schema,
    check_connection,
    check_current,
    current_revision,
    needs_migration,
)
from gpuledger.tools.doctor import Check, Status, schema_check

CONTRACTS = re.compile(r"\bop\.(drop|rename)_|\bRENAME\b|\bDROP (TABLE|COLUMN|FUNCTION|TYPE)\b")
"""What the build before would miss."""


async def test_a_database_that_a_newer_build_only_expanded_is_worked_with_and_left_as_it_is(database_url: str) -> None:
    migrate(database_url)
    with psycopg.connect(database_url) as connection:
        connection.execute("UPDATE gpuledger.alembic_version SET version_num = '9999'")
        connection.execute("ALTER TABLE gpuledger_live.device ADD COLUMN later text")
        connection.execute("COMMENT ON SCHEMA report IS 'of the newer build'")
    check_current(database_url)
    assert not needs_migration(database_url)
    assert migrate(database_url)[:2] == ("9999", "9999")
    assert current_revision(database_url) == "9999"
    with psycopg.connect(database_url) as connection:
        query = "SELECT obj_description('report'::regnamespace, 'pg_namespace')"
        assert connection.execute(query).fetchone() == ("of the newer build",)
    async with connect(database_url, application_name="test") as asynchronous:
        check = schema_check(await check_connection(asynchronous))
    assert check == Check(
        "schema", Status.OK, f"Revision 9999, newer than this build's {HEAD_REVISION}, and works with it"
    )


def test_a_database_that_was_contracted_past_this_build_stops_it_with_what_to_do(database_url: str) -> None:
    migrate(database_url)
    with psycopg.connect(database_url) as connection:
        connection.execute("UPDATE gpuledger.alembic_version SET version_num = '9999'")
        connection.execute("COMMENT ON TABLE gpuledger.alembic_version IS 'Builds work with it from revision 9998'")
    for attempt in (migrate, check_current, needs_migration):
        with pytest.raises(SchemaUnknownError, match=r"only builds from revision 9998 on work with it\. Use the newer"):
            attempt(database_url)


@pytest.mark.parametrize(
    ("revision", "oldest", "works"),
    [
        (None, None, False),
        ("0001", None, False),
        (HEAD_REVISION, None, True),
        (HEAD_REVISION, OLDEST_REVISION, True),
        ("9999", None, False),
        ("9999", HEAD_REVISION, True),
        ("9999", "9998", False),
    ],
)
def test_a_build_works_with_its_own_revision_and_with_what_only_expanded(
    revision: str | None, oldest: str | None, *, works: bool
) -> None:
    assert Schema(revision, oldest).works is works


def migrations_since(revision: str) -> dict[str, ModuleType]:
    """The migrations after a revision, in order."""
    script = ScriptDirectory.from_config(alembic_config())
    found = {one.revision: one.module for one in script.walk_revisions() if one.revision > revision}
    return dict(sorted(found.items()))


def oldest_of(migrations: Mapping[str, ModuleType], before: str) -> str:
    """The oldest revision whose builds work with the last of these migrations, which follow on `before`."""
    for revision, module in migrations.items():
        before = before if module.EXPANDS else revision
    return before


def test_every_migration_says_whether_it_only_expands_and_does_so() -> None:
    migrations = migrations_since("0013")
    assert [revision for revision, module in migrations.items() if not isinstance(module.EXPANDS, bool)] == []
    wrong = [
        revision
        for revision, module in migrations.items()
        if module.EXPANDS and CONTRACTS.search(inspect.getsource(module.upgrade))
    ]
    assert wrong == []
    assert oldest_of(migrations, "0013") == OLDEST_REVISION


def test_the_oldest_revision_is_that_of_the_last_contraction() -> None:
    made = {str(number): ModuleType("migration") for number in range(1, 5)}
    for revision, module in made.items():
        module.EXPANDS = revision != "3"  # type: ignore[attr-defined]
    assert oldest_of(made, "0") == "3"
    made["3"].EXPANDS = True  # type: ignore[attr-defined]
    assert oldest_of(made, "0") == "0"
