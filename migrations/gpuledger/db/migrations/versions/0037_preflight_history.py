"""When the pod of an attempt at a preflight check was gone, by which its history may be shortened.

Only adds: the build before leaves the column out.

Revision ID: 0037
Revises: 0036
"""

from alembic import op

revision = "0037"
down_revision = "0036"
branch_labels = None
depends_on = None
EXPANDS = True


def upgrade() -> None:
    for schema in ("gpuledger_live", "gpuledger_next", "gpuledger_prev"):
        op.execute(f"ALTER TABLE IF EXISTS {schema}.preflight_check ADD COLUMN gone_at timestamptz")


def downgrade() -> None:
    raise NotImplementedError("Migrations only go forward; restore a backup to go back.")
