"""How many nodes their agents have surveyed, which stands in for Node Feature Discovery where that is missing.

Only adds: the build before leaves the column at its default.

Revision ID: 0017
Revises: 0016
"""

from alembic import op

revision = "0017"
down_revision = "0016"
branch_labels = None
depends_on = None
EXPANDS = True

SCHEMAS = ("gpuledger_live", "gpuledger_next", "gpuledger_prev")
"""Where a projection's table may be: in force, of a rebuild under way, and of the rows that it replaced."""


def upgrade() -> None:
    for schema in SCHEMAS:
        op.execute(f"ALTER TABLE IF EXISTS {schema}.inventory_nfd ADD COLUMN surveyed bigint NOT NULL DEFAULT 0")


def downgrade() -> None:
    raise NotImplementedError("Migrations only go forward; restore a backup to go back.")
