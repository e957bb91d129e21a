"""Rows that COPY takes as CSV are those that were given, whatever texts say."""

from datetime import UTC, datetime
from typing import NamedTuple

from psycopg.sql import SQL

from gpuledger.db.engine import connect
from gpuledger.domain.table import Sum, TableSpec
from gpuledger.projection.fold_snapshots.parquet import arrow_of, csv_of
from gpuledger.projection.rows import RowStore


class Kinds(NamedTuple):
    name: str
    text: str | None
    number: int | None
    flag: bool | None
    at: datetime | None
    total: Sum | None


KINDS = TableSpec("kinds", Kinds, ("name",))
NASTY = ["", " ", "\\", "\\.", "\\N", "NULL", '"', '""', "a,b", "a\nb", "a\r\nb", "\t", "ü…", "\x01", "'"]


async def test_what_was_given_comes_back(url: str) -> None:
    first, last = datetime(1, 1, 1, tzinfo=UTC), datetime(9999, 12, 31, 23, 59, 59, 999999, tzinfo=UTC)
    rows = [Kinds(f"text {number}", text, number, True, last, Sum(number)) for number, text in enumerate(NASTY)]
    rows += [Kinds("nothing", None, None, None, None, None), Kinds("", "", -(2**63), False, first, Sum(10**30))]
    store = RowStore(KINDS, "pg_temp")
    async with connect(url, application_name="test") as connection:
        await connection.execute(
            "CREATE TEMPORARY TABLE kinds "
            "(name text PRIMARY KEY, text text, number bigint, flag boolean, at timestamptz, total numeric)"
        )
        await store.copy_csv(connection, csv_of(arrow_of(KINDS, rows)))
        cursor = await connection.execute(SQL("SELECT * FROM {}").format(store.table))
        found = {row[0]: Kinds(*row) for row in await cursor.fetchall()}
        assert found == {row.name: row for row in rows}
        await store.empty(connection)
        assert [batch async for batch in store.all(connection)] == []
