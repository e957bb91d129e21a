"""Migrations against the metadata, on a real server."""

import threading
from importlib import resources
from itertools import product

import psycopg
import pytest
import sqlalchemy
from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy.dialects.postgresql import JSONB

from gpuledger.db import migrate as migrating
from gpuledger.db.errors import (
    DatabaseError,
    DatabaseUnavailableError,
    DatabaseUrlError,
    LockedError,
    SchemaOutdatedError,
    SchemaUnknownError,
)
from gpuledger.db.json_columns import JSON_COLUMNS
from gpuledger.db.locks import lock_key
from gpuledger.db.migrate import alembic_config, migrate
from gpuledger.db.revision import (
    BOOKKEEPING,
    HEAD_REVISION,
    KNOWN_REVISIONS,
    check_current,
    current_revision,
)
from gpuledger.projection.months import ANY_MONTH
from support import tables

SINCE = (
    *("seal_chain", "indexed_event", "health_check", "health_report", "incident", "health_departure"),
    "pool_shared_card",
    *("maintenance_request", "maintenance_node", "node_isolation", "node_drain"),
    *(
        spec.name
        for name in ("health", "remediation", "preflight", "shares", "sharing", "rollout", "updates")
        for spec in tables.PROJECTIONS[name]
    ),
)
"""Tables that came after the renaming of revision 0008."""

PARTITIONS = {f"{spec.name}_{ANY_MONTH}" for specs in tables.PROJECTIONS.values() for spec in specs if spec.by_month}
"""The parts of tables by months, which the metadata has as a whole."""


def test_an_empty_database_becomes_the_metadata(database_url: str) -> None:
    migrate(database_url)
    assert _differences(database_url) == []


def test_a_column_that_the_migrations_lack_would_be_noticed(database_url: str) -> None:
    migrate(database_url)
    with psycopg.connect(database_url) as connection:
        connection.execute("ALTER TABLE gpuledger_live.installation ALTER COLUMN retired DROP NOT NULL")
        connection.execute("ALTER TABLE gpuledger_live.installation DROP COLUMN model CASCADE")
        connection.execute("DROP INDEX gpuledger_live.installation_slot_idx")
    assert len(_differences(database_url)) == 3


def test_primary_keys_and_collations_are_those_of_the_metadata(database_url: str) -> None:
    migrate(database_url)
    engine = sqlalchemy.create_engine(_sqlalchemy_url(database_url))
    inspector = sqlalchemy.inspect(engine)
    for table in tables.metadata.tables.values():
        key = inspector.get_pk_constraint(table.name, table.schema)
        assert key["constrained_columns"] == [column.name for column in table.primary_key.columns], table.name
        assert key["name"] == f"{table.name}_pkey"
    engine.dispose()
    with psycopg.connect(database_url) as connection:
        others = connection.execute(
            "SELECT table_name, column_name FROM information_schema.columns WHERE data_type = 'text' "
            "AND table_schema IN ('gpuledger', 'gpuledger_live') AND collation_name IS DISTINCT FROM 'C' "
            "AND table_name IN (SELECT tablename FROM pg_tables)"
        ).fetchall()
    assert others == []


def test_indexes_have_the_names_that_copies_of_their_tables_get(database_url: str) -> None:
    migrate(database_url)
    with psycopg.connect(database_url) as connection:
        for name in _live_tables():
            connection.execute(f"CREATE TABLE gpuledger_next.{name} (LIKE gpuledger_live.{name} INCLUDING ALL)")
        names = {
            schema: connection.execute(
                "SELECT tablename, indexname FROM pg_indexes WHERE schemaname = %s AND tablename <> ALL(%s) "
                "ORDER BY 1, 2",
                [schema, list(PARTITIONS)],
            ).fetchall()
            for schema in ("gpuledger_live", "gpuledger_next")
        }
    assert names["gpuledger_live"] == names["gpuledger_next"]
    assert len(names["gpuledger_live"]) > len(_live_tables())


def test_migrating_twice_changes_nothing(database_url: str) -> None:
    assert migrate(database_url)[:2] == (None, HEAD_REVISION)
    with psycopg.connect(database_url) as connection:
        connection.execute("INSERT INTO gpuledger_live.node_slot VALUES ('n', 's', now())")
    assert migrate(database_url)[:2] == (HEAD_REVISION, HEAD_REVISION)
    with psycopg.connect(database_url) as connection:
        assert connection.execute("SELECT count(*) FROM gpuledger_live.node_slot").fetchone() == (1,)


@pytest.mark.parametrize("schema", ["gpuledger_live", "gpuledger_prev"])
def test_settings_of_the_first_revision_get_what_later_ones_know(database_url: str, schema: str) -> None:
    """Rows that events of before made are what those events amount to now, where a rebuild kept them as well."""
    _migrate_to(database_url, "0001")
    with psycopg.connect(database_url) as connection:
        if schema != "gpuledger_live":
            connection.execute(f"CREATE TABLE {schema}.module_settings (LIKE gpuledger_live.module_settings)".encode())
        connection.execute(
            f"INSERT INTO {schema}.module_settings VALUES "
            "('gpu', now(), true, 'key', true, 'Manual', '{}', 'Spread', 'zone', 30, NULL)".encode()
        )
    assert migrate(database_url)[:2] == ("0001", HEAD_REVISION)
    with psycopg.connect(database_url) as connection:
        rows = connection.execute(
            f"SELECT module, approval_mode, resync_period_s, claim_references, dra_availability "
            f"FROM {schema}.module_settings".encode()
        ).fetchall()
    assert rows == [("gpu", "Manual", 30, "Full", True)]
    if schema == "gpuledger_live":
        assert _differences_of_an_older_one(database_url) == []


@pytest.mark.parametrize(
    "schema",
    [
        "gpuledger_live",
        pytest.param("gpuledger_next", marks=pytest.mark.long),
        pytest.param("gpuledger_prev", marks=pytest.mark.long),
    ],
)
def test_renamed_tables_keep_their_rows_in_every_edition(database_url: str, schema: str) -> None:
    _migrate_to(database_url, "0007")
    with psycopg.connect(database_url) as connection:
        if schema != "gpuledger_live":
            connection.execute(f"CREATE TABLE {schema}.stint (LIKE gpuledger_live.stint INCLUDING ALL)".encode())
        connection.execute(
            f"INSERT INTO {schema}.stint VALUES "
            "('d', 's', now(), NULL, false, 'serial', NULL, 'model', '/test', '1')".encode()
        )
    assert migrate(database_url)[:2] == ("0007", HEAD_REVISION)
    with psycopg.connect(database_url) as connection:
        rows = connection.execute(
            f"SELECT device, slot, serial, model, source, epoch FROM {schema}.installation".encode()
        ).fetchall()
        left = connection.execute(
            "SELECT relname FROM pg_class WHERE relname ~ 'stint' "
            "UNION ALL SELECT conname FROM pg_constraint WHERE conname ~ 'stint' "
            "UNION ALL SELECT proname FROM pg_proc WHERE proname ~ 'stint'"
        ).fetchall()
    assert rows == [("d", "s", "serial", "model", "/test", "1")]
    assert left == []
    assert _differences_of_an_older_one(database_url) == [] or schema != "gpuledger_live"


def test_copies_of_tables_are_renamed_with_them(database_url: str) -> None:
    """Tables, columns, constraints and indexes have the same names in every edition."""
    _migrate_to(database_url, "0007")
    with psycopg.connect(database_url) as connection:
        names = connection.execute("SELECT tablename FROM pg_tables WHERE schemaname = 'gpuledger_live'").fetchall()
        for schema, (name,) in product(("gpuledger_next", "gpuledger_prev"), names):
            copy = f"CREATE TABLE {schema}.{name} (LIKE gpuledger_live.{name} INCLUDING ALL)"
            connection.execute(copy.encode())
    migrate(database_url)
    with psycopg.connect(database_url) as connection:
        for table in (*SINCE, *PARTITIONS):
            connection.execute(f"DROP TABLE gpuledger_live.{table} CASCADE".encode())
        live, *copies = (
            connection.execute(
                "SELECT relname, attname FROM pg_attribute JOIN pg_class ON pg_class.oid = attrelid "
                "WHERE relnamespace = %(schema)s::regnamespace AND attnum > 0 "
                "UNION ALL SELECT 'constraint', conname FROM pg_constraint "
                "WHERE connamespace = %(schema)s::regnamespace ORDER BY 1, 2",
                {"schema": schema},
            ).fetchall()
            for schema in ("gpuledger_live", "gpuledger_next", "gpuledger_prev")
        )
    assert copies == [live, live]


def test_revisions_are_distinguished(database_url: str) -> None:
    assert current_revision(database_url) is None
    with pytest.raises(
        SchemaOutdatedError, match=f"is empty, this build needs {HEAD_REVISION}; run `gpuledger migrate`"
    ):
        check_current(database_url)
    migrate(database_url)
    assert current_revision(database_url) == HEAD_REVISION
    check_current(database_url)


def test_a_newer_builds_database_is_left_alone(database_url: str) -> None:
    migrate(database_url)
    with psycopg.connect(database_url) as connection:
        connection.execute("UPDATE gpuledger.alembic_version SET version_num = '9999'")
        connection.execute("COMMENT ON TABLE gpuledger.alembic_version IS NULL")
    with pytest.raises(SchemaUnknownError, match="revision 9999, which this build does not know"):
        migrate(database_url)
    with pytest.raises(SchemaUnknownError, match="newer gpuledger"):
        check_current(database_url)


def test_the_migrations_lie_beside_the_code_and_all_are_listed() -> None:
    folder = resources.files("gpuledger.db") / "migrations" / "versions"
    numbers = sorted(file.name[:4] for file in folder.iterdir() if file.name.endswith(".py"))
    assert tuple(numbers) == KNOWN_REVISIONS
    script = ScriptDirectory.from_config(alembic_config())
    assert tuple(reversed([revision.revision for revision in script.walk_revisions()])) == KNOWN_REVISIONS
    assert script.get_current_head() == HEAD_REVISION


def test_migrations_are_frozen_text() -> None:
    folder = resources.files("gpuledger.db") / "migrations" / "versions"
    for file in folder.iterdir():
        if file.name.endswith(".py"):
            assert "gpuledger." not in file.read_text().replace('"gpuledger', "")


def test_a_migration_waits_for_locks_only_so_long(database_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(migrating, "_SETTINGS", {"lock_timeout": "100ms"})
    with psycopg.connect(database_url) as connection:
        connection.execute("SELECT pg_advisory_xact_lock(%s)", [lock_key("migrate")])
        with pytest.raises(LockedError, match="nothing was changed"):
            migrate(database_url)
    assert current_revision(database_url) is None


def test_the_time_outs_hold_while_migrating(database_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[tuple[str, str]] = []

    def look(connection: psycopg.Connection[tuple[str, str]]) -> bool:
        row = connection.execute(
            "SELECT current_setting('lock_timeout'), current_setting('statement_timeout')"
        ).fetchone()
        assert row is not None
        seen.append(row)
        return False

    monkeypatch.setattr(migrating, "ensure_reader", look)
    migrate(database_url)
    assert seen == [("10s", "10min")]


def test_two_at_once_end_well(database_url: str) -> None:
    results: list[object] = []

    def run() -> None:
        try:
            results.append(migrate(database_url).to_revision)
        except DatabaseError as error:
            results.append(error)

    threads = [threading.Thread(target=run) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == [HEAD_REVISION, HEAD_REVISION]


def test_an_owner_without_rights_on_roles_can_migrate(database_url: str) -> None:
    name = psycopg.conninfo.conninfo_to_dict(database_url)["dbname"]
    owner = f"owner_of_{name}"
    with psycopg.connect(database_url, autocommit=True) as connection:
        connection.execute(f"CREATE ROLE {owner} LOGIN PASSWORD 'secret'")
        connection.execute(f"ALTER DATABASE {name} OWNER TO {owner}")
    url = psycopg.conninfo.make_conninfo(database_url, user=owner, password="secret")
    assert migrate(url).to_revision == HEAD_REVISION
    assert migrate(url).from_revision == HEAD_REVISION
    with psycopg.connect(database_url, autocommit=True) as connection:
        connection.execute(f"REASSIGN OWNED BY {owner} TO CURRENT_USER")
        connection.execute(f"DROP OWNED BY {owner}")
        connection.execute(f"DROP ROLE {owner}")


def test_a_server_that_is_not_there_is_named_without_the_password() -> None:
    url = "postgresql://me:secret@127.0.0.1:1/fleet"
    with pytest.raises(DatabaseUnavailableError) as caught:
        migrate(url)
    assert str(caught.value) == (
        "Cannot reach PostgreSQL at 127.0.0.1:1/fleet: Connection refused. Start it, or set DATABASE_URL."
    )


def test_an_invalid_url_is_not_shown() -> None:
    with pytest.raises(DatabaseUrlError) as caught:
        current_revision("postgresql://me:secret@host:port:7/x?what")
    assert "secret" not in str(caught.value)
    assert caught.value.__cause__ is None


def _migrate_to(database_url: str, revision: str) -> None:
    """Bring an empty database to a revision of the past, without the views, which are this build's."""
    engine = sqlalchemy.create_engine(_sqlalchemy_url(database_url))
    with engine.begin() as connection:
        connection.exec_driver_sql(f"CREATE SCHEMA {BOOKKEEPING}")
        command.upgrade(alembic_config(connection), revision)
    engine.dispose()
    assert current_revision(database_url) == revision


def _differences(database_url: str) -> list[object]:
    def ours(name: str | None, kind: str, _parents: object) -> bool:
        if kind == "table":
            return name not in PARTITIONS
        return kind != "schema" or name in ("gpuledger", "gpuledger_live", "gpuledger_next", "gpuledger_prev")

    # A user named like a schema would make that one the default, which Alembic leaves unnamed.
    engine = sqlalchemy.create_engine(_sqlalchemy_url(database_url), connect_args={"options": "-c search_path=public"})
    with engine.connect() as connection:
        context = MigrationContext.configure(
            connection,
            opts={
                "include_schemas": True,
                "include_name": ours,
                "compare_type": True,
                "compare_server_default": True,
                "version_table_schema": "gpuledger",
            },
        )
        differences: list[object] = compare_metadata(context, tables.metadata)
    engine.dispose()
    return differences


def _differences_of_an_older_one(database_url: str) -> list[object]:
    """The differences, but for documents that have to stay text, as a build of before may come back."""
    found = _differences(database_url)
    texts = [one for one in found if isinstance(one, list) and isinstance(one[0][6], JSONB)]
    places = {(table, column) for ((_, _, table, column, *_),) in texts}
    assert places == {(table, column) for table, columns in JSON_COLUMNS.items() for column in columns}
    return [one for one in found if one not in texts]


def _live_tables() -> list[str]:
    return [table.name for table in tables.metadata.tables.values() if table.schema == tables.LIVE]


def _sqlalchemy_url(database_url: str) -> sqlalchemy.URL:
    return sqlalchemy.make_url(database_url).set(drivername="postgresql+psycopg")
