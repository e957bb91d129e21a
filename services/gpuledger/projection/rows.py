"""Reads and writes a table's rows in PostgreSQL, with statements that follow from its spec.

New rows are inserted, changed ones upserted, keys that are gone deleted: a handful of statements a batch, however many
events led to it. Rows travel as one array a column, which fits into one round trip with everything else and costs the
driver nothing per value; very many are copied.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Sequence
from datetime import datetime
from itertools import chain
from operator import itemgetter
from typing import Any, Generic, NamedTuple, TypeVar

import orjson
from psycopg import AsyncConnection
from psycopg.sql import SQL, Composed, Identifier, Literal

from gpuledger.db.json_columns import JSON_COLUMNS, jsonb_columns, read_json_as_text
from gpuledger.domain.table import Changes, Key, TableSpec
from gpuledger.projection.month_tables import MonthTables
from gpuledger.projection.months import months_of
from gpuledger.projection.row_statements import inserts_of, statements_of

R = TypeVar("R", bound=tuple[Any, ...])

ROWS_PER_FETCH = 10_000

COPIED_ROWS_MIN = 10_000
"""From this many rows on PostgreSQL takes less time for COPY, which takes more of ours, and more round trips."""

_SEES_WHAT_IS_COMMITTED = "SET TRANSACTION ISOLATION LEVEL READ COMMITTED"
"""Whatever a database's default is: who waits for a table has to see who has begun meanwhile."""

_INDEXES = """
SELECT indexrelid::regclass::text, regexp_replace(pg_get_indexdef(indexrelid), ' ON ONLY ', ' ON '),
    quote_ident(conname), pg_get_constraintdef(made.oid)
FROM pg_index LEFT JOIN pg_constraint AS made ON conindid = indexrelid AND conrelid = indrelid
    AND contype IN ('p', 'u', 'x')
WHERE indrelid = to_regclass(%(table)s) ORDER BY indexrelid
"""


class Piece(NamedTuple):
    """Rows of a table as CSV, with its columns in their order; `times` are some of each month of its `by_month`."""

    rows: bytes
    times: Collection[datetime] = ()


class RowStore(Generic[R]):
    """One table in one schema."""

    def __init__(self, spec: TableSpec[R], schema: str) -> None:
        self.spec = spec
        self.table = Identifier(schema, spec.name)
        self.months = None if spec.by_month is None else MonthTables(spec, schema)
        self._key_of = itemgetter(*(spec.columns.index(name) for name in spec.key))
        self._schema = schema
        self._statements = statements_of(spec, schema)
        self._inserts = inserts_of(spec, schema, frozenset())
        self._is_typed = spec.name not in JSON_COLUMNS

    async def _find_types(self, connection: AsyncConnection[Any]) -> None:
        """Find out what the columns with documents are here; a table that changes its types fences its writer."""
        self._inserts = inserts_of(self.spec, self._schema, frozenset(await jsonb_columns(connection, self.table)))
        self._is_typed = True

    async def write(self, connection: AsyncConnection[Any], changes: Changes[R]) -> None:
        """Write changes inside the caller's transaction; in a pipeline only where `is_copied` says no."""
        if not self._is_typed:
            await self._find_types(connection)
        if self.months is not None:
            await self.months.make_for(connection, chain(changes.new, changes.changed))
        if changes.gone:
            keys = [_as_tuple(key, self.spec) for key in changes.gone]
            await connection.execute(self._statements.delete, columns_of(keys))
        if len(changes.changed) >= COPIED_ROWS_MIN:
            await connection.execute(self._statements.stage)
            await _copy(connection, self._statements.copy_staged, changes.changed)
            await connection.execute(self._statements.merge)
            if self.spec.adds:
                await connection.execute(self._statements.delete_nothing_staged)
            await connection.execute(self._statements.unstage)
        elif changes.changed:
            await connection.execute(self._inserts.upsert, columns_of(changes.changed))
            if self.spec.adds:
                keys = [_as_tuple(self._key_of(row), self.spec) for row in changes.changed]
                await connection.execute(self._statements.delete_nothing, columns_of(keys))
        if len(changes.new) >= COPIED_ROWS_MIN:
            await _copy(connection, self._statements.copy, changes.new)
        elif changes.new:
            await connection.execute(self._inserts.insert, columns_of(changes.new))

    async def fill(
        self,
        connection: AsyncConnection[Any],
        pieces: AsyncIterator[Piece],
        confirm: Callable[[], Awaitable[object]] | None = None,
    ) -> None:
        """Write all rows of a table that is empty, in one transaction.

        Indexes are made at the end: filled row by row, they take five times as long for some million rows whose keys
        come in no order. A piece that cannot be had leaves the table empty. Rows are frozen as they come, for nobody
        else sees the table until the end: so vacuum has nothing to do, and an index alone answers at once. `confirm`
        is awaited once nobody else can take the table, and raises where it is another's by then.
        """
        piece = await anext(pieces, None)  # whoever waits for it within a transaction stops vacuum
        if piece is None:
            return
        try:
            async with connection.transaction():
                await connection.execute(_SEES_WHAT_IS_COMMITTED)
                await self.empty(connection)
                if confirm is not None:
                    await confirm()
                indexes = await _drop_indexes(connection, self.table)
                while piece is not None:
                    await self._make_months(connection, piece)
                    async with connection.cursor() as cursor, cursor.copy(self._statements.copy_csv) as copy:
                        await copy.write(piece.rows)
                    piece = await anext(pieces, None)
                await _execute_all(connection, indexes)
        except BaseException:
            if self.months is not None:
                self.months.forget()
            raise

    async def _make_months(self, connection: AsyncConnection[Any], piece: Piece) -> None:
        if self.months is not None:
            async with connection.transaction():
                await self.months.make(connection, months_of(piece.times))

    async def empty(self, connection: AsyncConnection[Any]) -> None:
        """Remove every row."""
        await connection.execute(self._statements.truncate)

    async def live(self, connection: AsyncConnection[Any]) -> AsyncIterator[list[R]]:
        """The rows that have not retired, in batches."""
        if self.spec.is_append_only:
            return
        async for rows in self._fetch(connection, self.live_query, ()):
            yield rows

    @property
    def live_query(self) -> Composed:
        """The query of the rows that have not retired; its condition is that of a partial index."""
        if not self.spec.retires:
            return self._statements.select
        is_open = SQL(" OR ").join(SQL("{} IS NULL").format(Identifier(name)) for name in self.spec.retires)
        return SQL("{} WHERE {}").format(self._statements.select, is_open)

    async def all(self, connection: AsyncConnection[Any]) -> AsyncIterator[list[R]]:
        """Every row, in batches."""
        async for rows in self._fetch(connection, self._statements.select, ()):
            yield rows

    async def page(self, connection: AsyncConnection[Any], column: str, values: Sequence[Key]) -> list[R]:
        """The rows in which a column of `page_by` has one of the values."""
        cursor = connection.cursor()
        read_json_as_text(cursor)
        await cursor.execute(self._statements.page[column], columns_of([(value,) for value in values]))
        return [self.spec.row(*row) for row in await cursor.fetchall()]

    async def delete_before(self, connection: AsyncConnection[Any], begins: datetime) -> None:
        """Delete the rows of a history that ended before a time, all at once."""
        query = SQL("DELETE FROM {} WHERE {} < %s").format(self.table, Identifier(self.spec.ends))
        await connection.execute(query, (begins,))

    async def _fetch(
        self, connection: AsyncConnection[Any], query: Composed, arguments: Sequence[object]
    ) -> AsyncIterator[list[R]]:
        async with connection.transaction(), connection.cursor(name=f"read_{self.spec.name}") as cursor:
            cursor.itersize = ROWS_PER_FETCH
            read_json_as_text(cursor)
            await cursor.execute(query, arguments)
            while rows := await cursor.fetchmany(ROWS_PER_FETCH):
                yield [self.spec.row(*row) for row in rows]


async def create_like(
    connection: AsyncConnection[Any], new: Identifier, old: Identifier, by_month: str | None = None
) -> None:
    """Create an empty table with the columns and indexes of another, and the settings, which `LIKE` leaves out.

    One by months has no settings of its own, and no month yet.
    """
    if by_month is not None:
        by = SQL("CREATE TABLE {} (LIKE {} INCLUDING ALL) PARTITION BY RANGE ({})")
        await connection.execute(by.format(new, old, Identifier(by_month)))
        return
    await connection.execute(SQL("CREATE TABLE {} (LIKE {} INCLUDING ALL)").format(new, old))
    found = await connection.execute(
        "SELECT unnest(reloptions) FROM pg_class WHERE oid = to_regclass(%s)", (old.as_string(connection),)
    )
    settings = [option.split("=", 1) for (option,) in await found.fetchall()]
    if settings:
        pairs = SQL(", ").join(SQL("{} = {}").format(Identifier(name), Literal(value)) for name, value in settings)
        await connection.execute(SQL("ALTER TABLE {} SET ({})").format(new, pairs))


async def _drop_indexes(connection: AsyncConnection[Any], table: Identifier) -> list[str]:
    """Drop the indexes of a table, and constraints that have one; returns the statements that make them again."""
    name = table.as_string(connection)
    cursor = await connection.execute(_INDEXES, {"table": name})
    drop, make = [], []
    for index, definition, constraint, constraint_definition in await cursor.fetchall():
        if constraint is None:
            drop.append(f"DROP INDEX {index}")
            make.append(definition)
        else:
            drop.append(f"ALTER TABLE {name} DROP CONSTRAINT {constraint}")
            make.append(f"ALTER TABLE {name} ADD CONSTRAINT {constraint} {constraint_definition}")
    await _execute_all(connection, drop)
    return make


async def _execute_all(connection: AsyncConnection[Any], statements: Sequence[str]) -> None:
    async with connection.transaction():
        for one in statements:
            await connection.execute(one.encode())


def is_copied(changes: Changes[Any]) -> bool:
    """Whether these changes are many enough for COPY, which no pipeline takes."""
    return max(len(changes.new), len(changes.changed)) >= COPIED_ROWS_MIN


async def _copy(connection: AsyncConnection[Any], statement: bytes, rows: Sequence[tuple[Any, ...]]) -> None:
    async with connection.cursor() as cursor, cursor.copy(statement) as copy:
        for row in rows:
            await copy.write_row(row)


def columns_of(rows: Sequence[tuple[Any, ...]]) -> list[str]:
    """Each column of some rows as the text of a PostgreSQL array.

    That is JSON in other brackets, unless a text has something to escape. A `Sum` stands there as text, for which
    PostgreSQL has no bound; other subclasses are texts.
    """
    return [_array(column) for column in zip(*rows, strict=True)]


def _array(values: tuple[Any, ...]) -> str:
    document = orjson.dumps(values, default=str, option=orjson.OPT_PASSTHROUGH_SUBCLASS).decode()
    if "\\" in document:
        document = f",{','.join('null' if value is None else _quoted(value) for value in values)},"
    return f"{{{document[1:-1]}}}"


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def _as_tuple(key: Key, spec: TableSpec[Any]) -> tuple[Any, ...]:
    return (key,) if len(spec.key) == 1 else key
