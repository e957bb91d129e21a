"""Maintenance of nodes: requests, Nodes, and how each is set aside; and which nodes give pools no devices meanwhile.

Only adds: the build before does not know the tables, and leaves the column out.

Revision ID: 0030
Revises: 0029
"""

import sqlalchemy as sa
from alembic import op

revision = "0030"
down_revision = "0029"
branch_labels = None
depends_on = None
EXPANDS = True

SCHEMA = "gpuledger_live"
TEXT, TIME = sa.Text(collation="C"), sa.DateTime(timezone=True)


def upgrade() -> None:
    for schema in (SCHEMA, "gpuledger_next", "gpuledger_prev"):
        op.execute(f"ALTER TABLE IF EXISTS {schema}.pool_node ADD COLUMN aside boolean NOT NULL DEFAULT false")
    op.create_table(
        "maintenance_request",
        sa.Column("node", TEXT, nullable=False),
        sa.Column("owner", TEXT, nullable=False),
        sa.Column("changed_at", TIME, nullable=False),
        sa.Column("requested_at", TIME, nullable=True),
        sa.Column("reason", TEXT, nullable=False),
        sa.Column("message", TEXT, nullable=False),
        sa.Column("isolation", TEXT, nullable=False),
        sa.Column("expires_at", TIME, nullable=True),
        sa.Column("ended_at", TIME, nullable=True),
        sa.Column("decided_at", TIME, nullable=True),
        sa.Column("standing", TEXT, nullable=False),
        sa.Column("has_lapsed", sa.Boolean(), nullable=False),
        sa.PrimaryKeyConstraint("node", "owner", name="maintenance_request_pkey"),
        schema=SCHEMA,
    )
    op.create_table(
        "maintenance_node",
        sa.Column("node", TEXT, nullable=False),
        sa.Column("uid", TEXT, nullable=True),
        sa.Column("observed_at", TIME, nullable=False),
        sa.PrimaryKeyConstraint("node", name="maintenance_node_pkey"),
        schema=SCHEMA,
    )
    op.create_table(
        "node_isolation",
        sa.Column("node", TEXT, nullable=False),
        sa.Column("uid", TEXT, nullable=False),
        sa.Column("intent", TEXT, nullable=False),
        sa.Column("changed_at", TIME, nullable=False),
        sa.Column("isolation", TEXT, nullable=False),
        sa.Column("owners", TEXT, nullable=False),
        sa.Column("result", TEXT, nullable=True),
        sa.Column("reason", TEXT, nullable=False),
        sa.Column("message", TEXT, nullable=False),
        sa.Column("settled_at", TIME, nullable=True),
        sa.Column("was", TEXT, nullable=False),
        sa.PrimaryKeyConstraint("node", name="node_isolation_pkey"),
        schema=SCHEMA,
    )


def downgrade() -> None:
    raise NotImplementedError("Migrations only go forward; restore a backup to go back.")
