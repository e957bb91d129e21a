"""Drains of nodes under maintenance: who wants one, and how far it is.

Only adds: the build before does not know the table, and leaves the column out.

Revision ID: 0033
Revises: 0032
"""

import sqlalchemy as sa
from alembic import op

revision = "0033"
down_revision = "0032"
branch_labels = None
depends_on = None
EXPANDS = True

SCHEMA = "gpuledger_live"
TEXT, TIME = sa.Text(collation="C"), sa.DateTime(timezone=True)


def upgrade() -> None:
    for schema in (SCHEMA, "gpuledger_next", "gpuledger_prev"):
        for name in ("drain", "drain_result"):
            column = f"{name} text COLLATE \"C\" NOT NULL DEFAULT ''"
            op.execute(f"ALTER TABLE IF EXISTS {schema}.maintenance_request ADD COLUMN {column}")
    op.create_table(
        "node_drain",
        sa.Column("node", TEXT, nullable=False),
        sa.Column("uid", TEXT, nullable=False),
        sa.Column("intent", TEXT, nullable=False),
        sa.Column("changed_at", TIME, nullable=False),
        sa.Column("drains", TEXT, nullable=False),
        sa.Column("progress", TEXT, nullable=False),
        sa.Column("pods_left", sa.BigInteger(), nullable=False),
        sa.Column("pods", TEXT, nullable=False),
        sa.Column("reported_at", TIME, nullable=True),
        sa.Column("reason", TEXT, nullable=False),
        sa.Column("message", TEXT, nullable=False),
        sa.PrimaryKeyConstraint("node", name="node_drain_pkey"),
        schema=SCHEMA,
    )


def downgrade() -> None:
    raise NotImplementedError("Migrations only go forward; restore a backup to go back.")
