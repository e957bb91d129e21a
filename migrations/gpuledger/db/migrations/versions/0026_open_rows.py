"""Indexes of the installations and versions of nodes that have not ended: what a process loads when it starts.

Only adds.

Revision ID: 0026
Revises: 0025
"""

from alembic import op

revision = "0026"
down_revision = "0025"
branch_labels = None
depends_on = None
EXPANDS = True

SCHEMAS = ("gpuledger_live", "gpuledger_next", "gpuledger_prev")
"""Where a projection's table may be: in force, of a rebuild under way, and of the rows that it replaced."""

OPEN = {"installation": "device", "node_history": "node"}
"""Of each table a column of the key."""


def upgrade() -> None:
    for schema in SCHEMAS:
        for table, column in OPEN.items():
            op.execute(f"""
            DO $$
            BEGIN
                IF to_regclass('{schema}.{table}') IS NOT NULL THEN
                    CREATE INDEX ON {schema}.{table} ({column}) WHERE valid_to IS NULL;
                END IF;
            END
            $$
            """)


def downgrade() -> None:
    raise NotImplementedError("Migrations only go forward; restore a backup to go back.")
