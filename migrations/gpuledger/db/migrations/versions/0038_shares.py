"""Shared devices: what nodes share, which pods ask for it or hold it, and all of that in the past.

Only adds: the build before does not know the tables.

Revision ID: 0038
Revises: 0037
"""

from alembic import op

revision = "0038"
down_revision = "0037"
branch_labels = None
depends_on = None
EXPANDS = True

SCHEMA = "gpuledger_live"

TEXT, NAME = 'text COLLATE "C"', 'text COLLATE "C" NOT NULL'
TIME, TRUTH, NUMBER = "timestamptz", "boolean NOT NULL", "bigint NOT NULL"

SEEN_SOON = (
    "autovacuum_vacuum_insert_scale_factor = 0.02, autovacuum_vacuum_scale_factor = 0.05, "
    "autovacuum_analyze_scale_factor = 0.02"
)
"""Vacuum marks new pages as visible to all early, without which an index alone answers nothing."""


def upgrade() -> None:
    shared = f"present {TRUTH}, model {TEXT}, partition_policy {TEXT}, devices {NAME}, not_shared {NAME}"
    _create("shared_node", f"node {NAME}, {shared}, shared_at {TIME} NOT NULL, position {NUMBER}", "node")
    _create(
        "shared_node_history",
        f"node {NAME}, valid_from {TIME} NOT NULL, valid_to {TIME}, position {NUMBER}, {shared}",
        "node, valid_from",
    )
    _create(
        "shared_device",
        f"""
        node {NAME}, type {NAME}, minor {NUMBER}, id {TEXT}, model {TEXT}, healthy {TRUTH}, core bigint,
        core_used bigint, memory bigint, memory_used bigint, ratio bigint, ratio_used {NUMBER}, pods {NUMBER},
        holders {NAME}
        """,
        "node, type, minor",
    )
    _create(
        "shared_pod",
        f"""
        uid {NAME}, pod {NAME}, namespace {NAME}, state {NAME}, node {TEXT}, allocation {NAME}, differs {TRUTH},
        scheduler {TEXT}, priority {NUMBER}, requests {NAME}, containers {NAME}, hint {TEXT}, joint {TEXT},
        partition_spec {TEXT}, unreadable {TEXT}, started {TRUTH}, observed_node {TEXT}, annotation {NAME},
        first_at {TIME}, observed_at {TIME}, observed_position {NUMBER}, strategy {TEXT}, reserved_node {TEXT},
        reservation {NAME}, reserved_requests {NAME}, reserved_at {TIME}, reserved_position {NUMBER}, bound_at {TIME},
        bound_position {NUMBER}, release_reason {TEXT}, release_message {NAME}, released_at {TIME},
        released_position {NUMBER}, gone_at {TIME}, gone_position {NUMBER}, over_at {TIME}
        """,
        "uid",
    )
    _create(
        "shared_pod_fact",
        f"""
        uid {NAME}, happened_at {TIME} NOT NULL, kind {NAME}, position {NUMBER}, node {TEXT}, allocation {NAME},
        started {TRUTH}, over_at {TIME}
        """,
        "uid, happened_at, kind",
    )
    _create(
        "shared_allocation",
        f"""
        uid {NAME}, node {NAME}, type {NAME}, minor {NUMBER}, valid_from {TIME} NOT NULL, valid_to {TIME}, pod {NAME},
        namespace {NAME}, id {TEXT}, core bigint, memory bigint, ratio {NUMBER}, over_at {TIME}
        """,
        "uid, node, type, minor, valid_from",
    )
    op.execute(f"CREATE INDEX ON {SCHEMA}.shared_node_history (node) WHERE valid_to IS NULL")
    for table in ("shared_pod", "shared_pod_fact", "shared_allocation"):
        op.execute(f"CREATE INDEX ON {SCHEMA}.{table} (uid) WHERE over_at IS NULL")
    op.execute(f"CREATE INDEX ON {SCHEMA}.shared_pod (pod)")
    op.execute(f"CREATE INDEX ON {SCHEMA}.shared_allocation USING brin (valid_from) WITH (autosummarize = on)")


def downgrade() -> None:
    raise NotImplementedError("Migrations only go forward; restore a backup to go back.")


def _create(table: str, columns: str, key: str) -> None:
    op.execute(f"""
            CREATE TABLE {SCHEMA}.{table} ({columns}, CONSTRAINT {table}_pkey PRIMARY KEY ({key})) WITH ({SEEN_SOON})
    """)
