"""The rollout of machine configuration: definitions, rendered configurations, pools, and how far each node is.

Only adds: the build before does not know the tables.

Revision ID: 0042
Revises: 0041
"""

from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0042"
down_revision = "0041"
branch_labels = None
depends_on = None
EXPANDS = True

SCHEMA = "gpuledger_live"
TEXT, TIME, TRUTH = sa.Text(collation="C"), sa.DateTime(timezone=True), sa.Boolean()
NUMBER = sa.BigInteger()


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
        "machine_config", ("name",),
        name=TEXT, uid=TEXT, generation=NUMBER, priority=NUMBER, definition=TEXT, changed_at=TIME,
    )  # fmt: skip
    _table(
        "machine_config_pool", ("name",),
        name=TEXT, uid=TEXT, generation=NUMBER, definition=TEXT, paused=TRUTH, waits_since=[TIME], problem=TEXT,
        changed_at=TIME,
    )  # fmt: skip
    _table(
        "rendered_machine_config", ("name",),
        name=TEXT, pool=TEXT, revision=TEXT, config_hash=TEXT, config=TEXT, place=NUMBER, rendered_at=TIME,
    )  # fmt: skip
    _table(
        "machine_config_pool_status", ("pool",),
        pool=TEXT, target_revision=[TEXT], current_revision=[TEXT], last_successful_revision=[TEXT],
        machine_count=NUMBER, ready_count=NUMBER, updated_count=NUMBER, updating_count=NUMBER, degraded_count=NUMBER,
        cordoned_count=NUMBER, draining_count=NUMBER, pending_reboot_count=NUMBER, unavailable=NUMBER,
        max_unavailable=NUMBER, observed_generation=NUMBER, conditions=TEXT, changed_at=TIME,
    )  # fmt: skip
    _table(
        "machine_config_node", ("node",),
        node=TEXT, uid=[TEXT], created=[TIME], labels=TEXT, unschedulable=TRUTH, current_revision=[TEXT],
        agent_state=[TEXT], last_error=TEXT, reboot_pending=TRUTH, reported_at=[TIME], observed_at=[TIME], pool=[TEXT],
        decided_pool=[TEXT], desired_revision=[TEXT], desired_set_at=[TIME], cordoned=TRUTH, drain_started_at=[TIME],
        drain_retries=NUMBER, phase=TEXT, reason=TEXT, message=TEXT, since=[TIME], agent_revision=[TEXT],
        annotations=TEXT, labelled_at=[TIME], confirms_after=[TIME], decided_at=[TIME],
    )  # fmt: skip
    _table(
        "machine_config_maintenance", ("node",),
        node=TEXT, owner=TEXT, requested_at=[TIME], released_at=[TIME], request=TEXT, is_answered=TRUTH, intent=TEXT,
        intent_cordons=TRUTH, may_be_cordoned=TRUTH, failed_at=[TIME], drain_intent=TEXT, drain=TEXT, pods_left=NUMBER,
        message=TEXT, retried_at=[TIME],
    )  # fmt: skip
    _table("machine_config_holder", ("holder",), holder=TEXT, node=TEXT)
    _table("machine_config_controller", ("id",), id=TEXT, node=[TEXT], event=TEXT)


def downgrade() -> None:
    raise NotImplementedError("Migrations only go forward; restore a backup to go back.")
