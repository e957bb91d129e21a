"""Rollouts of machine configurations, and the updates of nodes that they are made of.

Only adds: the build before does not know the tables.

Revision ID: 0043
Revises: 0042
"""

from alembic import op

revision = "0043"
down_revision = "0042"
branch_labels = None
depends_on = None
EXPANDS = True

SCHEMA = "gpuledger_live"

TEXT, NAME = 'text COLLATE "C"', 'text COLLATE "C" NOT NULL'
TIME, TRUTH, NUMBER = "timestamptz", "boolean NOT NULL", "bigint NOT NULL"


def upgrade() -> None:
    _create(
        "machine_config_rollout",
        f"""
        pool {NAME}, begun_position {NUMBER}, revision {NAME}, previous {TEXT}, begun_at {TIME} NOT NULL,
        nodes {NUMBER}, machines {NUMBER}, unavailable_max {NUMBER}, max_unavailable {NUMBER}, ended_at {TIME},
        outcome {TEXT}
        """,
        "pool, begun_position",
    )
    _create(
        "machine_config_update",
        f"""
        node {NAME}, begun_position {NUMBER}, pool {NAME}, revision {TEXT}, begun_at {TIME} NOT NULL, drained {TRUTH},
        applying_at {TIME}, drains_failed {NUMBER}, is_stuck {TRUTH}, failures {NUMBER}, failed_at {TIME},
        reason {NAME}, message {NAME}, phase {NAME}, ended_at {TIME}, outcome {TEXT}
        """,
        "node, begun_position",
    )
    op.execute(f"CREATE INDEX ON {SCHEMA}.machine_config_rollout (pool) WHERE ended_at IS NULL")
    op.execute(f"CREATE INDEX ON {SCHEMA}.machine_config_update (node) WHERE ended_at IS NULL")
    op.execute(f"CREATE INDEX ON {SCHEMA}.machine_config_update (pool)")


def downgrade() -> None:
    raise NotImplementedError("Migrations only go forward; restore a backup to go back.")


def _create(table: str, columns: str, key: str) -> None:
    op.execute(f"CREATE TABLE {SCHEMA}.{table} ({columns}, CONSTRAINT {table}_pkey PRIMARY KEY ({key}))")
