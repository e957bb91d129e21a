"""A checkpoint names its ledger, the partition, and the last event that was folded.

Revision ID: 0011
Revises: 0010
"""

import sqlalchemy as sa
from alembic import op

revision = "0011"
down_revision = "0010"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Only new columns, which the build before leaves alone: `last_position` shows that it wrote meanwhile."""
    op.add_column("projection", sa.Column("ledger_id", sa.Text(collation="C")), schema="gpuledger")
    op.add_column("projection", sa.Column("last_position", sa.BigInteger), schema="gpuledger")
    op.add_column("projection", sa.Column("last_event_id", sa.Text(collation="C")), schema="gpuledger")
    op.add_column("projection", sa.Column("last_digest", sa.Text(collation="C")), schema="gpuledger")
    op.add_column(
        "projection",
        sa.Column("partition", sa.SmallInteger, nullable=False, server_default="0"),
        schema="gpuledger",
    )


def downgrade() -> None:
    raise NotImplementedError("Migrations only go forward; restore a backup to go back.")
