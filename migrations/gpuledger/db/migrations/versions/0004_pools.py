"""Pools: which device belongs to which, what they offer, and what their decider knows of devices and nodes.

Revision ID: 0004
Revises: 0003
"""

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None


def upgrade() -> None:
    _create_decided()
    _create_seen()
    _create_accounts()
    _create_module()


def downgrade() -> None:
    raise NotImplementedError("Migrations only go forward; restore a backup to go back.")


def _create_decided() -> None:
    op.create_table(
        "gpu_pool",
        sa.Column("subject", sa.Text(collation="C"), nullable=False),
        sa.Column("name", sa.Text(collation="C"), nullable=False),
        sa.Column("uid", sa.Text(collation="C"), nullable=False),
        sa.Column("generation", sa.BigInteger(), nullable=False),
        sa.Column("deleting", sa.Boolean(), nullable=False),
        sa.Column("released", sa.Boolean(), nullable=False),
        sa.Column("position", sa.BigInteger(), nullable=False),
        sa.Column("defined_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("approval", sa.Text(collation="C"), nullable=True),
        sa.Column("said", sa.Text(collation="C"), nullable=False),
        sa.PrimaryKeyConstraint("subject", name="gpu_pool_pkey"),
        schema="gpuledger_live",
    )
    op.create_table(
        "gpu_device_assignment",
        sa.Column("device", sa.Text(collation="C"), nullable=False),
        sa.Column("pool", sa.Text(collation="C"), nullable=True),
        sa.Column("phase", sa.Text(collation="C"), nullable=True),
        sa.Column("automatic", sa.Boolean(), nullable=False),
        sa.Column("reason", sa.Text(collation="C"), nullable=False),
        sa.Column("message", sa.Text(collation="C"), nullable=False),
        sa.Column("changed_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("device", name="gpu_device_assignment_pkey"),
        schema="gpuledger_live",
    )
    op.create_index("gpu_device_assignment_pool_idx", "gpu_device_assignment", ["pool"], schema="gpuledger_live")
    op.create_table(
        "gpu_pool_total",
        sa.Column("pool", sa.Text(collation="C"), nullable=False),
        sa.Column("total", sa.BigInteger(), nullable=True),
        sa.Column("observed_generation", sa.BigInteger(), nullable=False),
        sa.Column("changed_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("pool", name="gpu_pool_total_pkey"),
        schema="gpuledger_live",
    )
    op.create_table(
        "gpu_pool_condition",
        sa.Column("pool", sa.Text(collation="C"), nullable=False),
        sa.Column("type", sa.Text(collation="C"), nullable=False),
        sa.Column("status", sa.Text(collation="C"), nullable=False),
        sa.Column("reason", sa.Text(collation="C"), nullable=False),
        sa.Column("message", sa.Text(collation="C"), nullable=False),
        sa.Column("changed_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("pool", "type", name="gpu_pool_condition_pkey"),
        schema="gpuledger_live",
    )


def _create_seen() -> None:
    op.create_table(
        "pool_device",
        sa.Column("name", sa.Text(collation="C"), nullable=False),
        sa.Column("node", sa.Text(collation="C"), nullable=False),
        sa.Column("device_index", sa.BigInteger(), nullable=True),
        sa.Column("managed", sa.Boolean(), nullable=False),
        sa.Column("ignored", sa.Boolean(), nullable=False),
        sa.Column("missing", sa.Boolean(), nullable=False),
        sa.Column("prepared", sa.Text(collation="C"), nullable=False),
        sa.Column("inventory_id", sa.Text(collation="C"), nullable=False),
        sa.Column("product", sa.Text(collation="C"), nullable=True),
        sa.Column("pci_vendor", sa.Text(collation="C"), nullable=True),
        sa.Column("pci_device", sa.Text(collation="C"), nullable=True),
        sa.Column("mig_capable", sa.Boolean(), nullable=True),
        sa.Column("mig_profiles", sa.Text(collation="C"), nullable=True),
        sa.Column("labels", sa.Text(collation="C"), nullable=False),
        sa.PrimaryKeyConstraint("name", name="pool_device_pkey"),
        schema="gpuledger_live",
    )
    op.create_table(
        "pool_mark",
        sa.Column("device", sa.Text(collation="C"), nullable=False),
        sa.Column("marked_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("labels", sa.Text(collation="C"), nullable=False),
        sa.Column("asked", sa.Text(collation="C"), nullable=True),
        sa.Column("asked_cluster", sa.Text(collation="C"), nullable=True),
        sa.PrimaryKeyConstraint("device", name="pool_mark_pkey"),
        schema="gpuledger_live",
    )
    op.create_table(
        "pool_node",
        sa.Column("node", sa.Text(collation="C"), nullable=False),
        sa.Column("ready", sa.Boolean(), nullable=False),
        sa.Column("labels", sa.Text(collation="C"), nullable=False),
        sa.Column("labelled_at", sa.DateTime(timezone=True), nullable=True),
        sa.PrimaryKeyConstraint("node", name="pool_node_pkey"),
        schema="gpuledger_live",
    )


def _create_accounts() -> None:
    op.create_table(
        "pool_setup",
        sa.Column("device", sa.Text(collation="C"), nullable=False),
        sa.Column("pool", sa.Text(collation="C"), nullable=True),
        sa.Column("word", sa.Text(collation="C"), nullable=True),
        sa.Column("partitions", sa.BigInteger(), nullable=False),
        sa.Column("partitions_most", sa.BigInteger(), nullable=False),
        sa.Column("reason", sa.Text(collation="C"), nullable=False),
        sa.Column("message", sa.Text(collation="C"), nullable=False),
        sa.Column("told_at", sa.DateTime(timezone=True), nullable=True),
        sa.PrimaryKeyConstraint("device", name="pool_setup_pkey"),
        schema="gpuledger_live",
    )
    op.create_table(
        "pool_tally",
        sa.Column("pool", sa.Text(collation="C"), nullable=False),
        sa.Column("devices", sa.BigInteger(), nullable=False),
        sa.Column("cards", sa.BigInteger(), nullable=False),
        sa.Column("partitions", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("pool", name="pool_tally_pkey"),
        schema="gpuledger_live",
    )
    op.create_table(
        "pool_trouble",
        sa.Column("pool", sa.Text(collation="C"), nullable=False),
        sa.Column("device", sa.Text(collation="C"), nullable=False),
        sa.Column("kind", sa.Text(collation="C"), nullable=False),
        sa.Column("reason", sa.Text(collation="C"), nullable=False),
        sa.Column("message", sa.Text(collation="C"), nullable=False),
        sa.PrimaryKeyConstraint("pool", "device", "kind", name="pool_trouble_pkey"),
        schema="gpuledger_live",
    )


def _create_module() -> None:
    op.create_table(
        "pool_module",
        sa.Column("module", sa.Text(collation="C"), nullable=False),
        sa.Column("met", sa.Boolean(), nullable=False),
        sa.Column("reason", sa.Text(collation="C"), nullable=False),
        sa.Column("message", sa.Text(collation="C"), nullable=False),
        sa.Column("changed_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("module", name="pool_module_pkey"),
        schema="gpuledger_live",
    )
    op.create_table(
        "pool_settings",
        sa.Column("module", sa.Text(collation="C"), nullable=False),
        sa.Column("changed_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("enabled", sa.Boolean(), nullable=False),
        sa.Column("managed_label_key", sa.Text(collation="C"), nullable=False),
        sa.Column("enabled_by_default", sa.Boolean(), nullable=False),
        sa.Column("approval_mode", sa.Text(collation="C"), nullable=False),
        sa.Column("approval_selector", sa.Text(collation="C"), nullable=False),
        sa.Column("scheduling_strategy", sa.Text(collation="C"), nullable=False),
        sa.Column("topology_key", sa.Text(collation="C"), nullable=False),
        sa.Column("resync_period_s", sa.BigInteger(), nullable=False),
        sa.Column("high_availability", sa.Boolean(), nullable=True),
        sa.Column("claim_references", sa.Text(collation="C"), nullable=False),
        sa.Column("dra_availability", sa.Boolean(), nullable=False),
        sa.Column("validator_enabled", sa.Boolean(), nullable=False),
        sa.Column("gfd_enabled", sa.Boolean(), nullable=False),
        sa.Column("dcgm_enabled", sa.Boolean(), nullable=False),
        sa.Column("dcgm_exporter_enabled", sa.Boolean(), nullable=False),
        sa.Column("heartbeats", sa.BigInteger(), nullable=False),
        sa.Column("recovery_heartbeats", sa.BigInteger(), nullable=False),
        sa.Column("validation_timeout_s", sa.BigInteger(), nullable=False),
        sa.Column("max_slices_per_device", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("module", name="pool_settings_pkey"),
        schema="gpuledger_live",
    )
