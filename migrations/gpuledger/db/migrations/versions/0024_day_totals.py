"""What allocations that ended held on each day.

Only adds: the build before leaves the tables empty, and what reads them looks at the version of the rows first. It
locks no table that has rows.

Revision ID: 0024
Revises: 0023
"""

from alembic import op

revision = "0024"
down_revision = "0023"
branch_labels = None
depends_on = None
EXPANDS = True

SCHEMAS = ("gpuledger_live", "gpuledger_next", "gpuledger_prev")
"""Where a projection's table may be: in force, of a rebuild under way, and of the rows that it replaced."""

TABLES = {
    "allocation_day": ("allocation", ("node", "owner", "workload_class"), ()),
    "container_allocation_day": (
        "container_allocation_history",
        ("node", "namespace", "resource", "driver", "pool"),
        ("node", "namespace"),
    ),
}
"""Of each table: one of the same projection, the names of who holds something, and those that are always there."""

HOT = "fillfactor = 70, autovacuum_vacuum_scale_factor = 0.05, autovacuum_analyze_scale_factor = 0.05"
"""The totals of the latest days change often. Room on each page keeps an update on it, so that no index changes."""


def upgrade() -> None:
    for schema in SCHEMAS:
        for table, (beside, names, always) in TABLES.items():
            columns = ", ".join(f'{name} text COLLATE "C"{" NOT NULL" if name in always else ""}' for name in names)
            op.execute(f"""
            DO $$
            BEGIN
                IF to_regclass('{schema}.{beside}') IS NULL THEN
                    RETURN;
                END IF;
                CREATE TABLE {schema}.{table} (
                    day timestamptz NOT NULL,
                    holder text COLLATE "C" NOT NULL,
                    {columns},
                    held numeric NOT NULL,
                    held_us numeric NOT NULL,
                    CONSTRAINT {table}_pkey PRIMARY KEY (day, holder)
                ) WITH ({HOT});
            END
            $$
            """)


def downgrade() -> None:
    raise NotImplementedError("Migrations only go forward; restore a backup to go back.")
