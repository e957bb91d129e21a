"""The events about devices and pools, beside where they stand.

Only adds: the build before leaves the columns empty, and whoever finds them empty reads the log.

Revision ID: 0028
Revises: 0027
"""

import sqlalchemy as sa
from alembic import op

revision = "0028"
down_revision = "0027"
branch_labels = None
depends_on = None
EXPANDS = True

SCHEMA, TABLE = "gpuledger_live", "indexed_event"


def upgrade() -> None:
    op.add_column(TABLE, sa.Column("recorded_at", sa.DateTime(timezone=True)), schema=SCHEMA)
    op.add_column(TABLE, sa.Column("event", sa.Text(collation="C")), schema=SCHEMA)


def downgrade() -> None:
    raise NotImplementedError("Migrations only go forward; restore a backup to go back.")
