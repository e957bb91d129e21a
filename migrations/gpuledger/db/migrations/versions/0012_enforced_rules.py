"""The rules that each edition of a projection enforces, and gaps of unknown length.

Earlier builds enforce no rule and look at neither; no gap of theirs has an unknown length.

Revision ID: 0012
Revises: 0011
"""

import sqlalchemy as sa
from alembic import op

revision = "0012"
down_revision = "0011"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "enforced_rule",
        sa.Column("projection", sa.Text(collation="C"), nullable=False),
        sa.Column("edition", sa.Text(collation="C"), nullable=False),
        sa.Column("rule", sa.Text(collation="C"), nullable=False),
        sa.Column("version", sa.BigInteger(), nullable=False),
        sa.Column("sequence", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("projection", "edition", "rule", name="enforced_rule_pkey"),
        schema="gpuledger",
    )
    for schema in ("gpuledger_live", "gpuledger_next", "gpuledger_prev"):
        op.execute(f"ALTER TABLE IF EXISTS {schema}.gap ADD COLUMN unknown_length boolean NOT NULL DEFAULT false")


def downgrade() -> None:
    raise NotImplementedError("Migrations only go forward; restore a backup to go back.")
