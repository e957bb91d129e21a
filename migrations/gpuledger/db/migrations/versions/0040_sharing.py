"""Which devices nodes share: what the decider of sharing follows, and which cards pools leave to it.

Only adds: the build before does not know the tables, and leaves the columns out.

Revision ID: 0040
Revises: 0039
"""

from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0040"
down_revision = "0039"
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
        "sharing_node", ("node",),
        node=TEXT, is_labelled=TRUTH, since=TIME, partition_policy=[TEXT], observed_at=TIME, left_as_of=[TIME],
    )  # fmt: skip
    _table(
        "sharing_hardware", ("node",),
        node=TEXT, cards=TEXT, cards_at=[TIME], nics=TEXT, nics_at=[TIME], gone_at=[TIME],
    )  # fmt: skip
    _table(
        "sharing_card", ("name",),
        name=TEXT, node=TEXT, uuid=[TEXT], pci_address=[TEXT], product=[TEXT], memory_mib=[sa.BigInteger()],
        managed=TRUTH, ignored=TRUTH, missing=TRUTH, state=TEXT, pool=[TEXT],
    )  # fmt: skip
    _table("sharing_slice", ("slice",), slice=TEXT, driver=TEXT, is_published=TRUTH, published_at=TIME)
    _table("sharing_slice_card", ("slice", "uuid"), slice=TEXT, uuid=TEXT, driver=TEXT)
    _table("sharing_offer", ("node",), node=TEXT, offer=TEXT, is_enabled=TRUTH, changed_at=TIME)
    _table(
        "sharing_holder", ("uid", "minor"),
        uid=TEXT, minor=sa.BigInteger(), pod=TEXT, node=TEXT, card=[TEXT],
    )  # fmt: skip
    _table("pool_shared_card", ("uuid",), uuid=TEXT, node=TEXT)
    for schema in ("gpuledger_live", "gpuledger_next", "gpuledger_prev"):
        op.execute(f"""
            ALTER TABLE IF EXISTS {schema}.pool_node ADD COLUMN shares boolean NOT NULL DEFAULT false,
            ADD COLUMN sharing_at timestamptz, ADD COLUMN left_as_of timestamptz, ADD COLUMN shared_as_of timestamptz
        """)


def downgrade() -> None:
    raise NotImplementedError("Migrations only go forward; restore a backup to go back.")
