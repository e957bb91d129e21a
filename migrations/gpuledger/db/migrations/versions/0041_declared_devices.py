"""Devices that files on nodes declare are offered for sharing.

Only adds: the build before leaves the columns out.

Revision ID: 0041
Revises: 0040
"""

from alembic import op

revision = "0041"
down_revision = "0040"
branch_labels = None
depends_on = None
EXPANDS = True


def upgrade() -> None:
    for schema in ("gpuledger_live", "gpuledger_next", "gpuledger_prev"):
        op.execute(f"""
            ALTER TABLE IF EXISTS {schema}.sharing_hardware ADD COLUMN declared text COLLATE "C" NOT NULL DEFAULT '',
            ADD COLUMN declared_at timestamptz
        """)


def downgrade() -> None:
    raise NotImplementedError("Migrations only go forward; restore a backup to go back.")
