"""Columns that hold JSON documents: which they are, and how they come to be jsonb where they are text.

Both types serve. A database that is made new has jsonb; one that an earlier build made has text, which that build needs
to write, until an administrator contracts it. Whoever writes asks for the type of the column that is there. Whoever
reads rows has the text that was written: jsonb keeps other spaces and another order of keys, so its documents are
brought into the one form that rows have, sorted by key and without spaces.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

import orjson
import psycopg
from psycopg.abc import Buffer
from psycopg.adapt import Loader
from psycopg.sql import SQL, Composed, Identifier

from gpuledger.db.engine import AsyncConnection

JSON_COLUMNS: Final[Mapping[str, tuple[str, ...]]] = {
    "resource_slice": ("payload",),
    "resource_claim": ("payload",),
    "device_class": ("payload",),
    "device_taint_rule": ("payload",),
    "node_labels": ("labels",),
    "gpu_device_mark": ("labels", "annotations"),
    "module_settings": ("approval_selector",),
    "inventory_node": ("labels", "hardware_facts"),
    "inventory_card_report": ("hardware",),
    "gpu_pool": ("payload",),
    "pool_device": ("labels",),
    "pool_mark": ("labels",),
    "pool_node": ("labels",),
    "pool_pod": ("requests",),
    "pool_node_orders": ("devices",),
    "pool_settings": ("approval_selector",),
    "maintenance_request": ("isolation", "standing"),
    "node_isolation": ("isolation", "owners", "was"),
    "node_drain": ("drains", "pods"),
    "quarantine_rules": ("document",),
    "quarantine_node": ("labels",),
    "remediation_document": ("document",),
    "remediation_node": ("labels",),
    "remediation_quarantined": ("devices",),
    "remediation_fault": ("rulesets",),
    "remediation": ("faults",),
    "shared_node": ("devices", "not_shared"),
    "shared_node_history": ("devices", "not_shared"),
    "shared_pod": ("allocation", "requests", "containers", "annotation", "reservation", "reserved_requests"),
    "shared_pod_fact": ("allocation",),
    "shared_checkpoints": ("checkpoints",),
    "shared_checkpoints_history": ("checkpoints",),
    "sharing_hardware": ("cards", "nics"),
    "sharing_offer": ("offer",),
    "machine_config": ("definition",),
    "machine_config_pool": ("definition",),
    "rendered_machine_config": ("config",),
    "machine_config_pool_status": ("conditions",),
    "machine_config_node": ("labels", "annotations"),
}
"""By table. None of them are `device_allocation.consumed`, `maintenance_request.drain`, and `node_fault.codes`,
`remediation_fault.codes`, `remediation_fault.cleared` and `sharing_hardware.declared`: they may be empty texts.
"""

_OF_TYPE: Final = """
SELECT attname FROM pg_attribute
WHERE attrelid = to_regclass(%s) AND attnum > 0 AND NOT attisdropped AND atttypid = %s::regtype
ORDER BY attnum
"""


class _CanonicalText(Loader):
    """A document of jsonb as the text that was written."""

    def load(self, data: Buffer) -> str:
        return canonical_text(data)


def canonical_text(document: Buffer | str) -> str:
    """JSON in the one form that rows have.

    That is the text that was written, however PostgreSQL shows it: but for numbers with a fraction that are beyond
    10^16, which come back as whole numbers, and for a zero with a minus. No document has any.
    """
    return orjson.dumps(orjson.loads(document), option=orjson.OPT_SORT_KEYS).decode()


def read_json_as_text(cursor: psycopg.AsyncCursor[Any] | psycopg.Cursor[Any]) -> None:
    """Have a cursor return documents of jsonb as the texts that were written, as columns of text have them."""
    cursor.adapters.register_loader("jsonb", _CanonicalText)


async def jsonb_columns(connection: AsyncConnection, table: Identifier) -> list[str]:
    """Which columns of a table are jsonb, in the database as it is."""
    return await _columns(connection, table, "jsonb")


async def text_columns(connection: AsyncConnection, schema: str, table: str) -> list[str]:
    """Which columns of a table have documents and are text still; none where the table is not there."""
    texts = await _columns(connection, Identifier(schema, table), "text")
    return [name for name in texts if name in JSON_COLUMNS.get(table, ())]


async def convert(connection: AsyncConnection, schema: str, table: str) -> bool:
    """Make the documents of a table jsonb, in the transaction under way; False where there is nothing to change.

    It writes the table anew, and nobody reads it meanwhile. Views of these columns have to be dropped before.
    """
    texts = await text_columns(connection, schema, table)
    if texts:
        await connection.execute(_conversion(Identifier(schema, table), texts))
    return bool(texts)


def convert_empty(connection: psycopg.Connection[Any], schema: str) -> None:
    """Make the documents of all tables of a schema jsonb, in the transaction that has just made them."""
    for table, columns in JSON_COLUMNS.items():
        connection.execute(_conversion(Identifier(schema, table), columns))


async def _columns(connection: AsyncConnection, table: Identifier, kind: str) -> list[str]:
    cursor = await connection.execute(_OF_TYPE, (table.as_string(connection), kind))
    return [name for (name,) in await cursor.fetchall()]


def _conversion(table: Identifier, columns: Sequence[str]) -> Composed:
    one = SQL("ALTER COLUMN {0} TYPE jsonb USING {0}::jsonb")
    return SQL("ALTER TABLE {} {}").format(table, SQL(", ").join(one.format(Identifier(name)) for name in columns))
