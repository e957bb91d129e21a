"""Error codes of faults and incidents, which are cleared one by one.

Only adds: the build before does not know the table, and leaves the columns out.

Revision ID: 0035
Revises: 0034
"""

import sqlalchemy as sa
from alembic import op

revision = "0035"
down_revision = "0034"
branch_labels = None
depends_on = None
EXPANDS = True

SCHEMA = "gpuledger_live"
COLUMNS = {
    "node_fault": ("codes",),
    "remediation_fault": ("codes", "cleared"),
    "health_report": ("unhealthy_codes", "healthy_codes"),
    "incident": ("standing",),
}
"""The new columns by table, as any edition of it gets them."""


def upgrade() -> None:
    for schema in (SCHEMA, "gpuledger_next", "gpuledger_prev"):
        for table, names in COLUMNS.items():
            added = ", ".join(f"ADD COLUMN {name} text COLLATE \"C\" NOT NULL DEFAULT ''" for name in names)
            op.execute(f"ALTER TABLE IF EXISTS {schema}.{table} {added}")
    key = ("node", "monitor", "check_name", "entity", "code")
    op.create_table(
        "healthy_code",
        *(sa.Column(name, sa.Text(collation="C"), nullable=False) for name in key),
        sa.Column("healthy_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint(*key, name="healthy_code_pkey"),
        schema=SCHEMA,
    )


def downgrade() -> None:
    raise NotImplementedError("Migrations only go forward; restore a backup to go back.")
