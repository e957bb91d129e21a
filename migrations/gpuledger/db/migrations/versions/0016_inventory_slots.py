"""Which card was last and first at each address of a node, and the id that a device has for life.

By the addresses a card that was replaced is told from a missing one. Only adds: the build before leaves the table and
the column empty.

Revision ID: 0016
Revises: 0015
"""

from alembic import op

revision = "0016"
down_revision = "0015"
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
                ALTER TABLE {schema}.gpu_device ADD COLUMN inventory_id text COLLATE "C" NOT NULL DEFAULT '';
                CREATE TABLE {schema}.inventory_slot (
                    node text COLLATE "C" NOT NULL,
                    pci_address text COLLATE "C" NOT NULL,
                    card text COLLATE "C" NOT NULL,
                    reported_at timestamptz NOT NULL,
                    first_card text COLLATE "C" NOT NULL,
                    CONSTRAINT inventory_slot_pkey PRIMARY KEY (node, pci_address)
                );
            END
            $$
        """)


def downgrade() -> None:
    raise NotImplementedError("Migrations only go forward; restore a backup to go back.")
