"""The cursor of the export of events, and the events that its endpoint refused.

Only adds: the build before exports nothing.

Revision ID: 0032
Revises: 0031
"""

import sqlalchemy as sa
from alembic import op

revision = "0032"
down_revision = "0031"
branch_labels = None
depends_on = None
EXPANDS = True

SCHEMA = "gpuledger"
TEXT = sa.Text(collation="C")
TIME = sa.DateTime(timezone=True)


def upgrade() -> None:
    op.create_table(
        "export_cursor",
        sa.Column("name", TEXT, nullable=False),
        sa.Column("ledger_id", TEXT, nullable=False),
        sa.Column("generation", sa.BigInteger(), nullable=False),
        sa.Column("partition", sa.SmallInteger(), nullable=False),
        sa.Column("position", sa.BigInteger(), nullable=False),
        sa.Column("event_id", TEXT),
        sa.Column("event_digest", TEXT),
        sa.Column("updated_at", TIME, nullable=False, server_default=sa.func.now()),
        sa.PrimaryKeyConstraint("name", name="export_cursor_pkey"),
        schema=SCHEMA,
    )
    op.create_table(
        "export_dead_letter",
        sa.Column("name", TEXT, nullable=False),
        sa.Column("generation", sa.BigInteger(), nullable=False),
        sa.Column("partition", sa.SmallInteger(), nullable=False),
        sa.Column("position", sa.BigInteger(), nullable=False),
        sa.Column("event_id", TEXT, nullable=False),
        sa.Column("type", TEXT, nullable=False),
        sa.Column("subject", TEXT, nullable=False),
        sa.Column("reason", TEXT, nullable=False),
        sa.Column("refused_at", TIME, nullable=False, server_default=sa.func.now()),
        sa.PrimaryKeyConstraint("name", "generation", "partition", "position", name="export_dead_letter_pkey"),
        schema=SCHEMA,
    )


def downgrade() -> None:
    raise NotImplementedError("Migrations only go forward; restore a backup to go back.")
