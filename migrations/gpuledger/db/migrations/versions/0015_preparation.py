"""Whether people have a device ignored, and waits for GPU feature discovery and monitoring that timed out.

Only adds: the build before asks every device of a node to be ready, ignored or not, waits for these without an end, and
leaves the columns false and empty.

Revision ID: 0015
Revises: 0014
"""

from alembic import op

revision = "0015"
down_revision = "0014"
branch_labels = None
depends_on = None
EXPANDS = True


def upgrade() -> None:
    for schema in ("gpuledger_live", "gpuledger_next", "gpuledger_prev"):
        op.execute(f"ALTER TABLE IF EXISTS {schema}.bootstrap_device ADD COLUMN ignored boolean NOT NULL DEFAULT false")
        for column in ("gfd_overdue_since", "dcgm_overdue_since"):
            op.execute(f"ALTER TABLE IF EXISTS {schema}.bootstrap_node ADD COLUMN {column} timestamptz")


def downgrade() -> None:
    raise NotImplementedError("Migrations only go forward; restore a backup to go back.")
