"""Reads and writes a table's rows in PostgreSQL, with statements that follow from its spec.

New rows are inserted, changed ones upserted, keys that are gone deleted: a handful of statements a batch, however many
events led to it. Few rows travel as one JSON document a statement, which fits into one round trip with everything
else and costs the driver nothing per value; many are copied.
"""

from collections.abc import AsyncIterator, Mapping, Sequence
from datetime import datetime
from types import UnionType
from typing import Any, Generic, TypeVar, get_args, get_type_hints

import orjson
from psycopg import AsyncConnection
from psycopg.sql import SQL, Composed, Identifier, Literal

from gpuledger.domain.table import Changes, Key, Sum, TableSpec
from gpuledger.events.position import Offset

R = TypeVar("R", bound=tuple[Any, ...])

ROWS_PER_FETCH = 10_000

COPIED_ROWS_MIN = 1_000
"""From this many rows on COPY takes less time; below, it takes more round trips than a document."""

_REPLACED, _ADDED = SQL("{0} = excluded.{0}"), SQL("{0} = kept.{0} + excluded.{0}")

_INDEXES = """
SELECT indexrelid::regclass::text, pg_get_indexdef(indexrelid), quote_ident(conname), pg_get_constraintdef(made.oid)
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


class RowStore(Generic[R]):
    """One table in one schema."""

    def __init__(self, spec: TableSpec[R], schema: str) -> None:
        self.spec = spec
        self.table = Identifier(schema, spec.name)
        columns = _identifiers(spec.columns)
        keys = _identifiers(spec.key)
        types = dict(zip(spec.columns, column_types(spec.row), strict=True))
        values = [name for name in spec.columns if name not in spec.key]
        updates = SQL(", ").join(
            (_ADDED if name in spec.adds else _REPLACED).format(Identifier(name)) for name in values
        )
        self._select = SQL("SELECT {} FROM {}").format(columns, self.table)
        staged = Identifier("pg_temp", f"changed_{spec.name}")
        insert = SQL("INSERT INTO {} AS kept ({}) SELECT * FROM json_to_recordset(%s::json) AS given ({})").format(
            self.table, columns, _typed(spec.columns, types)
        )
        on_conflict = SQL("ON CONFLICT ({}) DO UPDATE SET {}").format(keys, updates)
        same_key = SQL(" AND ").join(SQL("kept.{0} = gone.{0}").format(Identifier(name)) for name in spec.key)
        delete = SQL("DELETE FROM {} AS kept USING json_to_recordset(%s::json) AS gone ({}) WHERE {}").format(
            self.table, _typed(spec.key, types), same_key
        )
        is_nothing = SQL("").join(SQL(" AND kept.{} = 0").format(Identifier(name)) for name in spec.adds)
        # Composed once: a live projection executes them many times a second.
        self._insert = insert.as_bytes()
        self._upsert = SQL("{} {}").format(insert, on_conflict).as_bytes()
        self._delete = delete.as_bytes()
        self._delete_nothing = (delete + is_nothing).as_bytes()
        self._delete_nothing_staged = SQL("DELETE FROM {} AS kept USING {} AS gone WHERE {}{}").format(
            self.table, staged, same_key, is_nothing
        )
        self._copy = SQL("COPY {} ({}) FROM STDIN").format(self.table, columns)
        self._copy_csv = SQL("COPY {} ({}) FROM STDIN (FORMAT csv)").format(self.table, columns)
        self._stage = SQL("CREATE TEMPORARY TABLE {} ON COMMIT DROP AS SELECT {} FROM {} WITH NO DATA").format(
            Identifier(f"changed_{spec.name}"), columns, self.table
        )
        self._copy_staged = SQL("COPY {} ({}) FROM STDIN").format(staged, columns)
        self._merge = SQL("INSERT INTO {} AS kept ({}) SELECT * FROM {} {}").format(
            self.table, columns, staged, on_conflict
        )
        self._unstage = SQL("DROP TABLE {}").format(staged)
        self._truncate = SQL("TRUNCATE {}").format(self.table)

    async def write(self, connection: AsyncConnection[Any], changes: Changes[R]) -> None:
        """Write changes inside the caller's transaction; in a pipeline only where `is_copied` says no."""
        if changes.gone:
            keys = [_as_tuple(key, self.spec) for key in changes.gone]
            await connection.execute(self._delete, (_document(self.spec.key, keys),))
        if len(changes.changed) >= COPIED_ROWS_MIN:
            await connection.execute(self._stage)
            await _copy(connection, self._copy_staged, changes.changed)
            await connection.execute(self._merge)
            if self.spec.adds:
                await connection.execute(self._delete_nothing_staged)
            await connection.execute(self._unstage)
        elif changes.changed:
            document = _document(self.spec.columns, changes.changed)
            await connection.execute(self._upsert, (document,))
            if self.spec.adds:
                await connection.execute(self._delete_nothing, (document,))
        if len(changes.new) >= COPIED_ROWS_MIN:
            await _copy(connection, self._copy, changes.new)
        elif changes.new:
            await connection.execute(self._insert, (_document(self.spec.columns, changes.new),))

    async def fill(self, connection: AsyncConnection[Any], pieces: AsyncIterator[bytes]) -> None:
        """Write all rows of a table that is empty: pieces of CSV with its columns in their order.

        Indexes are made at the end: filled row by row, they take five times as long for some million rows whose keys
        come in no order. A piece that cannot be had leaves the table empty.
        """
        indexes = await _drop_indexes(connection, self.table)
        try:
            async for data in pieces:
                async with connection.cursor() as cursor, cursor.copy(self._copy_csv) as copy:
                    await copy.write(data)
        except Exception:
            if not connection.broken:
                await self.empty(connection)
                await _execute_all(connection, indexes)
            raise
        await _execute_all(connection, indexes)

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

    async def page(self, connection: AsyncConnection[Any], keys: Sequence[Key]) -> list[R]:
        """The rows whose `page_by` column has one of the values."""
        assert self.spec.page_by is not None
        query = SQL("{} WHERE {} = ANY(%s)").format(self._select, Identifier(self.spec.page_by))
        cursor = await connection.execute(query, (list(keys),))
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
            await cursor.execute(query, arguments)
            while rows := await cursor.fetchmany(ROWS_PER_FETCH):
                yield [self.spec.row(*row) for row in rows]


async def create_like(connection: AsyncConnection[Any], new: Identifier, old: Identifier) -> None:
    """Create an empty table with the columns and indexes of another, and the settings, which `LIKE` leaves out."""
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


def _typed(names: Sequence[str], types: Mapping[str, str]) -> Composed:
    return SQL(", ").join(SQL("{} {}").format(Identifier(name), SQL(types[name])) for name in names)


def _document(names: Sequence[str], rows: Sequence[tuple[Any, ...]]) -> str:
    """Rows as JSON. A `Sum` stands there as text, for which PostgreSQL has no bound; other subclasses are texts."""
    given = [dict(zip(names, row, strict=True)) for row in rows]
    return orjson.dumps(given, default=str, option=orjson.OPT_PASSTHROUGH_SUBCLASS).decode()


def _as_tuple(key: Key, spec: TableSpec[Any]) -> tuple[Any, ...]:
    return (key,) if len(spec.key) == 1 else key
