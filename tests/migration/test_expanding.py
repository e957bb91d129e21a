"""Expand first, contract later: a build works with a database that a newer one only expanded, and with no other."""

import inspect
import re
from collections.abc import Mapping
from types import ModuleType
from typing import NamedTuple

import psycopg
import pytest
import sqlalchemy
from alembic import command
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


class Column(NamedTuple):
    """A column's type, and whether a build that does not know it can write rows."""

    type: str
    can_be_left_out: bool


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


def columns(connection: sqlalchemy.Connection) -> dict[str, dict[str, Column]]:
    """The columns of every table of ours."""
    query = """
        SELECT format('%I.%I', table_schema, table_name), column_name, data_type,
               is_nullable = 'YES' OR column_default IS NOT NULL OR is_identity = 'YES'
        FROM information_schema.columns JOIN information_schema.tables USING (table_schema, table_name)
        WHERE table_type = 'BASE TABLE' AND table_schema LIKE 'gpuledger%'
    """
    found: dict[str, dict[str, Column]] = {}
    for table, name, kind, can_be_left_out in connection.execute(sqlalchemy.text(query)):
        found.setdefault(table, {})[name] = Column(kind, can_be_left_out=can_be_left_out)
    return found


def contracted(before: Mapping[str, Mapping[str, Column]], after: Mapping[str, Mapping[str, Column]]) -> list[str]:
    """What a build that knows the tables of before would miss, or not know to fill in."""
    wrong = []
    for table, had in before.items():
        has = after.get(table, {})
        wrong += [f"{table}.{name} is gone" for name in had if name not in has]
        wrong += [f"{table}.{name} is another type" for name in had if name in has and has[name].type != had[name].type]
        required = [name for name, column in has.items() if not column.can_be_left_out]
        wrong += [f"{table}.{name} is required" for name in required if name not in had or had[name].can_be_left_out]
    return wrong


def test_what_only_expands_leaves_every_table_as_the_build_before_knows_it(database_url: str) -> None:
    engine = sqlalchemy.create_engine(database_url.replace("postgresql://", "postgresql+psycopg://"))
    with engine.begin() as connection:
        connection.exec_driver_sql("CREATE SCHEMA gpuledger")
    before: dict[str, dict[str, Column]] = {}
    for revision, module in {"0013": None, **migrations_since("0013")}.items():
        with engine.begin() as connection:
            command.upgrade(alembic_config(connection), revision)
            after = columns(connection)
        if module is not None and module.EXPANDS:
            assert contracted(before, after) == [], revision
        before = after
    engine.dispose()
    assert before


def test_a_contraction_is_seen() -> None:
    required, free = Column("text", can_be_left_out=False), Column("text", can_be_left_out=True)
    before = {"a": {"x": required, "y": free}, "b": {"z": free}}
    assert contracted(before, before | {"c": {"w": required}}) == []
    assert contracted(before, before | {"a": {"x": free, "y": free, "new": free}}) == []
    assert contracted(before, {"a": before["a"]}) == ["b.z is gone"]
    assert contracted(before, before | {"b": {"z": Column("bigint", can_be_left_out=True)}}) == ["b.z is another type"]
    assert contracted(before, before | {"b": {"z": required, "new": required}}) == [
        "b.z is required",
        "b.new is required",
    ]


def test_the_oldest_revision_is_that_of_the_last_contraction() -> None:
    made = {str(number): ModuleType("migration") for number in range(1, 5)}
    for revision, module in made.items():
        module.EXPANDS = revision != "3"  # type: ignore[attr-defined]
    assert oldest_of(made, "0") == "3"
    made["3"].EXPANDS = True  # type: ignore[attr-defined]
    assert oldest_of(made, "0") == "0"
