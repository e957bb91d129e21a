"""GPUs that containers have without an allocation: pods that ran before sharing came, now and in the past.

Only adds: the build before does not know the tables.

Revision ID: 0039
Revises: 0038
"""

from alembic import op

revision = "0039"
down_revision = "0038"
branch_labels = None
depends_on = None
EXPANDS = True

SCHEMA = "gpuledger_live"

NAME, TIME, NUMBER = 'text COLLATE "C" NOT NULL', "timestamptz", "bigint NOT NULL"

SEEN_SOON = (
    "autovacuum_vacuum_insert_scale_factor = 0.02, autovacuum_vacuum_scale_factor = 0.05, "
    "autovacuum_analyze_scale_factor = 0.02"
)
"""Vacuum marks new pages as visible to all early, without which an index alone answers nothing."""


def upgrade() -> None:
    _create(
        "shared_checkpoints", f"node {NAME}, checkpoints {NAME}, observed_at {TIME} NOT NULL, position {NUMBER}", "node"
    )
    _create(
        "shared_checkpoints_history",
        f"node {NAME}, valid_from {TIME} NOT NULL, valid_to {TIME}, position {NUMBER}, checkpoints {NAME}",
        "node, valid_from",
    )
    op.execute(f"CREATE INDEX ON {SCHEMA}.shared_checkpoints_history (node) WHERE valid_to IS NULL")


def downgrade() -> None:
    raise NotImplementedError("Migrations only go forward; restore a backup to go back.")


def _create(table: str, columns: str, key: str) -> None:
    op.execute(f"""
            CREATE TABLE {SCHEMA}.{table} ({columns}, CONSTRAINT {table}_pkey PRIMARY KEY ({key})) WITH ({SEEN_SOON})
    """)
