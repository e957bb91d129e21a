"""Removes a month of rows at once where nearly all of them ended before a history begins, and keeps the others.

A few pages at a time are looked at for rows to keep. If there are none, the partition is dropped, and else it is
emptied and gets them back. Either takes a lock that nobody who reads may hold. Where one does for too long, where
somebody has built a view on the month, or where too many rows are left, the caller deletes row by row.
"""

from datetime import datetime
from typing import Any, Final, NamedTuple

from psycopg import AsyncConnection
from psycopg.errors import DependentObjectsStillExist, LockNotAvailable
from psycopg.sql import SQL, Identifier, Literal

from gpuledger.projection.month_tables import Partition
from gpuledger.projection.months import Month

KEPT_ROWS_MAX: Final = 10_000
"""How many rows of a month are written again at the most, so that the lock is held for a moment."""

LOCK_WAIT_MAX_S: Final = 1
"""How long the lock on a month is waited for; whoever reads the table meanwhile waits behind."""

_LOOK: Final = SQL(
    "SELECT ctid::text FROM {table} WHERE ctid >= {first}::tid AND ctid < {end}::tid "
    "AND ({ends} IS NULL OR {ends} >= {begins}) LIMIT {most}"
)
_KEEP: Final = SQL("CREATE TEMPORARY TABLE rows_to_keep ON COMMIT DROP AS SELECT * FROM {} WHERE ctid = ANY({}::tid[])")


class WholeMonth(NamedTuple):
    """A month that lies before the bound, by what the rows' end is compared with, and the places of rows to keep."""

    part: Partition
    ends: str
    begins: datetime
    kept: tuple[str, ...] = ()

    @property
    def month(self) -> Month:
        """The month."""
        assert self.part.month is not None, "it lies before"
        return self.part.month

    @property
    def is_kept(self) -> bool:
        """Whether too many rows are to be kept."""
        return len(self.kept) > KEPT_ROWS_MAX


def lies_before(part: Partition, begins: datetime) -> bool:
    """Whether all rows of a partition began before a time, as those that ended before have."""
    return part.month is not None and part.month.ends is not None and part.month.ends <= begins


async def look(connection: AsyncConnection[Any], one: WholeMonth, first: int, end: int) -> WholeMonth:
    """The month with the rows to keep in the pages from `first` up to `end`."""
    query = _LOOK.format(
        table=one.part.identifier,
        first=Literal(f"({first},0)"),
        end=Literal(f"({end},0)"),
        ends=Identifier(one.ends),
        begins=Literal(one.begins),
        most=Literal(KEPT_ROWS_MAX + 1 - len(one.kept)),
    )
    found = await (await connection.execute(query)).fetchall()
    return one._replace(kept=(*one.kept, *(place for (place,) in found)))


async def clear(connection: AsyncConnection[Any], one: WholeMonth) -> bool:
    """Remove all rows but those to keep, in the transaction under way; False: nothing was changed, for want of a lock.

    Nobody may have written to the month since it was looked at.
    """
    table = one.part.identifier
    try:
        async with connection.transaction():
            await connection.execute(SQL("SET LOCAL lock_timeout = {}").format(Literal(f"{LOCK_WAIT_MAX_S}s")))
            if not one.kept:
                await connection.execute(SQL("DROP TABLE {}").format(table))
                return True
            await connection.execute(_KEEP.format(table, Literal(list(one.kept))))
            await connection.execute(SQL("TRUNCATE {}").format(table))
            cursor = await connection.execute(SQL("INSERT INTO {} SELECT * FROM pg_temp.rows_to_keep").format(table))
            assert cursor.rowcount == len(one.kept), "nobody else writes"
            await connection.execute("DROP TABLE pg_temp.rows_to_keep")
    except (DependentObjectsStillExist, LockNotAvailable):
        return False
    return True
