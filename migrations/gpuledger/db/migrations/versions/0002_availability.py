"""Dynamic resource allocation: slices, claims, allocations, and how pools stood; and two settings.

Revision ID: 0002
Revises: 0001
"""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None

SETTINGS_SCHEMAS = ("gpuledger_live", "gpuledger_next", "gpuledger_prev")
"""Where a table of settings may be: in force, of a rebuild under way, and of the rows that it replaced."""


def upgrade() -> None:
    _create_offers()
    _create_allocations()
    _create_pools()
    for schema in SETTINGS_SCHEMAS:
        op.execute(
            f"ALTER TABLE IF EXISTS {schema}.module_settings "
            "ADD COLUMN claim_references text COLLATE \"C\" NOT NULL DEFAULT 'Full', "
            "ADD COLUMN dra_availability boolean NOT NULL DEFAULT true"
        )
        op.execute(
            f"ALTER TABLE IF EXISTS {schema}.module_settings "
            "ALTER COLUMN claim_references DROP DEFAULT, ALTER COLUMN dra_availability DROP DEFAULT"
        )


def downgrade() -> None:
    raise NotImplementedError("Migrations only go forward; restore a backup to go back.")


def _create_offers() -> None:
    op.create_table(
        "resource_slice",
        sa.Column("name", sa.Text(collation="C"), nullable=False),
        sa.Column("uid", sa.Text(collation="C"), nullable=False),
        sa.Column("driver", sa.Text(collation="C"), nullable=False),
        sa.Column("pool", sa.Text(collation="C"), nullable=False),
        sa.Column("node", sa.Text(collation="C"), nullable=True),
        sa.Column("generation", sa.BigInteger(), nullable=False),
        sa.Column("pool_generation", sa.BigInteger(), nullable=False),
        sa.Column("expected_slices", sa.BigInteger(), nullable=False),
        sa.Column("devices", sa.BigInteger(), nullable=False),
        sa.Column("published_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("said", sa.Text(collation="C"), nullable=False),
        sa.PrimaryKeyConstraint("name", name="resource_slice_pkey"),
        schema="gpuledger_live",
    )
    op.create_table(
        "device_class",
        sa.Column("name", sa.Text(collation="C"), nullable=False),
        sa.Column("said", sa.Text(collation="C"), nullable=False),
        sa.PrimaryKeyConstraint("name", name="device_class_pkey"),
        schema="gpuledger_live",
    )
    op.create_table(
        "device_taint_rule",
        sa.Column("name", sa.Text(collation="C"), nullable=False),
        sa.Column("said", sa.Text(collation="C"), nullable=False),
        sa.PrimaryKeyConstraint("name", name="device_taint_rule_pkey"),
        schema="gpuledger_live",
    )
    op.create_table(
        "node_labels",
        sa.Column("node", sa.Text(collation="C"), nullable=False),
        sa.Column("labels", sa.Text(collation="C"), nullable=False),
        sa.PrimaryKeyConstraint("node", name="node_labels_pkey"),
        schema="gpuledger_live",
    )


def _create_allocations() -> None:
    op.create_table(
        "resource_claim",
        sa.Column("claim", sa.Text(collation="C"), nullable=False),
        sa.Column("uid", sa.Text(collation="C"), nullable=False),
        sa.Column("phase", sa.Text(collation="C"), nullable=False),
        sa.Column("owner", sa.Text(collation="C"), nullable=True),
        sa.Column("requests", sa.BigInteger(), nullable=False),
        sa.Column("devices", sa.BigInteger(), nullable=False),
        sa.Column("since", sa.DateTime(timezone=True), nullable=False),
        sa.Column("said", sa.Text(collation="C"), nullable=False),
        sa.PrimaryKeyConstraint("claim", name="resource_claim_pkey"),
        schema="gpuledger_live",
    )
    op.create_table(
        "device_allocation",
        sa.Column("claim", sa.Text(collation="C"), nullable=False),
        sa.Column("uid", sa.Text(collation="C"), nullable=False),
        sa.Column("driver", sa.Text(collation="C"), nullable=False),
        sa.Column("pool", sa.Text(collation="C"), nullable=False),
        sa.Column("device", sa.Text(collation="C"), nullable=False),
        sa.Column("request", sa.Text(collation="C"), nullable=False),
        sa.Column("share", sa.Text(collation="C"), nullable=False),
        sa.Column("valid_from", sa.DateTime(timezone=True), nullable=False),
        sa.Column("valid_to", sa.DateTime(timezone=True), nullable=True),
        sa.Column("admin_access", sa.Boolean(), nullable=False),
        sa.Column("consumed", sa.Text(collation="C"), nullable=False),
        sa.PrimaryKeyConstraint(
            "claim", "uid", "driver", "pool", "device", "request", "share", "valid_from", name="device_allocation_pkey"
        ),
        schema="gpuledger_live",
    )
    op.create_index(
        "device_allocation_driver_pool_device_idx",
        "device_allocation",
        ["driver", "pool", "device"],
        schema="gpuledger_live",
    )


def _create_pools() -> None:
    op.create_table(
        "pool_condition",
        sa.Column("driver", sa.Text(collation="C"), nullable=False),
        sa.Column("pool", sa.Text(collation="C"), nullable=False),
        sa.Column("node", sa.Text(collation="C"), nullable=False),
        sa.Column("type", sa.Text(collation="C"), nullable=False),
        sa.Column("status", sa.Boolean(), nullable=False),
        sa.Column("reason", sa.Text(collation="C"), nullable=False),
        sa.Column("message", sa.Text(collation="C"), nullable=False),
        sa.Column("changed_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("driver", "pool", "node", "type", name="pool_condition_pkey"),
        schema="gpuledger_live",
    )
    op.create_table(
        "pool_availability",
        sa.Column("driver", sa.Text(collation="C"), nullable=False),
        sa.Column("pool", sa.Text(collation="C"), nullable=False),
        sa.Column("node", sa.Text(collation="C"), nullable=False),
        sa.Column("valid_from", sa.DateTime(timezone=True), nullable=False),
        sa.Column("valid_to", sa.DateTime(timezone=True), nullable=True),
        sa.Column("generation", sa.BigInteger(), nullable=False),
        sa.Column("complete", sa.Boolean(), nullable=False),
        sa.Column("valid", sa.Boolean(), nullable=False),
        sa.Column("total", sa.BigInteger(), nullable=False),
        sa.Column("allocated", sa.BigInteger(), nullable=False),
        sa.Column("available", sa.BigInteger(), nullable=False),
        sa.Column("partial", sa.BigInteger(), nullable=False),
        sa.Column("unavailable", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("driver", "pool", "node", "valid_from", name="pool_availability_pkey"),
        schema="gpuledger_live",
    )
