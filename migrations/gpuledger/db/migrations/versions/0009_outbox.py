"""The outbox keeps each message's own id, where it was recorded, and since when it waits; sources count taken ids.

Only adds: the build before goes on writing these tables, and what it leaves out has a meaning of its own.

Revision ID: 0009
Revises: 0008
"""

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"
branch_labels = None
depends_on = None

SCHEMAS = ("gpuledger_live", "gpuledger_next", "gpuledger_prev")
"""Where a projection's table may be: in force, of a rebuild under way, and of the rows that it replaced."""


def upgrade() -> None:
    op.add_column("outbox", sa.Column("message_id", sa.Text(collation="C"), nullable=True), schema="gpuledger")
    op.add_column("outbox", sa.Column("sequence", sa.BigInteger(), nullable=True), schema="gpuledger")
    op.add_column(
        "outbox",
        sa.Column("decided_at", sa.DateTime(timezone=True), nullable=False, server_default=sa.func.now()),
        schema="gpuledger",
    )
    for schema in SCHEMAS:
        op.execute(f"ALTER TABLE IF EXISTS {schema}.source ADD COLUMN taken bigint NOT NULL DEFAULT 0")


def downgrade() -> None:
    raise NotImplementedError("Migrations only go forward; restore a backup to go back.")
