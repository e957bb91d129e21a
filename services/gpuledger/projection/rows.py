"""Reads and writes a table's rows in PostgreSQL, with statements that follow from its spec.

New rows are inserted, changed ones upserted, keys that are gone deleted: a handful of statements a batch, however many
events led to it. Rows travel as one array a column, which fits into one round trip with everything else and costs the
driver nothing per value; very many are copied.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping, Sequence
from datetime import datetime
from itertools import chain
from operator import itemgetter
from types import UnionType
from typing import Any, Generic, NamedTuple, TypeVar, get_args, get_type_hints

import orjson
from psycopg import AsyncConnection
from psycopg.sql import SQL, Composed, Identifier, Literal

from gpuledger.db.json_columns import JSON_COLUMNS, jsonb_columns, read_json_as_text
from gpuledger.domain.table import Changes, Key, Sum, TableSpec
from gpuledger.events.position import Offset
from gpuledger.projection.month_tables import MonthTables
from gpuledger.projection.months import months_of

R = TypeVar("R", bound=tuple[Any, ...])

ROWS_PER_FETCH = 10_000

COPIED_ROWS_MIN = 10_000
"""From this many rows on PostgreSQL takes less time for COPY, which takes more of ours, and more round trips."""

_SEES_WHAT_IS_COMMITTED = "SET TRANSACTION ISOLATION LEVEL READ COMMITTED"
"""Whatever a database's default is: who waits for a table has to see who has begun meanwhile."""

_REPLACED, _ADDED = SQL("{0} = excluded.{0}"), SQL("{0} = kept.{0} + excluded.{0}")

_INDEXES = """
SELECT indexrelid::regclass::text, regexp_replace(pg_get_indexdef(indexrelid), ' ON ONLY ', ' ON '),
    quote_ident(conname), pg_get_constraintdef(made.oid)
FROM pg_index LEFT JOIN pg_constraint AS made ON conindid = indexrelid AND conrelid = indrelid
    AND contype IN ('p', 'u', 'x')
WHERE indrelid = to_regclass(%(table)s) ORDER BY indexrelid
"""

_SQL_TYPES: dict[type, str] = {
    Offset: "bigint",
    str: "text",
    int: "bigint",
    bool: "boolean",
    datetime: "timestamptz",
    Sum: "numeric",
}


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
        columns = _identifiers(spec.columns)
        keys = _identifiers(spec.key)
        types = dict(zip(spec.columns, column_types(spec.row), strict=True))
        self._types = types
        self._is_typed = spec.name not in JSON_COLUMNS
        values = [name for name in spec.columns if name not in spec.key]
        updates = SQL(", ").join(
            (_ADDED if name in spec.adds else _REPLACED).format(Identifier(name)) for name in values
        )
        self._select = SQL("SELECT {} FROM {}").format(columns, self.table)
        staged = Identifier("pg_temp", f"changed_{spec.name}")
        on_conflict = SQL("ON CONFLICT ({}) DO UPDATE SET {}").format(keys, updates)
        same_key = SQL(" AND ").join(SQL("kept.{0} = gone.{0}").format(Identifier(name)) for name in spec.key)
        delete = SQL("DELETE FROM {} AS kept USING unnest({}) AS gone ({}) WHERE {}").format(
            self.table, _arrays(spec.key, types), keys, same_key
        )
        is_nothing = SQL("").join(SQL(" AND kept.{} = 0").format(Identifier(name)) for name in spec.adds)
        self._on_conflict = on_conflict
        self._compose_inserts()
        self._delete = delete.as_bytes()
        self._delete_nothing = (delete + is_nothing).as_bytes()
        self._delete_nothing_staged = SQL("DELETE FROM {} AS kept USING {} AS gone WHERE {}{}").format(
            self.table, staged, same_key, is_nothing
        )
        page = SQL("{} WHERE {} = ANY(%s::{}[])")
        self._page = {
            name: page.format(self._select, Identifier(name), SQL(types[name])).as_bytes() for name in spec.page_by
        }
        self._copy = SQL("COPY {} ({}) FROM STDIN").format(self.table, columns)
        options = SQL("FORMAT csv" if self.months is not None else "FORMAT csv, FREEZE")  # no partition takes it
        self._copy_csv = SQL("COPY {} ({}) FROM STDIN ({})").format(self.table, columns, options)
        self._stage = SQL("CREATE TEMPORARY TABLE {} ON COMMIT DROP AS SELECT {} FROM {} WITH NO DATA").format(
            Identifier(f"changed_{spec.name}"), columns, self.table
        )
        self._copy_staged = SQL("COPY {} ({}) FROM STDIN").format(staged, columns)
        self._merge = SQL("INSERT INTO {} AS kept ({}) SELECT * FROM {} {}").format(
            self.table, columns, staged, on_conflict
        )
        self._unstage = SQL("DROP TABLE {}").format(staged)
        self._truncate = SQL("TRUNCATE {}").format(self.table)

    def _compose_inserts(self) -> None:
        """Composed once: a live projection executes them many times a second."""
        insert = SQL("INSERT INTO {} AS kept ({}) SELECT * FROM unnest({})").format(
            self.table, _identifiers(self.spec.columns), _arrays(self.spec.columns, self._types)
        )
        self._insert = insert.as_bytes()
        self._upsert = SQL("{} {}").format(insert, self._on_conflict).as_bytes()

    async def _find_types(self, connection: AsyncConnection[Any]) -> None:
        """Find out what the columns with documents are here; a table that changes its types fences its writer."""
        self._types |= dict.fromkeys(await jsonb_columns(connection, self.table), "jsonb")
        self._compose_inserts()
        self._is_typed = True

    async def write(self, connection: AsyncConnection[Any], changes: Changes[R]) -> None:
        """Write changes inside the caller's transaction; in a pipeline only where `is_copied` says no."""
        if not self._is_typed:
            await self._find_types(connection)
        if self.months is not None:
            await self.months.make_for(connection, chain(changes.new, changes.changed))
        if changes.gone:
            keys = [_as_tuple(key, self.spec) for key in changes.gone]
            await connection.execute(self._delete, columns_of(keys))
        if len(changes.changed) >= COPIED_ROWS_MIN:
            await connection.execute(self._stage)
            await _copy(connection, self._copy_staged, changes.changed)
            await connection.execute(self._merge)
            if self.spec.adds:
                await connection.execute(self._delete_nothing_staged)
            await connection.execute(self._unstage)
        elif changes.changed:
            await connection.execute(self._upsert, columns_of(changes.changed))
            if self.spec.adds:
                keys = [_as_tuple(self._key_of(row), self.spec) for row in changes.changed]
                await connection.execute(self._delete_nothing, columns_of(keys))
        if len(changes.new) >= COPIED_ROWS_MIN:
            await _copy(connection, self._copy, changes.new)
        elif changes.new:
            await connection.execute(self._insert, columns_of(changes.new))

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
                    async with connection.cursor() as cursor, cursor.copy(self._copy_csv) as copy:
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
        await connection.execute(self._truncate)

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
            return self._select
        is_open = SQL(" OR ").join(SQL("{} IS NULL").format(Identifier(name)) for name in self.spec.retires)
        return SQL("{} WHERE {}").format(self._select, is_open)

    async def all(self, connection: AsyncConnection[Any]) -> AsyncIterator[list[R]]:
        """Every row, in batches."""
        async for rows in self._fetch(connection, self._select, ()):
            yield rows

    async def page(self, connection: AsyncConnection[Any], column: str, values: Sequence[Key]) -> list[R]:
        """The rows in which a column of `page_by` has one of the values."""
        cursor = connection.cursor()
        read_json_as_text(cursor)
        await cursor.execute(self._page[column], columns_of([(value,) for value in values]))
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


async def _copy(connection: AsyncConnection[Any], statement: Composed, rows: Sequence[tuple[Any, ...]]) -> None:
    async with connection.cursor() as cursor, cursor.copy(statement) as copy:
        for row in rows:
            await copy.write_row(row)


def column_types(row: type[tuple[Any, ...]]) -> list[str]:
    """The SQL types of a row's columns, in their order."""
    return [_SQL_TYPES[_bare(hint)] for hint in get_type_hints(row).values()]


def _bare(hint: Any) -> type:  # noqa: ANN401 - a type hint may be anything
    if isinstance(hint, UnionType):
        hint = next(part for part in get_args(hint) if part is not type(None))
    assert isinstance(hint, type)
    return hint


def _identifiers(names: Sequence[str]) -> Composed:
    return SQL(", ").join(Identifier(name) for name in names)


def _arrays(names: Sequence[str], types: Mapping[str, str]) -> Composed:
    return SQL(", ").join(SQL("%s::{}[]").format(SQL(types[name])) for name in names)


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
