"""Indexes of what is open, and how PostgreSQL keeps tables whose rows change often, and those that only grow.

Only adds. The settings change no row: pages that are written from now on have the room.

Revision ID: 0021
Revises: 0020
"""

from alembic import op

revision = "0021"
down_revision = "0020"
branch_labels = None
depends_on = None
EXPANDS = True

SCHEMAS = ("gpuledger_live", "gpuledger_next", "gpuledger_prev")
"""Where a projection's table may be: in force, of a rebuild under way, and of the rows that it replaced."""

BOOKKEEPING = "gpuledger"

OPEN = {
    "allocation": ("workload", "valid_to IS NULL"),
    "workload": ("workload", "ended_at IS NULL OR submitted_at IS NULL"),
    "container_allocation_history": ("allocation", "valid_to IS NULL"),
    "container_allocation_report": ("allocation", "until IS NULL"),
    "device_allocation": ("claim", "valid_to IS NULL"),
    "pool_availability": ("pool", "valid_to IS NULL"),
}
"""The rows that a process loads when it starts: a column of the key, and the condition."""

HOT = ("device", "slot", "node", "source", "source_hour", "resource_claim", "resource_slice", "pool_condition")
HOT_BOOKKEEPING = ("projection", "seen", "decider", "outbox")
ROOM = "fillfactor = 70, autovacuum_vacuum_scale_factor = 0.05, autovacuum_analyze_scale_factor = 0.05"
"""Room on each page keeps an update on it, so that no index changes; and vacuum comes before the table has grown."""

GROWING = (
    "installation",
    "failure",
    "device_history",
    "occupancy_history",
    "slot_history",
    "node_history",
    "allocation",
    "workload_fact",
    "container_allocation_history",
    "device_allocation",
    "pool_availability",
)
SEEN_SOON = (
    "autovacuum_vacuum_insert_scale_factor = 0.02, autovacuum_vacuum_scale_factor = 0.05, "
    "autovacuum_analyze_scale_factor = 0.02"
)
"""Vacuum marks new pages as visible to all early, without which an index alone answers nothing."""


def upgrade() -> None:
    for schema in SCHEMAS:
        for table, (column, condition) in OPEN.items():
            _execute_where_there_is(schema, table, f"CREATE INDEX ON {schema}.{table} ({column}) WHERE {condition};")
        for table in HOT:
            op.execute(f"ALTER TABLE IF EXISTS {schema}.{table} SET ({ROOM})")
        for table in GROWING:
            op.execute(f"ALTER TABLE IF EXISTS {schema}.{table} SET ({SEEN_SOON})")
    for table in HOT_BOOKKEEPING:
        op.execute(f"ALTER TABLE {BOOKKEEPING}.{table} SET ({ROOM})")


def downgrade() -> None:
    raise NotImplementedError("Migrations only go forward; restore a backup to go back.")


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
