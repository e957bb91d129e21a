"""Which views of people's own could not be made anew after the tables below them changed.

Only adds: the build before drops such views without a note.

Revision ID: 0020
Revises: 0019
"""

from alembic import op

revision = "0020"
down_revision = "0019"
branch_labels = None
depends_on = None
EXPANDS = True

BOOKKEEPING = "gpuledger"


def upgrade() -> None:
    op.execute(f"""
        CREATE TABLE {BOOKKEEPING}.lost_view (
            name text COLLATE "C" NOT NULL,
            owner text COLLATE "C" NOT NULL,
            definition text COLLATE "C" NOT NULL,
            reason text COLLATE "C" NOT NULL,
            lost_at timestamptz NOT NULL DEFAULT now(),
            CONSTRAINT lost_view_pkey PRIMARY KEY (name)
        )
    """)


def downgrade() -> None:
    raise NotImplementedError("Migrations only go forward; restore a backup to go back.")
