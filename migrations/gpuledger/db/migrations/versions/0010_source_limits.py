"""What each source recorded in its latest hour, what of it was rejected or of unknown types, and the order of epochs.

Only adds: the build before goes on writing these tables, and what it leaves out has a meaning of its own.

Revision ID: 0010
Revises: 0009
"""

import sqlalchemy as sa
from alembic import op

revision = "0010"
down_revision = "0009"
branch_labels = None
depends_on = None

SCHEMAS = ("gpuledger_live", "gpuledger_next", "gpuledger_prev")
"""Where a projection's table may be: in force, of a rebuild under way, and of the rows that it replaced."""


def upgrade() -> None:
    for schema in SCHEMAS:
        op.execute(f"""
            DO $$
            BEGIN
                IF to_regclass('{schema}.source') IS NULL THEN
                    RETURN;
                END IF;
                ALTER TABLE {schema}.source
                    ADD COLUMN rejected bigint NOT NULL DEFAULT 0,
                    ADD COLUMN unknown bigint NOT NULL DEFAULT 0,
                    ADD COLUMN limited_at timestamptz;
                CREATE TABLE {schema}.source_hour (
                    source text COLLATE "C" NOT NULL,
                    hour timestamptz NOT NULL,
                    events bigint NOT NULL,
                    rejected bigint NOT NULL,
                    epochs bigint NOT NULL,
                    aggregates bigint NOT NULL,
                    bytes bigint NOT NULL,
                    hashes text COLLATE "C" NOT NULL,
                    limited_at timestamptz,
                    CONSTRAINT source_hour_pkey PRIMARY KEY (source)
                );
            END
            $$
        """)
    began = sa.Column("began", sa.BigInteger(), nullable=False, server_default="0")
    op.add_column("seen", began, schema="gpuledger")


def downgrade() -> None:
    raise NotImplementedError("Migrations only go forward; restore a backup to go back.")
