"""Preparing nodes: how far each node and device is; and the settings of that.

Revision ID: 0003
Revises: 0002
"""

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None

SETTINGS_SCHEMAS = ("gpuledger_live", "gpuledger_next", "gpuledger_prev")
"""Where a table of settings may be: in force, of a rebuild under way, and of the rows that it replaced."""

SETTINGS = {
    "validator_enabled": "boolean NOT NULL DEFAULT true",
    "gfd_enabled": "boolean NOT NULL DEFAULT true",
    "dcgm_enabled": "boolean NOT NULL DEFAULT true",
    "dcgm_exporter_enabled": "boolean NOT NULL DEFAULT true",
    "heartbeats": "bigint NOT NULL DEFAULT 3",
    "recovery_heartbeats": "bigint NOT NULL DEFAULT 5",
    "validation_timeout_s": "bigint NOT NULL DEFAULT 300",
    "max_slices_per_device": "bigint NOT NULL DEFAULT 8",
}


def upgrade() -> None:
    _create_facts()
    _create_decided()
    added = ", ".join(f"ADD COLUMN {name} {kind}" for name, kind in SETTINGS.items())
    settled = ", ".join(f"ALTER COLUMN {name} DROP DEFAULT" for name in SETTINGS)
    for schema in SETTINGS_SCHEMAS:
        op.execute(f"ALTER TABLE IF EXISTS {schema}.module_settings {added}")
        op.execute(f"ALTER TABLE IF EXISTS {schema}.module_settings {settled}")


def downgrade() -> None:
    raise NotImplementedError("Migrations only go forward; restore a backup to go back.")


def _create_facts() -> None:
    op.create_table(
        "bootstrap_node",
        sa.Column("node", sa.Text(collation="C"), nullable=False),
        sa.Column("is_known", sa.Boolean(), nullable=False),
        sa.Column("managed", sa.Boolean(), nullable=False),
        sa.Column("managed_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("complete", sa.Boolean(), nullable=False),
        sa.Column("complete_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("devices_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("components_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("verdict", sa.Text(collation="C"), nullable=True),
        sa.Column("verdict_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("looks", sa.Text(collation="C"), nullable=False),
        sa.Column("stale_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("validator_waited", sa.DateTime(timezone=True), nullable=True),
        sa.Column("agent_waited", sa.DateTime(timezone=True), nullable=True),
        sa.Column("exporter_waited", sa.DateTime(timezone=True), nullable=True),
        sa.Column("decided_at", sa.DateTime(timezone=True), nullable=True),
        sa.PrimaryKeyConstraint("node", name="bootstrap_node_pkey"),
        schema="gpuledger_live",
    )
    op.create_table(
        "bootstrap_component",
        sa.Column("node", sa.Text(collation="C"), nullable=False),
        sa.Column("component", sa.Text(collation="C"), nullable=False),
        sa.Column("ready", sa.Boolean(), nullable=False),
        sa.Column("since", sa.DateTime(timezone=True), nullable=False),
        sa.Column("told_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("other_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("failing", sa.Boolean(), nullable=False),
        sa.Column("step", sa.Text(collation="C"), nullable=True),
        sa.PrimaryKeyConstraint("node", "component", name="bootstrap_component_pkey"),
        schema="gpuledger_live",
    )
    op.create_table(
        "bootstrap_health",
        sa.Column("node", sa.Text(collation="C"), nullable=False),
        sa.Column("card", sa.Text(collation="C"), nullable=False),
        sa.Column("healthy", sa.Boolean(), nullable=False),
        sa.Column("since", sa.DateTime(timezone=True), nullable=False),
        sa.Column("told_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("other_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("kind", sa.Text(collation="C"), nullable=True),
        sa.Column("message", sa.Text(collation="C"), nullable=False),
        sa.PrimaryKeyConstraint("node", "card", name="bootstrap_health_pkey"),
        schema="gpuledger_live",
    )
    op.create_table(
        "bootstrap_device",
        sa.Column("name", sa.Text(collation="C"), nullable=False),
        sa.Column("node", sa.Text(collation="C"), nullable=False),
        sa.Column("card", sa.Text(collation="C"), nullable=False),
        sa.Column("pci_address", sa.Text(collation="C"), nullable=True),
        sa.Column("provisional", sa.Boolean(), nullable=False),
        sa.Column("missing", sa.Boolean(), nullable=False),
        sa.Column("found_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("assignment", sa.Text(collation="C"), nullable=True),
        sa.PrimaryKeyConstraint("name", name="bootstrap_device_pkey"),
        schema="gpuledger_live",
    )
    op.create_table(
        "bootstrap_settings",
        sa.Column("module", sa.Text(collation="C"), nullable=False),
        sa.Column("changed_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("begun_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("met", sa.Boolean(), nullable=False),
        sa.Column("enabled", sa.Boolean(), nullable=False),
        sa.Column("validator_enabled", sa.Boolean(), nullable=False),
        sa.Column("gfd_enabled", sa.Boolean(), nullable=False),
        sa.Column("dcgm_enabled", sa.Boolean(), nullable=False),
        sa.Column("dcgm_exporter_enabled", sa.Boolean(), nullable=False),
        sa.Column("heartbeats", sa.BigInteger(), nullable=False),
        sa.Column("recovery_heartbeats", sa.BigInteger(), nullable=False),
        sa.Column("validation_timeout_s", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("module", name="bootstrap_settings_pkey"),
        schema="gpuledger_live",
    )


def _create_decided() -> None:
    op.create_table(
        "gpu_node_phase",
        sa.Column("node", sa.Text(collation="C"), nullable=False),
        sa.Column("phase", sa.Text(collation="C"), nullable=False),
        sa.Column("changed_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("node", name="gpu_node_phase_pkey"),
        schema="gpuledger_live",
    )
    op.create_table(
        "gpu_device_state",
        sa.Column("name", sa.Text(collation="C"), nullable=False),
        sa.Column("state", sa.Text(collation="C"), nullable=False),
        sa.Column("reason", sa.Text(collation="C"), nullable=False),
        sa.Column("message", sa.Text(collation="C"), nullable=False),
        sa.Column("changed_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("name", name="gpu_device_state_pkey"),
        schema="gpuledger_live",
    )
    op.create_table(
        "gpu_node_preparation",
        sa.Column("node", sa.Text(collation="C"), nullable=False),
        sa.Column("type", sa.Text(collation="C"), nullable=False),
        sa.Column("status", sa.Text(collation="C"), nullable=False),
        sa.Column("reason", sa.Text(collation="C"), nullable=False),
        sa.Column("message", sa.Text(collation="C"), nullable=False),
        sa.Column("changed_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("node", "type", name="gpu_node_preparation_pkey"),
        schema="gpuledger_live",
    )
