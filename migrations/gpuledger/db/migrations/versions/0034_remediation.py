"""Remediation of nodes: documents, Nodes, faults, remediations, and where a person has to look.

Only adds: the build before does not know the tables.

Revision ID: 0034
Revises: 0033
"""

from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0034"
down_revision = "0033"
branch_labels = None
depends_on = None
EXPANDS = True

SCHEMA = "gpuledger_live"
TEXT, TIME, TRUTH = sa.Text(collation="C"), sa.DateTime(timezone=True), sa.Boolean()


Kind = sa.types.TypeEngine[Any]


def _table(name: str, key: tuple[str, ...], /, **columns: Kind | list[Kind]) -> None:
    """A table; the type of a column that may be null stands in a list."""
    op.create_table(
        name,
        *(
            sa.Column(column, kind[0] if isinstance(kind, list) else kind, nullable=isinstance(kind, list))
            for column, kind in columns.items()
        ),
        sa.PrimaryKeyConstraint(*key, name=f"{name}_pkey"),
        schema=SCHEMA,
    )


def upgrade() -> None:
    _table(
        "remediation_document", ("id",),
        id=TEXT, digest=TEXT, file=TEXT, applied_at=TIME, event=TEXT, document=TEXT,
    )  # fmt: skip
    _table(
        "remediation_node", ("node",),
        node=TEXT, uid=[TEXT], labels=TEXT, observed_at=TIME, isolation=TEXT, keeps_pods_away=TRUTH, is_applied=TRUTH,
        drain=TEXT, is_drained=TRUTH,
    )  # fmt: skip
    _table("remediation_quarantined", ("node", "ruleset"), node=TEXT, ruleset=TEXT, requested_at=TIME, devices=TEXT)
    _table(
        "remediation_fault", ("node", "monitor", "check_name", "entity"),
        node=TEXT, monitor=TEXT, check_name=TEXT, entity=TEXT, alias=TEXT, device=TEXT, report=TEXT, action=TEXT,
        custom_action=TEXT, rulesets=TEXT, is_accepted=TRUTH, changed_at=TIME, observed_at=TIME, recorded_at=TIME,
        state=TEXT, remedy=TEXT, remediation=TEXT, cause=TEXT, ready_at=[TIME],
    )  # fmt: skip
    _table(
        "remediation", ("intent",),
        intent=TEXT, node=TEXT, uid=TEXT, remedy=TEXT, remedy_group=TEXT, device=TEXT, action=TEXT,
        attempt=sa.BigInteger(), follows=TEXT, faults=TEXT, api_version=TEXT, kind=TEXT, namespace=TEXT, name=TEXT,
        state=TEXT, requested_at=TIME, created_at=[TIME], ended_at=[TIME], object_uid=TEXT, reason=TEXT, message=TEXT,
    )  # fmt: skip
    _table(
        "remediation_attention", ("node", "remedy_group"),
        node=TEXT, remedy_group=TEXT, remedy=TEXT, reason=TEXT, message=TEXT, since=TIME,
    )  # fmt: skip


def downgrade() -> None:
    raise NotImplementedError("Migrations only go forward; restore a backup to go back.")
