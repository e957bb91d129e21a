"""What monitors report of health, and incidents.

Only adds: the build before does not know the tables.

Revision ID: 0029
Revises: 0028
"""

from alembic import op

revision = "0029"
down_revision = "0028"
branch_labels = None
depends_on = None
EXPANDS = True

SCHEMA = "gpuledger_live"

TEXT, NAME = 'text COLLATE "C"', 'text COLLATE "C" NOT NULL'

HOT = "fillfactor = 70, autovacuum_vacuum_scale_factor = 0.05, autovacuum_analyze_scale_factor = 0.05"
"""A check changes with each of its reports. Room on each page keeps an update on it, so that no index changes."""

SEEN_SOON = (
    "autovacuum_vacuum_insert_scale_factor = 0.02, autovacuum_vacuum_scale_factor = 0.05, "
    "autovacuum_analyze_scale_factor = 0.02"
)
"""Vacuum marks new pages as visible to all early, without which an index alone answers nothing."""


def upgrade() -> None:
    _create(
        "health_check",
        f"""
        scope {NAME}, node {NAME}, monitor {NAME}, check_name {NAME}, last_at timestamptz NOT NULL,
        report_rows bigint NOT NULL, incident_rows bigint NOT NULL, open bigint NOT NULL
        """,
        "scope",
        HOT,
    )
    _create(
        "health_report",
        f"""
        scope {NAME}, entity {NAME}, reported_at timestamptz NOT NULL, position bigint NOT NULL,
        recorded_at timestamptz NOT NULL, event_id {NAME}, healthy boolean NOT NULL, fatal boolean NOT NULL,
        device {TEXT}, component {TEXT}, codes {NAME}, message {NAME}, action {NAME}, strategy {NAME}, reporter {TEXT},
        reports bigint NOT NULL
        """,
        "scope, entity, reported_at",
        SEEN_SOON,
    )
    _create(
        "incident",
        f"""
        scope {NAME}, entity {NAME}, opened_at timestamptz NOT NULL, incident {NAME}, node {NAME}, monitor {NAME},
        check_name {NAME}, device {TEXT}, component {TEXT}, opened_position bigint NOT NULL,
        recorded_at timestamptz NOT NULL, ended_at timestamptz, ended_by {TEXT}, last_at timestamptz NOT NULL,
        reports bigint NOT NULL, fatal boolean NOT NULL, codes {NAME}, first_cause {NAME}, last_cause {NAME},
        action {NAME}
        """,
        "scope, entity, opened_at",
        SEEN_SOON,
    )
    _create(
        "health_departure",
        f"node {NAME}, device {NAME}, left_at timestamptz NOT NULL",
        "node, device, left_at",
        SEEN_SOON,
    )
    op.execute(f"CREATE INDEX ON {SCHEMA}.health_report USING brin (reported_at) WITH (autosummarize = on)")
    op.execute(f"CREATE INDEX ON {SCHEMA}.incident (incident)")
    op.execute(f"CREATE INDEX ON {SCHEMA}.incident (device)")
    op.execute(f"CREATE INDEX ON {SCHEMA}.incident USING brin (opened_at, ended_at) WITH (autosummarize = on)")
    op.execute(f"CREATE INDEX ON {SCHEMA}.incident (node) WHERE ended_at IS NULL")


def downgrade() -> None:
    raise NotImplementedError("Migrations only go forward; restore a backup to go back.")


def _create(table: str, columns: str, key: str, settings: str) -> None:
    op.execute(f"""
            CREATE TABLE {SCHEMA}.{table} ({columns}, CONSTRAINT {table}_pkey PRIMARY KEY ({key})) WITH ({settings})
    """)
