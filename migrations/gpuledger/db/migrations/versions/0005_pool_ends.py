"""When pools went, so that what is recorded late does not bring them back; and the pods that ask for units of pools.

Of a device that is to leave its pool it is kept whether its agent had set it up.

Revision ID: 0005
Revises: 0004
"""

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "pool_end",
        sa.Column("pool", sa.Text(collation="C"), nullable=False),
        sa.Column("gone_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("pool", name="pool_end_pkey"),
        schema="gpuledger_live",
    )
    op.create_table(
        "pool_pod",
        sa.Column("pod", sa.Text(collation="C"), nullable=False),
        sa.Column("uid", sa.Text(collation="C"), nullable=False),
        sa.Column("node", sa.Text(collation="C"), nullable=True),
        sa.Column("requests", sa.Text(collation="C"), nullable=False),
        sa.Column("said_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("bound_at", sa.DateTime(timezone=True), nullable=True),
        sa.PrimaryKeyConstraint("pod", name="pool_pod_pkey"),
        schema="gpuledger_live",
    )
    # Rows that are there are of an older version of the projection, and are made anew.
    op.add_column(
        "gpu_device_assignment",
        sa.Column("was_assigned", sa.Boolean(), nullable=False, server_default=sa.false()),
        schema="gpuledger_live",
    )
    op.alter_column("gpu_device_assignment", "was_assigned", server_default=None, schema="gpuledger_live")


def downgrade() -> None:
    raise NotImplementedError("Migrations only go forward; restore a backup to go back.")
