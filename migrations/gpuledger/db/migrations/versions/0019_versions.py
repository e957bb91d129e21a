"""What devices and slots were from moment to moment, and indexes for looking back.

Only adds: the build before leaves the tables empty, and what reads them looks at the version of the rows first.

Revision ID: 0019
Revises: 0018
"""

from alembic import op

revision = "0019"
down_revision = "0018"
branch_labels = None
depends_on = None
EXPANDS = True

SCHEMAS = ("gpuledger_live", "gpuledger_next", "gpuledger_prev")
"""Where a projection's table may be: in force, of a rebuild under way, and of the rows that it replaced."""

INDEXES = {
    "device": ("hash (serial)", "hash (uuid)"),
    "installation": ("brin (valid_from, valid_to) WITH (autosummarize = on)",),
    "failure": ("brin (failed_at) WITH (autosummarize = on)",),
    "slot_history": ("brin (valid_from) WITH (autosummarize = on)",),
    "node_history": ("brin (valid_from) WITH (autosummarize = on)",),
    "container_allocation_history": ("brin (valid_from, valid_to) WITH (autosummarize = on)",),
    "contradiction": ("hash (subject)", "hash (first)", "hash (second)"),
    "allocation": ("brin (valid_from, valid_to) WITH (autosummarize = on)",),
    "workload_fact": ("brin (happened_at) WITH (autosummarize = on)",),
}
"""Of each table: how people name a device, and when something happened. A hash index takes a text of any length."""


def upgrade() -> None:
    for schema in SCHEMAS:
        _create_versions(schema)
        for table, indexes in INDEXES.items():
            for index in indexes:
                _execute_where_there_is(schema, table, f"CREATE INDEX ON {schema}.{table} USING {index};")


def downgrade() -> None:
    raise NotImplementedError("Migrations only go forward; restore a backup to go back.")


def _create_versions(schema: str) -> None:
    _execute_where_there_is(
        schema,
        "device",
        f"""
                CREATE TABLE {schema}.device_history (
                    device text COLLATE "C" NOT NULL,
                    valid_from timestamptz NOT NULL,
                    state text COLLATE "C" NOT NULL,
                    slot text COLLATE "C",
                    in_service_since timestamptz,
                    places bigint NOT NULL,
                    serial text COLLATE "C",
                    uuid text COLLATE "C",
                    model text COLLATE "C",
                    removed_at timestamptz,
                    lives bigint NOT NULL,
                    CONSTRAINT device_history_pkey PRIMARY KEY (device, valid_from)
                );
                CREATE INDEX ON {schema}.device_history USING brin (valid_from) WITH (autosummarize = on);
                CREATE TABLE {schema}.occupancy_history (
                    slot text COLLATE "C" NOT NULL,
                    valid_from timestamptz NOT NULL,
                    device text COLLATE "C",
                    occupants bigint NOT NULL,
                    lives bigint NOT NULL,
                    vacated_at timestamptz,
                    CONSTRAINT occupancy_history_pkey PRIMARY KEY (slot, valid_from)
                );
                CREATE INDEX ON {schema}.occupancy_history USING brin (valid_from) WITH (autosummarize = on);
        """,
    )


def _execute_where_there_is(schema: str, table: str, statements: str) -> None:
    op.execute(f"""
            DO $$
            BEGIN
                IF to_regclass('{schema}.{table}') IS NULL THEN
                    RETURN;
                END IF;
                {statements}
            END
            $$
        """)
