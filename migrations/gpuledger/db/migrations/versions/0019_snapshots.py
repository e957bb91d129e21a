"""Snapshots of folds that live in memory, and indexes of the rows that have not retired.

Only adds: the build before begins at the start of the log, and reads the rows as it did.

Revision ID: 0019
Revises: 0017
"""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import BYTEA

revision = "0019"
down_revision = "0017"
branch_labels = None
depends_on = None
EXPANDS = True

TEXT = sa.Text(collation="C")

SCHEMAS = ("gpuledger_live", "gpuledger_next", "gpuledger_prev")
"""Where a projection's table may be: in force, of a rebuild under way, and of the rows that it replaced."""

OPEN = {
    "workload": ("workload", "NOT (ended_at IS NOT NULL AND submitted_at IS NOT NULL)"),
    "allocation": ("workload", "valid_to IS NULL"),
    "container_allocation_history": ("allocation", "valid_to IS NULL"),
    "container_allocation_report": ("allocation", "until IS NULL"),
    "device_allocation": ("claim", "valid_to IS NULL"),
    "pool_availability": ("pool", "valid_to IS NULL"),
}
"""The column of each index of open rows, and which rows those are: what a start reads."""


def upgrade() -> None:
    op.create_table(
        "snapshot",
        sa.Column("name", TEXT, nullable=False),
        sa.Column("layout", TEXT, nullable=False),
        sa.Column("version", sa.BigInteger(), nullable=False),
        sa.Column("ledger_id", TEXT, nullable=False),
        sa.Column("generation", sa.BigInteger(), nullable=False),
        sa.Column("position", sa.BigInteger(), nullable=False),
        sa.Column("event_id", TEXT, nullable=False),
        sa.Column("event_digest", TEXT, nullable=False),
        sa.Column("pieces_digest", TEXT, nullable=False),
        sa.Column("written_at", sa.TIMESTAMP(timezone=True), nullable=False, server_default=sa.func.now()),
        sa.PrimaryKeyConstraint("name", "layout", name="snapshot_pkey"),
        schema="gpuledger",
    )
    op.create_table(
        "snapshot_piece",
        sa.Column("name", TEXT, nullable=False),
        sa.Column("layout", TEXT, nullable=False),
        sa.Column("number", sa.BigInteger(), nullable=False),
        sa.Column("part", TEXT, nullable=False),
        sa.Column("data", BYTEA(), nullable=False),
        sa.PrimaryKeyConstraint("name", "layout", "number", name="snapshot_piece_pkey"),
        sa.ForeignKeyConstraint(
            ["name", "layout"],
            ["gpuledger.snapshot.name", "gpuledger.snapshot.layout"],
            name="snapshot_piece_snapshot_fkey",
            ondelete="CASCADE",
        ),
        schema="gpuledger",
    )
    for schema in SCHEMAS:
        for table, (column, is_open) in OPEN.items():
            if op.get_bind().scalar(sa.text(f"SELECT to_regclass('{schema}.{table}') IS NOT NULL")):
                op.execute(f"CREATE INDEX {table}_{column}_idx ON {schema}.{table} ({column}) WHERE {is_open}")


def downgrade() -> None:
    raise NotImplementedError("Migrations only go forward; restore a backup to go back.")
