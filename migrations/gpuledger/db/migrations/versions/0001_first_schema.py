"""The first schema: the projections' tables and their bookkeeping.

Revision ID: 0001
Revises:
"""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    for schema in ("gpuledger_live", "gpuledger_next", "gpuledger_prev", "report"):
        op.execute(f"CREATE SCHEMA {schema}")
    _create_devices()
    _create_nodes()
    _create_workloads()
    _create_sources()
    _create_inventory()
    _create_bookkeeping()


def downgrade() -> None:
    raise NotImplementedError("Migrations only go forward; restore a backup to go back.")


def _create_devices() -> None:
    op.create_table(
        "device",
        sa.Column("device", sa.Text(collation="C"), nullable=False),
        sa.Column("state", sa.Text(collation="C"), nullable=False),
        sa.Column("slot", sa.Text(collation="C"), nullable=True),
        sa.Column("in_service_since", sa.DateTime(timezone=True), nullable=True),
        sa.Column("places", sa.BigInteger(), nullable=False),
        sa.Column("serial", sa.Text(collation="C"), nullable=True),
        sa.Column("uuid", sa.Text(collation="C"), nullable=True),
        sa.Column("model", sa.Text(collation="C"), nullable=True),
        sa.Column("first_seen_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("removed_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("lives", sa.BigInteger(), nullable=False),
        sa.Column("failures", sa.BigInteger(), nullable=False),
        sa.Column("last_failed_at", sa.DateTime(timezone=True), nullable=True),
        sa.PrimaryKeyConstraint("device", name="device_pkey"),
        schema="gpuledger_live",
    )
    op.create_table(
        "stint",
        sa.Column("device", sa.Text(collation="C"), nullable=False),
        sa.Column("slot", sa.Text(collation="C"), nullable=False),
        sa.Column("valid_from", sa.DateTime(timezone=True), nullable=False),
        sa.Column("valid_to", sa.DateTime(timezone=True), nullable=True),
        sa.Column("retired", sa.Boolean(), nullable=False),
        sa.Column("serial", sa.Text(collation="C"), nullable=True),
        sa.Column("uuid", sa.Text(collation="C"), nullable=True),
        sa.Column("model", sa.Text(collation="C"), nullable=True),
        sa.Column("source", sa.Text(collation="C"), nullable=False),
        sa.Column("epoch", sa.Text(collation="C"), nullable=False),
        sa.PrimaryKeyConstraint("device", "slot", "valid_from", name="stint_pkey"),
        schema="gpuledger_live",
    )
    op.create_index("stint_slot_idx", "stint", ["slot"], schema="gpuledger_live")
    op.create_table(
        "stray",
        sa.Column("device", sa.Text(collation="C"), nullable=False),
        sa.Column("slot", sa.Text(collation="C"), nullable=False),
        sa.Column("at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("inserted", sa.Boolean(), nullable=False),
        sa.Column("retired", sa.Boolean(), nullable=False),
        sa.Column("serial", sa.Text(collation="C"), nullable=True),
        sa.Column("uuid", sa.Text(collation="C"), nullable=True),
        sa.Column("model", sa.Text(collation="C"), nullable=True),
        sa.Column("source", sa.Text(collation="C"), nullable=False),
        sa.Column("epoch", sa.Text(collation="C"), nullable=False),
        sa.PrimaryKeyConstraint("device", "slot", "at", "inserted", name="stray_pkey"),
        schema="gpuledger_live",
    )
    op.create_table(
        "failure",
        sa.Column("event_id", sa.Text(collation="C"), nullable=False),
        sa.Column("device", sa.Text(collation="C"), nullable=False),
        sa.Column("slot", sa.Text(collation="C"), nullable=True),
        sa.Column("kind", sa.Text(collation="C"), nullable=False),
        sa.Column("failed_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("message", sa.Text(collation="C"), nullable=True),
        sa.Column("source", sa.Text(collation="C"), nullable=False),
        sa.Column("epoch", sa.Text(collation="C"), nullable=False),
        sa.Column("number", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("source", "epoch", "number", name="failure_pkey"),
        schema="gpuledger_live",
    )
    op.create_index("failure_device_failed_at_idx", "failure", ["device", "failed_at"], schema="gpuledger_live")
    op.create_table(
        "slot",
        sa.Column("slot", sa.Text(collation="C"), nullable=False),
        sa.Column("node", sa.Text(collation="C"), nullable=True),
        sa.Column("slot_index", sa.BigInteger(), nullable=True),
        sa.Column("device", sa.Text(collation="C"), nullable=True),
        sa.Column("occupants", sa.BigInteger(), nullable=False),
        sa.Column("lives", sa.BigInteger(), nullable=False),
        sa.Column("first_seen_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("vacated_at", sa.DateTime(timezone=True), nullable=True),
        sa.PrimaryKeyConstraint("slot", name="slot_pkey"),
        schema="gpuledger_live",
    )
    op.create_table(
        "slot_history",
        sa.Column("slot", sa.Text(collation="C"), nullable=False),
        sa.Column("valid_from", sa.DateTime(timezone=True), nullable=False),
        sa.Column("valid_to", sa.DateTime(timezone=True), nullable=True),
        sa.Column("position", sa.BigInteger(), nullable=False),
        sa.Column("node", sa.Text(collation="C"), nullable=False),
        sa.Column("slot_index", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("slot", "valid_from", name="slot_history_pkey"),
        schema="gpuledger_live",
    )
    op.create_table(
        "contradiction",
        sa.Column("kind", sa.Text(collation="C"), nullable=False),
        sa.Column("subject", sa.Text(collation="C"), nullable=False),
        sa.Column("first", sa.Text(collation="C"), nullable=False),
        sa.Column("first_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("second", sa.Text(collation="C"), nullable=False),
        sa.Column("second_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("valid_from", sa.DateTime(timezone=True), nullable=False),
        sa.Column("valid_to", sa.DateTime(timezone=True), nullable=True),
        sa.PrimaryKeyConstraint(
            "kind", "subject", "first", "first_at", "second", "second_at", name="contradiction_pkey"
        ),
        schema="gpuledger_live",
    )


def _create_nodes() -> None:
    op.create_table(
        "node",
        sa.Column("node", sa.Text(collation="C"), nullable=False),
        sa.Column("first_seen_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("present", sa.Boolean(), nullable=False),
        sa.Column("gpu_count", sa.BigInteger(), nullable=True),
        sa.Column("gpu_model", sa.Text(collation="C"), nullable=True),
        sa.Column("cpu_milli", sa.BigInteger(), nullable=True),
        sa.Column("memory_mib", sa.BigInteger(), nullable=True),
        sa.Column("slots", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("node", name="node_pkey"),
        schema="gpuledger_live",
    )
    op.create_table(
        "node_history",
        sa.Column("node", sa.Text(collation="C"), nullable=False),
        sa.Column("valid_from", sa.DateTime(timezone=True), nullable=False),
        sa.Column("valid_to", sa.DateTime(timezone=True), nullable=True),
        sa.Column("position", sa.BigInteger(), nullable=False),
        sa.Column("present", sa.Boolean(), nullable=False),
        sa.Column("gpu_count", sa.BigInteger(), nullable=True),
        sa.Column("gpu_model", sa.Text(collation="C"), nullable=True),
        sa.Column("cpu_milli", sa.BigInteger(), nullable=True),
        sa.Column("memory_mib", sa.BigInteger(), nullable=True),
        sa.PrimaryKeyConstraint("node", "valid_from", name="node_history_pkey"),
        schema="gpuledger_live",
    )
    op.create_table(
        "node_slot",
        sa.Column("node", sa.Text(collation="C"), nullable=False),
        sa.Column("slot", sa.Text(collation="C"), nullable=False),
        sa.Column("declared_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("node", "slot", name="node_slot_pkey"),
        schema="gpuledger_live",
    )


def _create_workloads() -> None:
    op.create_table(
        "workload",
        sa.Column("workload", sa.Text(collation="C"), nullable=False),
        sa.Column("phase", sa.Text(collation="C"), nullable=False),
        sa.Column("owner", sa.Text(collation="C"), nullable=True),
        sa.Column("workload_class", sa.Text(collation="C"), nullable=True),
        sa.Column("gpu_milli", sa.BigInteger(), nullable=True),
        sa.Column("cpu_milli", sa.BigInteger(), nullable=True),
        sa.Column("memory_mib", sa.BigInteger(), nullable=True),
        sa.Column("node", sa.Text(collation="C"), nullable=True),
        sa.Column("outcome", sa.Text(collation="C"), nullable=True),
        sa.Column("submitted_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("submitted_position", sa.BigInteger(), nullable=False),
        sa.Column("scheduled_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("scheduled_position", sa.BigInteger(), nullable=False),
        sa.Column("ended_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("ended_position", sa.BigInteger(), nullable=False),
        sa.Column("source", sa.Text(collation="C"), nullable=False),
        sa.Column("epoch", sa.Text(collation="C"), nullable=False),
        sa.PrimaryKeyConstraint("workload", name="workload_pkey"),
        schema="gpuledger_live",
    )
    op.create_table(
        "allocation",
        sa.Column("workload", sa.Text(collation="C"), nullable=False),
        sa.Column("device", sa.Text(collation="C"), nullable=False),
        sa.Column("valid_from", sa.DateTime(timezone=True), nullable=False),
        sa.Column("node", sa.Text(collation="C"), nullable=True),
        sa.Column("gpu_milli", sa.BigInteger(), nullable=False),
        sa.Column("valid_to", sa.DateTime(timezone=True), nullable=True),
        sa.PrimaryKeyConstraint("workload", "device", "valid_from", name="allocation_pkey"),
        schema="gpuledger_live",
    )
    op.create_index("allocation_device_idx", "allocation", ["device"], schema="gpuledger_live")
    op.create_table(
        "workload_fact",
        sa.Column("workload", sa.Text(collation="C"), nullable=False),
        sa.Column("kind", sa.Text(collation="C"), nullable=False),
        sa.Column("happened_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("position", sa.BigInteger(), nullable=False),
        sa.Column("owner", sa.Text(collation="C"), nullable=True),
        sa.Column("workload_class", sa.Text(collation="C"), nullable=True),
        sa.Column("gpu_milli", sa.BigInteger(), nullable=True),
        sa.Column("cpu_milli", sa.BigInteger(), nullable=True),
        sa.Column("memory_mib", sa.BigInteger(), nullable=True),
        sa.Column("node", sa.Text(collation="C"), nullable=True),
        sa.Column("outcome", sa.Text(collation="C"), nullable=True),
        sa.PrimaryKeyConstraint("workload", "kind", "happened_at", name="workload_fact_pkey"),
        schema="gpuledger_live",
    )


def _create_sources() -> None:
    op.create_table(
        "source",
        sa.Column("source", sa.Text(collation="C"), nullable=False),
        sa.Column("epoch", sa.Text(collation="C"), nullable=False),
        sa.Column("events", sa.BigInteger(), nullable=False),
        sa.Column("duplicates", sa.BigInteger(), nullable=False),
        sa.Column("last_number", sa.BigInteger(), nullable=False),
        sa.Column("missing", sa.BigInteger(), nullable=False),
        sa.Column("first_time", sa.DateTime(timezone=True), nullable=False),
        sa.Column("last_time", sa.DateTime(timezone=True), nullable=False),
        sa.Column("first_recorded_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("last_recorded_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("completed_at", sa.DateTime(timezone=True), nullable=True),
        sa.PrimaryKeyConstraint("source", "epoch", name="source_pkey"),
        schema="gpuledger_live",
    )
    op.create_table(
        "missing",
        sa.Column("source", sa.Text(collation="C"), nullable=False),
        sa.Column("epoch", sa.Text(collation="C"), nullable=False),
        sa.Column("first", sa.BigInteger(), nullable=False),
        sa.Column("last", sa.BigInteger(), nullable=False),
        sa.Column("noticed_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("left", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("source", "epoch", "first", name="missing_pkey"),
        schema="gpuledger_live",
    )
    op.create_table(
        "gap",
        sa.Column("source", sa.Text(collation="C"), nullable=False),
        sa.Column("epoch", sa.Text(collation="C"), nullable=False),
        sa.Column("first", sa.BigInteger(), nullable=False),
        sa.Column("last", sa.BigInteger(), nullable=False),
        sa.Column("detected_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("closed_at", sa.DateTime(timezone=True), nullable=True),
        sa.PrimaryKeyConstraint("source", "epoch", "first", name="gap_pkey"),
        schema="gpuledger_live",
    )
    op.create_table(
        "rejection",
        sa.Column("position", sa.BigInteger(), nullable=False),
        sa.Column("generation", sa.BigInteger(), nullable=False),
        sa.Column("nats_subject", sa.Text(collation="C"), nullable=False),
        sa.Column("reason", sa.Text(collation="C"), nullable=False),
        sa.Column("recorded_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("generation", "position", name="rejection_pkey"),
        schema="gpuledger_live",
    )


def _create_inventory() -> None:
    op.create_table(
        "inventory_node",
        sa.Column("node", sa.Text(collation="C"), nullable=False),
        sa.Column("exists", sa.Boolean(), nullable=False),
        sa.Column("node_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("gone_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("labels", sa.Text(collation="C"), nullable=False),
        sa.Column("nfd_version", sa.Text(collation="C"), nullable=True),
        sa.Column("has_features", sa.Boolean(), nullable=False),
        sa.Column("features_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("features_nfd_version", sa.Text(collation="C"), nullable=True),
        sa.Column("incomplete", sa.BigInteger(), nullable=False),
        sa.Column("agent_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("told_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("learnt", sa.Text(collation="C"), nullable=False),
        sa.PrimaryKeyConstraint("node", name="inventory_node_pkey"),
        schema="gpuledger_live",
    )
    op.create_table(
        "inventory_sighting",
        sa.Column("node", sa.Text(collation="C"), nullable=False),
        sa.Column("teller", sa.Text(collation="C"), nullable=False),
        sa.Column("card", sa.Text(collation="C"), nullable=False),
        sa.Column("seen_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("rank", sa.BigInteger(), nullable=False),
        sa.Column("device_index", sa.BigInteger(), nullable=False),
        sa.Column("pci_address", sa.Text(collation="C"), nullable=True),
        sa.Column("pci_vendor", sa.Text(collation="C"), nullable=False),
        sa.Column("pci_device", sa.Text(collation="C"), nullable=False),
        sa.Column("hardware", sa.Text(collation="C"), nullable=False),
        sa.PrimaryKeyConstraint("node", "teller", "card", name="inventory_sighting_pkey"),
        schema="gpuledger_live",
    )
    op.create_table(
        "inventory_nfd",
        sa.Column("module", sa.Text(collation="C"), nullable=False),
        sa.Column("nodes", sa.BigInteger(), nullable=False),
        sa.Column("new_enough", sa.BigInteger(), nullable=False),
        sa.Column("too_old", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("module", name="inventory_nfd_pkey"),
        schema="gpuledger_live",
    )
    op.create_table(
        "gpu_device",
        sa.Column("name", sa.Text(collation="C"), nullable=False),
        sa.Column("node", sa.Text(collation="C"), nullable=False),
        sa.Column("card", sa.Text(collation="C"), nullable=False),
        sa.Column("provisional", sa.Boolean(), nullable=False),
        sa.Column("device_index", sa.BigInteger(), nullable=True),
        sa.Column("state", sa.Text(collation="C"), nullable=False),
        sa.Column("detected_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("slot", sa.Text(collation="C"), nullable=True),
        sa.Column("managed", sa.Boolean(), nullable=False),
        sa.Column("managed_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("ignored", sa.Boolean(), nullable=False),
        sa.Column("ignored_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("missing", sa.Boolean(), nullable=False),
        sa.Column("missing_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("uuid", sa.Text(collation="C"), nullable=True),
        sa.Column("serial", sa.Text(collation="C"), nullable=True),
        sa.Column("pci_address", sa.Text(collation="C"), nullable=True),
        sa.Column("pci_vendor", sa.Text(collation="C"), nullable=True),
        sa.Column("pci_device", sa.Text(collation="C"), nullable=True),
        sa.Column("pci_class", sa.Text(collation="C"), nullable=True),
        sa.Column("product", sa.Text(collation="C"), nullable=True),
        sa.Column("memory_mib", sa.BigInteger(), nullable=True),
        sa.Column("compute_major", sa.BigInteger(), nullable=True),
        sa.Column("compute_minor", sa.BigInteger(), nullable=True),
        sa.Column("precision", sa.Text(collation="C"), nullable=True),
        sa.Column("mig_capable", sa.Boolean(), nullable=True),
        sa.Column("mig_strategy", sa.Text(collation="C"), nullable=True),
        sa.Column("mig_profiles", sa.Text(collation="C"), nullable=True),
        sa.PrimaryKeyConstraint("name", name="gpu_device_pkey"),
        schema="gpuledger_live",
    )
    op.create_table(
        "gpu_device_mark",
        sa.Column("name", sa.Text(collation="C"), nullable=False),
        sa.Column("marked_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("labels", sa.Text(collation="C"), nullable=False),
        sa.Column("annotations", sa.Text(collation="C"), nullable=False),
        sa.PrimaryKeyConstraint("name", name="gpu_device_mark_pkey"),
        schema="gpuledger_live",
    )
    op.create_table(
        "gpu_node",
        sa.Column("node", sa.Text(collation="C"), nullable=False),
        sa.Column("present", sa.Boolean(), nullable=False),
        sa.Column("decided_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("node", name="gpu_node_pkey"),
        schema="gpuledger_live",
    )
    op.create_table(
        "gpu_node_condition",
        sa.Column("node", sa.Text(collation="C"), nullable=False),
        sa.Column("type", sa.Text(collation="C"), nullable=False),
        sa.Column("status", sa.Text(collation="C"), nullable=False),
        sa.Column("reason", sa.Text(collation="C"), nullable=False),
        sa.Column("message", sa.Text(collation="C"), nullable=False),
        sa.Column("changed_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("node", "type", name="gpu_node_condition_pkey"),
        schema="gpuledger_live",
    )
    op.create_table(
        "gpu_module",
        sa.Column("module", sa.Text(collation="C"), nullable=False),
        sa.Column("met", sa.Boolean(), nullable=False),
        sa.Column("reason", sa.Text(collation="C"), nullable=False),
        sa.Column("message", sa.Text(collation="C"), nullable=False),
        sa.Column("changed_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("module", name="gpu_module_pkey"),
        schema="gpuledger_live",
    )
    op.create_table(
        "module_settings",
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
        sa.PrimaryKeyConstraint("module", name="module_settings_pkey"),
        schema="gpuledger_live",
    )


def _create_bookkeeping() -> None:
    op.create_table(
        "projection",
        sa.Column("name", sa.Text(collation="C"), nullable=False),
        sa.Column("edition", sa.Text(collation="C"), nullable=False),
        sa.Column("version", sa.BigInteger(), nullable=False),
        sa.Column("generation", sa.BigInteger(), nullable=False),
        sa.Column("position", sa.BigInteger(), nullable=False),
        sa.Column("events", sa.BigInteger(), nullable=False),
        sa.Column("incarnation", sa.Text(collation="C"), nullable=False),
        sa.Column("updated_at", sa.DateTime(timezone=True), nullable=False, server_default=sa.text("now()")),
        sa.PrimaryKeyConstraint("name", "edition", name="projection_pkey"),
        sa.CheckConstraint("edition IN ('live', 'next', 'prev')", name="projection_edition_check"),
        schema="gpuledger",
    )
    op.create_table(
        "seen",
        sa.Column("projection", sa.Text(collation="C"), nullable=False),
        sa.Column("edition", sa.Text(collation="C"), nullable=False),
        sa.Column("source", sa.Text(collation="C"), nullable=False),
        sa.Column("epoch", sa.Text(collation="C"), nullable=False),
        sa.Column("last", sa.BigInteger(), nullable=False),
        sa.Column("holes", postgresql.ARRAY(sa.BigInteger()), nullable=False),
        sa.PrimaryKeyConstraint("projection", "edition", "source", "epoch", name="seen_pkey"),
        schema="gpuledger",
    )
    op.create_table(
        "decider",
        sa.Column("projection", sa.Text(collation="C"), nullable=False),
        sa.Column("epoch", sa.Text(collation="C"), nullable=False),
        sa.Column("next_number", sa.BigInteger(), nullable=False),
        sa.Column("settle_until", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("projection", name="decider_pkey"),
        schema="gpuledger",
    )
    op.create_table(
        "outbox",
        sa.Column("projection", sa.Text(collation="C"), nullable=False),
        sa.Column("id", sa.Text(collation="C"), nullable=False),
        sa.Column("subject", sa.Text(collation="C"), nullable=False),
        sa.Column("data", sa.LargeBinary(), nullable=False),
        sa.Column("number", sa.BigInteger(), nullable=False),
        sa.Column("status", sa.Text(collation="C"), nullable=False),
        sa.PrimaryKeyConstraint("projection", "id", name="outbox_pkey"),
        sa.CheckConstraint("status IN ('held', 'ready', 'sent')", name="outbox_status_check"),
        schema="gpuledger",
    )
    op.create_index("outbox_projection_number_idx", "outbox", ["projection", "number"], schema="gpuledger")
