"""Rows that COPY takes as CSV are those that were given, whatever texts say."""

from collections.abc import AsyncIterator, Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple

import pytest
from psycopg.errors import UniqueViolation
from psycopg.sql import SQL

from gpuledger.db.engine import connect
from gpuledger.domain.table import Sum, TableSpec
from gpuledger.projection.fold_snapshots.parquet import arrow_of, csv_of
from gpuledger.projection.rows import Piece, RowStore
from support.fold_snapshots import KilledError


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
        await store.fill(connection, _pieces(rows[:3], rows[3:]))
        cursor = await connection.execute(SQL("SELECT * FROM {}").format(store.table))
        found = {row[0]: Kinds(*row) for row in await cursor.fetchall()}
        assert found == {row.name: row for row in rows}
        await store.empty(connection)
        assert [batch async for batch in store.all(connection)] == []


async def test_a_table_has_its_indexes_whether_the_rows_came_or_not(url: str) -> None:
    store, name = RowStore(KINDS, "pg_temp"), "pg_temp.kinds"
    async with connect(url, application_name="test") as connection:
        await connection.execute(
            "CREATE TEMPORARY TABLE kinds (name text, text text UNIQUE, number bigint, flag boolean, at timestamptz, "
            'total numeric, CONSTRAINT "its key" PRIMARY KEY (name))'
        )
        await connection.execute('CREATE INDEX "Some rows" ON kinds (number) INCLUDE (flag) WHERE at IS NULL')
        await connection.execute("CREATE UNIQUE INDEX ON kinds USING btree (lower(text))")

        async def indexes() -> list[tuple[Any, ...]]:
            cursor = await connection.execute(
                "SELECT indexrelid::regclass::text, pg_get_indexdef(indexrelid), conname FROM pg_index "
                "LEFT JOIN pg_constraint ON conindid = indexrelid WHERE indrelid = %s::regclass ORDER BY 1",
                (name,),
            )
            return await cursor.fetchall()

        before = await indexes()
        assert len(before) == 4
        with pytest.raises(KilledError):
            await store.fill(connection, _pieces([Kinds("a", "b", 1, None, None, None)], None))
        assert await indexes() == before
        assert [batch async for batch in store.all(connection)] == []
        await store.fill(connection, _pieces([Kinds("a", "b", 1, None, None, None)]))
        assert await indexes() == before
        with pytest.raises(UniqueViolation):
            await connection.execute("INSERT INTO kinds (name) VALUES ('a')")


async def test_copied_rows_leave_vacuum_nothing_to_do(url: str) -> None:
    store, rows = (
        RowStore(KINDS, "public"),
        [Kinds(f"text {number}", None, number, None, None, None) for number in range(9)],
    )
    async with connect(url, application_name="test") as connection:
        await connection.execute("SET default_transaction_isolation = 'repeatable read'")
        await connection.execute(
            "CREATE TABLE public.kinds "
            "(name text PRIMARY KEY, text text, number bigint, flag boolean, at timestamptz, total numeric)"
        )
        await store.fill(connection, _pieces(rows))
        await connection.execute("ANALYZE public.kinds")  # counts the pages that all see
        cursor = await connection.execute("SELECT relpages, relallvisible FROM pg_class WHERE relname = 'kinds'")
        assert await cursor.fetchone() == (1, 1)


async def _pieces(*parts: Sequence[Kinds] | None) -> AsyncIterator[Piece]:
    for part in parts:
        if part is None:
            raise KilledError
        yield Piece(csv_of(arrow_of(KINDS, part)))
