"""Preflight checks: pods, attempts, gangs, and what came of gangs.

Only adds: the build before does not know the tables.

Revision ID: 0036
Revises: 0035
"""

from alembic import op

revision = "0036"
down_revision = "0035"
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
    _create(
        "preflight_pod",
        f"""
        uid {NAME}, pod {NAME}, node {TEXT}, ip {TEXT}, gang {TEXT}, gang_source {TEXT}, done {TRUTH}, first_at {TIME},
        observed_at {TIME}, observed_position {NUMBER}, gone_at {TIME}, gone_position {NUMBER}, over_at {TIME},
        attempts {NUMBER}
        """,
        "uid",
    )
    _create(
        "preflight_check",
        f"""
        uid {NAME}, check_name {NAME}, attempt {NUMBER}, number {NUMBER}, pod {NAME}, namespace {NAME}, node {TEXT},
        gang {TEXT}, state {NAME}, outcome {TEXT}, exit_code bigint, reason {TEXT}, codes {NAME}, message {NAME},
        started_at {TIME}, ended_at {TIME}, duration_us bigint, gang_wait_us bigint, bandwidth_bytes_s bigint,
        threshold_bytes_s bigint, first_at {TIME} NOT NULL, running_at {TIME}, end_at {TIME},
        observed_at {TIME} NOT NULL, position {NUMBER}, over_at {TIME}
        """,
        "uid, check_name, attempt",
    )
    _create(
        "preflight_gang",
        f"""
        gang {NAME}, began_at {TIME} NOT NULL, namespace {NAME}, state {NAME}, config_map {TEXT}, source {TEXT},
        expected bigint, found bigint, waited_us bigint, completed_at {TIME}, timed_out_at {TIME}, reason {TEXT},
        message {NAME}, dissolved_at {TIME}, removed {TRUTH}, last_at {TIME} NOT NULL, last_kind {NAME},
        life {NUMBER}, events {NUMBER}
        """,
        "gang, began_at",
    )
    _create(
        "preflight_gang_event",
        f"""
        gang {NAME}, happened_at {TIME} NOT NULL, kind {NAME}, position {NUMBER}, config_map {TEXT}, source {TEXT},
        expected bigint, found bigint, complete {TRUTH}, waited_us bigint, reason {TEXT}, message {NAME},
        removed {TRUTH}
        """,
        "gang, happened_at, kind",
    )
    op.execute(f"CREATE INDEX ON {SCHEMA}.preflight_pod (uid) WHERE over_at IS NULL")
    op.execute(f"CREATE INDEX ON {SCHEMA}.preflight_check (uid) WHERE over_at IS NULL")
    op.execute(f"CREATE INDEX ON {SCHEMA}.preflight_check (pod)")
    op.execute(f"CREATE INDEX ON {SCHEMA}.preflight_check USING brin (first_at) WITH (autosummarize = on)")
    op.execute(f"CREATE INDEX ON {SCHEMA}.preflight_gang (gang) WHERE dissolved_at IS NULL")


def downgrade() -> None:
    raise NotImplementedError("Migrations only go forward; restore a backup to go back.")


def _create(table: str, columns: str, key: str) -> None:
    op.execute(f"""
            CREATE TABLE {SCHEMA}.{table} ({columns}, CONSTRAINT {table}_pkey PRIMARY KEY ({key})) WITH ({SEEN_SOON})
    """)
