"""How many reports of each agent `inventory` rejected in the latest hour.

Only adds: the build before leaves the table empty, as it bounds nothing.

Revision ID: 0014
Revises: 0013
"""

from alembic import op

revision = "0014"
down_revision = "0013"
branch_labels = None
depends_on = None
EXPANDS = True

SCHEMAS = ("gpuledger_live", "gpuledger_next", "gpuledger_prev")
"""Where a projection's table may be: in force, of a rebuild under way, and of the rows that it replaced."""


def upgrade() -> None:
    for schema in SCHEMAS:
        op.execute(f"""
            DO $$
            BEGIN
                IF to_regclass('{schema}.inventory_nfd') IS NULL THEN
                    RETURN;
                END IF;
                CREATE TABLE {schema}.inventory_report_hour (
                    node text COLLATE "C" NOT NULL,
                    hour timestamptz NOT NULL,
                    rejected bigint NOT NULL,
                    CONSTRAINT inventory_report_hour_pkey PRIMARY KEY (node)
                );
            END
            $$
        """)


def downgrade() -> None:
    raise NotImplementedError("Migrations only go forward; restore a backup to go back.")
