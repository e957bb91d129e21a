"""The numbers seen of a log once for all projections, with a position of their own, and which events did not count.

Only adds: older builds keep the numbers of each projection in `seen`, from which a newer build takes them over.

Revision ID: 0022
Revises: 0021
"""

from alembic import op

revision = "0022"
down_revision = "0021"
branch_labels = None
depends_on = None
EXPANDS = True

BOOKKEEPING = "gpuledger"
ROOM = "fillfactor = 70, autovacuum_vacuum_scale_factor = 0.05, autovacuum_analyze_scale_factor = 0.05"
"""As other tables whose rows change often."""


def upgrade() -> None:
    op.execute(f"""
        CREATE TABLE {BOOKKEEPING}.numbers_seen_position (
            partition smallint NOT NULL,
            ledger_id text COLLATE "C" NOT NULL,
            generation bigint NOT NULL,
            position bigint NOT NULL,
            last_event_id text COLLATE "C",
            last_digest text COLLATE "C",
            complete_from bigint NOT NULL,
            updated_at timestamptz NOT NULL DEFAULT now(),
            CONSTRAINT numbers_seen_position_pkey PRIMARY KEY (partition)
        )
    """)
    op.execute(f"""
        CREATE TABLE {BOOKKEEPING}.numbers_seen (
            partition smallint NOT NULL,
            source text COLLATE "C" NOT NULL,
            epoch text COLLATE "C" NOT NULL,
            last bigint NOT NULL,
            holes bigint[] NOT NULL,
            began bigint NOT NULL,
            CONSTRAINT numbers_seen_pkey PRIMARY KEY (partition, source, epoch)
        ) WITH ({ROOM})
    """)
    op.execute(f"""
        CREATE TABLE {BOOKKEEPING}.number_refused (
            partition smallint NOT NULL,
            position bigint NOT NULL,
            reason text COLLATE "C",
            CONSTRAINT number_refused_pkey PRIMARY KEY (partition, position)
        )
    """)


def downgrade() -> None:
    raise NotImplementedError("Migrations only go forward; restore a backup to go back.")
