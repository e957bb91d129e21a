"""Snapshots of folds that live in memory.

Only adds: the build before begins at the start of the log.

Revision ID: 0018
Revises: 0017
"""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import BYTEA

revision = "0018"
down_revision = "0017"
branch_labels = None
depends_on = None
EXPANDS = True

TEXT = sa.Text(collation="C")


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


def downgrade() -> None:
    raise NotImplementedError("Migrations only go forward; restore a backup to go back.")
