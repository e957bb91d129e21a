"""Where the ledger has the events about names that share a subject.

Only adds: the build before does not know the table.

Revision ID: 0023
Revises: 0022
"""

import sqlalchemy as sa
from alembic import op

revision = "0023"
down_revision = "0022"
branch_labels = None
depends_on = None
EXPANDS = True

SCHEMA, TABLE = "gpuledger_live", "indexed_event"

SEEN_SOON = (
    "autovacuum_vacuum_insert_scale_factor = 0.02, autovacuum_vacuum_scale_factor = 0.05, "
    "autovacuum_analyze_scale_factor = 0.02"
)
"""Vacuum marks new pages as visible to all early, so that the primary key alone answers; it has both columns."""


def upgrade() -> None:
    op.create_table(
        TABLE,
        sa.Column("digest", sa.BigInteger(), nullable=False),
        sa.Column("position", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("digest", "position", name="indexed_event_pkey"),
        schema=SCHEMA,
    )
    op.execute(f"ALTER TABLE {SCHEMA}.{TABLE} SET ({SEEN_SOON})")


def downgrade() -> None:
    raise NotImplementedError("Migrations only go forward; restore a backup to go back.")
