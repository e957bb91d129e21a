"""Which containers have which devices, as agents tell; and the errors that they see on devices.

Revision ID: 0007
Revises: 0006
"""

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "container_allocation",
        *_unit(),
        sa.Column("since", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("allocation", "unit", name="container_allocation_pkey"),
        schema="gpuledger_live",
    )
    op.create_table(
        "container_allocation_history",
        *_unit(),
        sa.Column("valid_from", sa.DateTime(timezone=True), nullable=False),
        sa.Column("valid_to", sa.DateTime(timezone=True), nullable=True),
        sa.PrimaryKeyConstraint("allocation", "unit", "valid_from", name="container_allocation_history_pkey"),
        schema="gpuledger_live",
    )
    op.create_index(
        "container_allocation_history_device_idx", "container_allocation_history", ["device"], schema="gpuledger_live"
    )
    op.create_table(
        "container_allocation_told",
        sa.Column("allocation", sa.Text(collation="C"), nullable=False),
        sa.Column("told_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("position", sa.BigInteger(), nullable=False),
        sa.Column("until", sa.DateTime(timezone=True), nullable=True),
        sa.PrimaryKeyConstraint("allocation", "told_at", name="container_allocation_told_pkey"),
        schema="gpuledger_live",
    )
    op.create_table(
        "device_errors",
        sa.Column("device", sa.Text(collation="C"), nullable=False),
        sa.Column("kind", sa.Text(collation="C"), nullable=False),
        sa.Column("cause", sa.Text(collation="C"), nullable=False),
        sa.Column("node", sa.Text(collation="C"), nullable=False),
        sa.Column("errors", sa.BigInteger(), nullable=False),
        sa.Column("first_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("last_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("device", "kind", "cause", "node", name="device_errors_pkey"),
        schema="gpuledger_live",
    )


def downgrade() -> None:
    raise NotImplementedError("Migrations only go forward; restore a backup to go back.")


def _unit() -> list[sa.Column[object]]:
    """The columns that say who has what."""
    return [
        sa.Column("allocation", sa.Text(collation="C"), nullable=False),
        sa.Column("unit", sa.Text(collation="C"), nullable=False),
        sa.Column("node", sa.Text(collation="C"), nullable=False),
        sa.Column("namespace", sa.Text(collation="C"), nullable=False),
        sa.Column("pod", sa.Text(collation="C"), nullable=False),
        sa.Column("container", sa.Text(collation="C"), nullable=False),
        sa.Column("resource", sa.Text(collation="C"), nullable=True),
        sa.Column("device", sa.Text(collation="C"), nullable=False),
        sa.Column("slice", sa.BigInteger(), nullable=True),
        sa.Column("claim", sa.Text(collation="C"), nullable=True),
        sa.Column("driver", sa.Text(collation="C"), nullable=True),
        sa.Column("pool", sa.Text(collation="C"), nullable=True),
    ]
