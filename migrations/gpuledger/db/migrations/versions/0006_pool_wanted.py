"""What nodes' agents were told last of the devices that pools want set up, and whether they miss the driver.

Revision ID: 0006
Revises: 0005
"""

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "pool_wanted",
        sa.Column("node", sa.Text(collation="C"), nullable=False),
        sa.Column("devices", sa.Text(collation="C"), nullable=False),
        sa.Column("changed_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("node", name="pool_wanted_pkey"),
        schema="gpuledger_live",
    )
    # Rows that are there are of an older version of their projection, and are made anew.
    for table, column in (
        ("pool_device", sa.Column("uuid", sa.Text(collation="C"), nullable=True)),
        ("pool_device", sa.Column("pci_address", sa.Text(collation="C"), nullable=True)),
        ("pool_setup", sa.Column("asked_at", sa.DateTime(timezone=True), nullable=True)),
        ("bootstrap_node", sa.Column("driver_missing", sa.Boolean(), nullable=True)),
        ("bootstrap_node", sa.Column("driver_told_at", sa.DateTime(timezone=True), nullable=True)),
    ):
        op.add_column(table, column, schema="gpuledger_live")


def downgrade() -> None:
    raise NotImplementedError("Migrations only go forward; restore a backup to go back.")
