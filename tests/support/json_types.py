"""Databases as an earlier build left them: with JSON in columns of text."""

import psycopg

from gpuledger.db.json_columns import JSON_COLUMNS
from gpuledger.db.revision import OLDEST_REVISION
from gpuledger.db.views import keep_views, recreate_views
from support.projections import execute


def as_an_older_build_left_it(database_url: str) -> str:
    """Give a database without rows the types that the builds before jsonb made, and let these work with it."""
    with psycopg.connect(database_url) as connection:
        keep_views(connection)
        connection.execute("DROP SCHEMA report CASCADE; CREATE SCHEMA report")
        for table, columns in JSON_COLUMNS.items():
            texts = ", ".join(f'ALTER COLUMN {name} TYPE text COLLATE "C"' for name in columns)
            connection.execute(f"ALTER TABLE gpuledger_live.{table} {texts}".encode())
        note = f"COMMENT ON TABLE gpuledger.alembic_version IS 'Builds work with it from revision {OLDEST_REVISION}'"
        connection.execute(note.encode())
        recreate_views(connection)
    return database_url


def types_of_documents(database_url: str, schema: str = "gpuledger_live") -> dict[str, int]:
    """How many columns of documents have which type."""
    found = execute(
        database_url,
        "SELECT table_name, column_name, data_type FROM information_schema.columns WHERE table_schema = %s",
        schema,
    )
    types: dict[str, int] = {}
    for table, column, kind in found:
        if column in JSON_COLUMNS.get(table, ()):
            types[kind] = types.get(kind, 0) + 1
    return types
