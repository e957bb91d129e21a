"""Quarantine of nodes: rules, Nodes, standing faults, requests and the circuit breaker.

Only adds: the build before does not know the tables.

Revision ID: 0031
Revises: 0030
"""

from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0031"
down_revision = "0030"
branch_labels = None
depends_on = None
EXPANDS = True

SCHEMA = "gpuledger_live"
TEXT, TIME = sa.Text(collation="C"), sa.DateTime(timezone=True)


Kind = sa.types.TypeEngine[Any]


def _table(name: str, key: tuple[str, ...], **columns: Kind | list[Kind]) -> None:
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
        "quarantine_rules", ("id",),
        id=TEXT, digest=TEXT, file=TEXT, applied_at=TIME, event=TEXT, document=TEXT,
    )  # fmt: skip
    _table(
        "quarantine_ruleset_count", ("ruleset",),
        ruleset=TEXT, matched=sa.BigInteger(), failed=sa.BigInteger(), dropped=sa.BigInteger(), failure=TEXT,
        failed_at=[TIME],
    )  # fmt: skip
    _table(
        "quarantine_node", ("node",),
        node=TEXT, uid=[TEXT], labels=TEXT, observed_at=TIME, quarantined_at=[TIME],
        former_ended_at=[TIME],
    )  # fmt: skip
    _table(
        "node_fault", ("node", "ruleset", "monitor", "check_name", "entity"),
        node=TEXT, ruleset=TEXT, monitor=TEXT, check_name=TEXT, entity=TEXT, alias=TEXT, report=TEXT,
        cause=TEXT, reported_at=TIME, changed_at=TIME, observed_at=TIME, recorded_at=TIME, state=TEXT,
    )  # fmt: skip
    _table(
        "healthy_check", ("node", "monitor", "check_name", "entity"),
        node=TEXT, monitor=TEXT, check_name=TEXT, entity=TEXT, healthy_at=TIME,
    )  # fmt: skip
    _table(
        "quarantine_request", ("node", "ruleset"),
        node=TEXT, ruleset=TEXT, cause=TEXT, version=TEXT, requested_at=TIME, ended_at=[TIME], by_hand=sa.Boolean(),
    )  # fmt: skip
    _table(
        "quarantine_breaker", ("id",),
        id=TEXT, opened_at=[TIME], node=TEXT, report=TEXT, ruleset=TEXT, quarantined=sa.BigInteger(),
        nodes=sa.BigInteger(), reset_at=[TIME], reset_by=TEXT,
    )  # fmt: skip


def downgrade() -> None:
    raise NotImplementedError("Migrations only go forward; restore a backup to go back.")
