"""Copies the rows of the projections' tables and of the reports into the archive, beside the events that they follow.

All are of one moment of the database; each says the position up to which its projection had folded. A table is read and
written in parts, so that memory does not grow with it.
"""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from datetime import datetime
from hashlib import sha256
from io import BytesIO
from typing import Any, Final, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
from psycopg.sql import SQL, Composed, Identifier

from gpuledger.db.engine import AsyncConnection
from gpuledger.db.views import REPORTS, view_of
from gpuledger.events.position import number_of
from gpuledger.projection.checkpoint import LIVE, live_checkpoints, schema_of
from gpuledger.tools.archive.events_file import COMPRESSION, COMPRESSION_LEVEL
from gpuledger.tools.archive.manifest import TABLES, Manifest, TableEntry
from gpuledger.tools.archive.store import NAME, Archive
from gpuledger.tools.queries.backend import Backend, all_projections, read

ROWS_PER_GROUP: Final = 32_768
PART_BYTES_MAX: Final = 64 << 20
"""A part of a table ends with the row group that takes it beyond this."""

STATEMENT_TIMEOUT_S: Final = 3_600
"""How long the rows of one table may take to come."""

JSON_TYPES: Final = ("json", "jsonb")
_KINDS: Final[Mapping[str, Any]] = {
    "int2": pa.int64(),
    "int4": pa.int64(),
    "int8": pa.int64(),
    "bool": pa.bool_(),
    "float8": pa.float64(),
    "numeric": pa.float64(),
    "date": pa.date32(),
    "timestamptz": pa.timestamp("us", "UTC"),
}
"""Arrow's types of PostgreSQL's; everything else is text as PostgreSQL writes it."""


class _Relation(NamedTuple):
    """A table or view, and the projection that it is of (empty: a report, which may be of several)."""

    schema: str
    name: str
    projection: str


async def archive_tables(backend: Backend, archive: Archive, now: datetime) -> Manifest:
    """Replace the tables in the archive by those of now; only while nobody else changes it.

    What was there is deleted once the manifest names the new ones.
    """
    manifest = await archive.begin(backend.ledger.identity)
    relations = _relations()

    async def copy_all(connection: AsyncConnection) -> list[TableEntry]:
        at, entries = await _positions(connection), list[TableEntry]()
        with backend.reporter.progress("Archiving tables", total=len(relations), unit="tables") as advance:
            for one in relations:
                copy = _Copy(archive, manifest.generation, one, f"{TABLES}/{now:%Y%m%dT%H%M%SZ}", at[one.projection])
                async for entry in copy.parts(connection):
                    entries.append(entry)
                advance()
        return entries

    entries = await read(backend, copy_all, application_name=NAME, statement_timeout_s=STATEMENT_TIMEOUT_S)
    replaced = manifest.with_tables(entries, now)
    await archive.save(replaced)
    await archive.sweep(replaced)
    return replaced


def _relations() -> list[_Relation]:
    tables = [
        _Relation(schema_of(LIVE), spec.name, projection.name)
        for projection in all_projections()
        for spec in projection.specs
    ]
    views = (view_of(name).partition(".") for name in REPORTS)
    return [*tables, *(_Relation(schema, name, "") for schema, _, name in views)]


async def _positions(connection: AsyncConnection) -> dict[str, int]:
    """Up to where each projection had folded; under the empty name up to where all had."""
    checkpoints = await live_checkpoints(connection, all_projections())
    found = {name: number_of(one.position) for name, one in checkpoints.items()}
    return {"": min(found.values(), default=0), **found}


class _Copy:
    """The copy of one table or view."""

    def __init__(self, archive: Archive, generation: int, relation: _Relation, run: str, position: int) -> None:
        self._archive = archive
        self._generation = generation
        self._relation = relation
        self._folder = f"{run}/{relation.schema}.{relation.name}"
        self._position = position
        self._parts = 0

    async def parts(self, connection: AsyncConnection) -> AsyncIterator[TableEntry]:
        """Copy it, part by part; a table without rows has one part, which says its columns."""
        kinds = await self._kinds(connection)
        part = _Part(kinds)
        async with connection.cursor(name="archive") as cursor:
            cursor.itersize = ROWS_PER_GROUP
            await cursor.execute(self._query(kinds))
            while rows := await cursor.fetchmany(ROWS_PER_GROUP):
                await asyncio.to_thread(part.add, rows)
                if part.is_full:
                    yield await self._put(part)
                    part = _Part(kinds)
        if part.rows or not self._parts:
            yield await self._put(part)

    async def _kinds(self, connection: AsyncConnection) -> dict[str, str]:
        """The columns with the names of their types."""
        cursor = await connection.execute(
            SQL("SELECT * FROM {} LIMIT 0").format(Identifier(self._relation.schema, self._relation.name))
        )
        types = connection.adapters.types
        named = ((column.name, types.get(column.type_code)) for column in cursor.description or ())
        return {name: "" if found is None else found.name for name, found in named}

    def _query(self, kinds: Mapping[str, str]) -> Composed:
        columns = [
            Identifier(name) if kind in _KINDS else SQL("{}::text").format(Identifier(name))
            for name, kind in kinds.items()
        ]
        relation = Identifier(self._relation.schema, self._relation.name)
        return SQL("SELECT {} FROM {}").format(SQL(", ").join(columns), relation)

    async def _put(self, part: "_Part") -> TableEntry:
        data = await asyncio.to_thread(part.finish)
        self._parts += 1
        path = f"{self._folder}/{self._parts:06d}.parquet"
        await self._archive.put(self._generation, path, data)
        return TableEntry(
            table=f"{self._relation.schema}.{self._relation.name}",
            projection=self._relation.projection or None,
            position=self._position,
            rows=part.rows,
            json_columns=tuple(name for name, kind in part.kinds.items() if kind in JSON_TYPES),
            path=path,
            bytes=len(data),
            sha256=sha256(data).hexdigest(),
        )


class _Part:
    """A file with rows of a table in the making, in memory."""

    def __init__(self, kinds: Mapping[str, str]) -> None:
        self.kinds = kinds
        self.rows = 0
        self._schema = pa.schema([pa.field(name, _KINDS.get(kind, pa.string())) for name, kind in kinds.items()])
        self._buffer = BytesIO()
        self._writer = pq.ParquetWriter(
            self._buffer, self._schema, compression=COMPRESSION, compression_level=COMPRESSION_LEVEL
        )

    @property
    def is_full(self) -> bool:
        """Whether it is large enough."""
        return self._buffer.tell() > PART_BYTES_MAX

    def add(self, rows: Sequence[tuple[Any, ...]]) -> None:
        """Encode rows as a row group."""
        columns = zip(*rows, strict=True)
        arrays = [_array(column, field.type) for column, field in zip(columns, self._schema, strict=True)]
        self._writer.write_table(pa.Table.from_arrays(arrays, schema=self._schema))
        self.rows += len(rows)

    def finish(self) -> bytes:
        """The whole file."""
        self._writer.close()
        return self._buffer.getvalue()


def _array(values: Sequence[Any], kind: Any) -> Any:  # noqa: ANN401 - Arrow has no types
    if kind == pa.float64():
        values = [None if one is None else float(one) for one in values]
    return pa.array(values, kind)
