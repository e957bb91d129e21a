"""The chain of digests over the log, and how far it is sealed.

Revision ID: 0013
Revises: 0012
"""

import sqlalchemy as sa
from alembic import op

revision = "0013"
down_revision = "0012"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "seal_chain",
        sa.Column("partition", sa.BigInteger(), nullable=False),
        sa.Column("position", sa.BigInteger(), nullable=False),
        sa.Column("digest", sa.Text(collation="C"), nullable=False),
        sa.Column("sealed_to", sa.BigInteger(), nullable=False),
        sa.Column("sealed_digest", sa.Text(collation="C"), nullable=True),
        sa.PrimaryKeyConstraint("partition", name="seal_chain_pkey"),
        schema="gpuledger_live",
    )


def downgrade() -> None:
    raise NotImplementedError("Migrations only go forward; restore a backup to go back.")
