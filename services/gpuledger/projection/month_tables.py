"""The partitions of a table by months, which whoever writes the rows makes as rows of a month come.

A new month is a table by itself that is attached. So nobody who reads waits for it, and it waits for no reader: it
needs a lock on the table that only such changes and ANALYZE take.
"""

from collections.abc import Collection, Iterable
from operator import itemgetter
from typing import Any, Final, NamedTuple

from psycopg import AsyncConnection
from psycopg.sql import SQL, Composable, Identifier, Literal

from gpuledger.db.locks import LOCK_WAIT_MAX_S
from gpuledger.domain.table import TableSpec
from gpuledger.projection.months import ANY_MONTH, Month, month_named, months_of, partition_of

SETTINGS: Final = {
    "autovacuum_vacuum_insert_scale_factor": "0.02",
    "autovacuum_vacuum_scale_factor": "0.05",
    "autovacuum_analyze_scale_factor": "0.02",
}
"""Of each month, as a table with partitions has none: vacuum marks pages as visible to all soon after they are full."""

_FOUND: Final = """
SELECT parent.relkind = 'p', space.nspname, child.relname
FROM pg_class AS parent
LEFT JOIN pg_inherits ON inhparent = parent.oid
LEFT JOIN pg_class AS child ON child.oid = inhrelid
LEFT JOIN pg_namespace AS space ON space.oid = child.relnamespace
WHERE parent.oid = to_regclass(%s)
ORDER BY child.relname
"""


class Partition(NamedTuple):
    """A partition of a table, wherever it is; `month` is None where the writer makes none of that name."""

    schema: str
    name: str
    month: Month | None

    @property
    def identifier(self) -> Identifier:
        """Its qualified name."""
        return Identifier(self.schema, self.name)


async def partitions_of(connection: AsyncConnection[Any], schema: str, table: str) -> list[Partition] | None:
    """The partitions of a table, by name; None where it has none by its nature, or is not there."""
    name = Identifier(schema, table).as_string(connection)
    rows = await (await connection.execute(_FOUND, (name,))).fetchall()
    if not any(is_partitioned for is_partitioned, *_ in rows):
        return None
    return [Partition(space, child, month_named(table, child)) for _, space, child in rows if child is not None]


async def make_month(connection: AsyncConnection[Any], schema: str, table: str, month: Month) -> None:
    """Make a partition, in the transaction under way."""
    whole, part = Identifier(schema, table), Identifier(schema, partition_of(table, month))
    settings = SQL(", ").join(
        SQL("{} = {}").format(Identifier(name), Literal(value)) for name, value in SETTINGS.items()
    )
    await connection.execute(SQL("CREATE TABLE {} (LIKE {} INCLUDING ALL) WITH ({})").format(part, whole, settings))
    begins = SQL("MINVALUE") if month.begins is None else Literal(month.begins)
    ends = SQL("MAXVALUE") if month.ends is None else Literal(month.ends)
    attach = SQL("ALTER TABLE {} ATTACH PARTITION {} FOR VALUES FROM ({}) TO ({})")
    await connection.execute(attach.format(whole, part, begins, ends))


async def drop_any_month(connection: AsyncConnection[Any], schema: str, table: str) -> None:
    """Drop the partition that takes rows of any month, and has none yet: see `ANY_MONTH`.

    It is one round trip, and a transaction by itself, so that the lock on the table is held for no longer.
    """
    part = Identifier(schema, f"{table}_{ANY_MONTH}")
    drop = SQL("SET LOCAL lock_timeout = {}; DROP TABLE IF EXISTS {}")
    await connection.execute(drop.format(Literal(f"{LOCK_WAIT_MAX_S}s"), part))


async def move_table(connection: AsyncConnection[Any], table: str, before: str, after: str) -> None:
    """Move a table to another schema, with its partitions, which a build that knows none left where they were."""
    partitions = await partitions_of(connection, before, table) or []
    moved: list[Composable] = [Identifier(before, table)]
    moved += [part.identifier for part in partitions]
    for one in moved:
        await connection.execute(SQL("ALTER TABLE {} SET SCHEMA {}").format(one, Identifier(after)))


class MonthTables:
    """The months of one table, as the one who writes it knows them.

    A table without partitions is written as it is: temporary ones have none.
    """

    def __init__(self, spec: TableSpec[Any], schema: str) -> None:
        assert spec.by_month is not None, "it has months"
        self._schema = schema
        self._table = spec.name
        self._time_of = itemgetter(spec.columns.index(spec.by_month))
        self._is_partitioned = False
        self._there: set[Month | None] | None = None
        self.written: set[Month] = set()
        """The months of all rows that were written; whoever looks at one for changes takes it out before."""

    def forget(self) -> None:
        """Look again which months there are: a transaction that made some was rolled back, or some were dropped."""
        self._there = None

    async def make_for(self, connection: AsyncConnection[Any], rows: Iterable[tuple[Any, ...]]) -> None:
        """Make the months of rows that are about to be written, in the transaction under way."""
        await self.make(connection, months_of(map(self._time_of, rows)))

    async def make(self, connection: AsyncConnection[Any], months: Collection[Month]) -> None:
        """Make the months that are missing, in the transaction under way."""
        self.written.update(months)
        if self._there is None:
            found = await partitions_of(connection, self._schema, self._table)
            self._is_partitioned = found is not None
            self._there = {part.month for part in found or ()}
        if not self._is_partitioned:
            return
        for month in sorted(set(months) - self._there, key=lambda one: one.suffix):
            await make_month(connection, self._schema, self._table, month)
            self._there.add(month)
