"""Tables and columns get the field's words; their rows, and those of a rebuild and of a rollback, stay as they are.

Revision ID: 0008
Revises: 0007
"""

from alembic import op

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None

SCHEMAS = ("gpuledger_live", "gpuledger_next", "gpuledger_prev")
"""Where a projection's table may be: in force, of a rebuild under way, and of the rows that it replaced."""

TABLES = {
    "stint": "installation",
    "inventory_sighting": "inventory_card_report",
    "container_allocation_told": "container_allocation_report",
    "pool_wanted": "pool_node_orders",
    "pool_trouble": "pool_device_problem",
}

COLUMNS = {
    "resource_slice": {"said": "payload"},
    "resource_claim": {"said": "payload"},
    "device_class": {"said": "payload"},
    "device_taint_rule": {"said": "payload"},
    "container_allocation_report": {"told_at": "reported_at"},
    "inventory_node": {"told_at": "gpus_reported_at", "learnt": "hardware_facts"},
    "inventory_card_report": {"teller": "reporter", "seen_at": "reported_at"},
    "gpu_pool": {"said": "payload"},
    "pool_mark": {"asked": "requested_pool", "asked_cluster": "requested_cluster_pool"},
    "pool_setup": {"word": "report", "told_at": "reported_at", "asked_at": "requested_at"},
    "pool_pod": {"said_at": "observed_at"},
    "bootstrap_node": {
        "is_known": "in_inventory",
        "looks": "heartbeats",
        "driver_told_at": "driver_reported_at",
        "validator_waited": "validator_overdue_since",
        "agent_waited": "agent_overdue_since",
        "exporter_waited": "exporter_overdue_since",
    },
    "bootstrap_component": {"told_at": "reported_at", "other_at": "contrary_at"},
    "bootstrap_health": {"told_at": "reported_at", "other_at": "contrary_at"},
}
"""By the new name of their table."""


def upgrade() -> None:
    for schema in SCHEMAS:
        for old, new in TABLES.items():
            _rename_table(schema, old, new)
        for table, columns in COLUMNS.items():
            for old, new in columns.items():
                _rename_column(schema, table, old, new)


def downgrade() -> None:
    raise NotImplementedError("Migrations only go forward; restore a backup to go back.")


def _rename_table(schema: str, old: str, new: str) -> None:
    """Rename the table where it exists, with its constraints and indexes, as PostgreSQL would have named them."""
    op.execute(f"""
        DO $$
        DECLARE
            renamed text;
        BEGIN
            IF to_regclass('{schema}.{old}') IS NULL THEN
                RETURN;
            END IF;
            ALTER TABLE {schema}.{old} RENAME TO {new};
            FOR renamed IN
                SELECT conname FROM pg_constraint
                WHERE conrelid = '{schema}.{new}'::regclass AND starts_with(conname, '{old}_')
            LOOP
                EXECUTE format(
                    'ALTER TABLE {schema}.{new} RENAME CONSTRAINT %I TO %I',
                    renamed, '{new}' || substr(renamed, length('{old}') + 1)
                );
            END LOOP;
            FOR renamed IN
                SELECT relname FROM pg_index JOIN pg_class ON pg_class.oid = indexrelid
                WHERE indrelid = '{schema}.{new}'::regclass AND starts_with(relname, '{old}_')
            LOOP
                EXECUTE format(
                    'ALTER INDEX {schema}.%I RENAME TO %I', renamed, '{new}' || substr(renamed, length('{old}') + 1)
                );
            END LOOP;
        END
        $$
    """)  # noqa: S608 - our own words


def _rename_column(schema: str, table: str, old: str, new: str) -> None:
    """Rename the column where its table exists; its NOT NULL has a name from PostgreSQL 18 on."""
    op.execute(f"""
        DO $$
        BEGIN
            IF to_regclass('{schema}.{table}') IS NULL THEN
                RETURN;
            END IF;
            ALTER TABLE {schema}.{table} RENAME COLUMN {old} TO {new};
            IF EXISTS (
                SELECT FROM pg_constraint
                WHERE conrelid = '{schema}.{table}'::regclass AND conname = '{table}_{old}_not_null'
            ) THEN
                ALTER TABLE {schema}.{table}
                    RENAME CONSTRAINT {table}_{old}_not_null TO {table}_{new}_not_null;
            END IF;
        END
        $$
    """)
