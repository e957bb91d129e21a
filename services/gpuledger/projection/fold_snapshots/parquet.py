"""Rows of a table as Parquet, and back. The library is imported only where a snapshot is read or written."""

from collections.abc import Callable, Collection, Iterable, Sequence
from datetime import UTC, datetime
from functools import partial
from typing import Any, Final, Protocol

from gpuledger.domain.table import Key, Sum, TableSpec
from gpuledger.projection.row_statements import column_types
from gpuledger.projection.snapshot import Row
from gpuledger.runtime.garbage import uncollected

GONE: Final = "gone"
"""The column of retired rows that says that a key is gone; its row has nothing but the key."""

COMPRESSION: Final = "zstd"

ROWS_PER_GROUP: Final = 16_384
"""Rows of a table that is looked up by value are encoded in groups, so that a look-up decodes those with a match."""

_IN_UTC: Final = "Z"
"""Ends the text of a time that is read in UTC."""

ArrowTable = Any
"""A `pyarrow.Table`, for which there are no types."""


def arrow_of(spec: TableSpec[Any], rows: Sequence[Row], gone: Sequence[bool] | None = None) -> ArrowTable:
    """Rows as columns; with `gone` as many values for its column."""
    import pyarrow as pa  # noqa: PLC0415 - takes a quarter of a second

    types = {
        "text": pa.string(),
        "bigint": pa.int64(),
        "boolean": pa.bool_(),
        "timestamptz": pa.timestamp("us", "UTC"),
        "numeric": pa.string(),  # of any length
    }
    columns = list(zip(*rows, strict=True)) if rows else [()] * len(spec.columns)
    kinds = column_types(spec.row)
    given = [map(_digits, column) if kind == "numeric" else column for column, kind in zip(columns, kinds, strict=True)]
    arrays = [pa.array(list(column), types[kind]) for column, kind in zip(given, kinds, strict=True)]
    names = list(spec.columns)
    if gone is not None:
        arrays.append(pa.array(gone, pa.bool_()))
        names.append(GONE)
    return pa.table(arrays, names=names)


def gone_row(spec: TableSpec[Any], key: Key) -> Row:
    """A row with a key and nothing else."""
    values = dict(zip(spec.key, key if len(spec.key) > 1 else (key,), strict=True))
    return tuple(values.get(name) for name in spec.columns)


def encode_piece(table: ArrowTable, rows_per_group: int | None = None) -> bytes:
    """A table of columns as the bytes of a Parquet file."""
    import pyarrow as pa  # noqa: PLC0415
    from pyarrow import parquet  # noqa: PLC0415

    sink = pa.BufferOutputStream()
    parquet.write_table(table, sink, compression=COMPRESSION, row_group_size=rows_per_group)
    data: bytes = sink.getvalue().to_pybytes()
    return data


def decode_piece(data: bytes, names: Sequence[str] | None = None) -> ArrowTable:
    """The columns of a Parquet file, or those with some names, in their order.

    The library's way of reading one file takes half as long as its way of reading a data set that has one.
    """
    import pyarrow as pa  # noqa: PLC0415
    from pyarrow import parquet  # noqa: PLC0415

    file = parquet.ParquetFile(pa.BufferReader(data))
    return file.read(columns=names and list(names), use_threads=False)


class Columns(Protocol):
    """Rows as columns, some of which are looked up by value."""

    def where(self, name: str, values: Collection[Key]) -> list[ArrowTable]:
        """The rows in which a column has one of the values, in their order."""

    def all(self) -> ArrowTable:
        """Every row."""


class HeldColumns:
    """Columns in memory."""

    def __init__(self, table: ArrowTable) -> None:
        self._table = table

    def where(self, name: str, values: Collection[Key]) -> list[ArrowTable]:
        """The rows in which a column has one of the values."""
        return [self._table.filter(_is_in(self._table.column(name), values))]

    def all(self) -> ArrowTable:
        """Every row."""
        return self._table


class EncodedColumns:
    """The bytes of a Parquet file. A look-up decodes the column, and the groups of rows that match, each once."""

    def __init__(self, data: bytes) -> None:
        import pyarrow as pa  # noqa: PLC0415
        from pyarrow import parquet  # noqa: PLC0415

        self._file = parquet.ParquetFile(pa.BufferReader(data))
        self._columns: dict[str, Any] = {}
        self._groups: dict[int, ArrowTable] = {}

    def where(self, name: str, values: Collection[Key]) -> list[ArrowTable]:
        """The rows in which a column has one of the values."""
        from pyarrow import compute  # noqa: PLC0415

        matches, found, first = _is_in(self._column(name), values), [], 0
        for number in range(self._file.num_row_groups):
            in_group = matches.slice(first, self._file.metadata.row_group(number).num_rows)
            first += len(in_group)
            if compute.any(in_group).as_py():
                found.append(self._group(number).filter(in_group))
        return found

    def all(self) -> ArrowTable:
        """Every row."""
        return self._file.read(use_threads=False)

    def _column(self, name: str) -> Any:  # noqa: ANN401 - a column of the library
        if name not in self._columns:
            self._columns[name] = self._file.read(columns=[name], use_threads=False).column(name)
        return self._columns[name]

    def _group(self, number: int) -> ArrowTable:
        if number not in self._groups:
            self._groups[number] = self._file.read_row_group(number, use_threads=False)
        return self._groups[number]


def _is_in(column: Any, values: Collection[Key]) -> Any:  # noqa: ANN401 - a column of the library
    import pyarrow as pa  # noqa: PLC0415
    from pyarrow import compute  # noqa: PLC0415

    return compute.is_in(column, value_set=pa.array(list(values), column.type))


def csv_of(table: ArrowTable) -> bytes:
    """Columns as CSV, as COPY takes it in a session in UTC: texts stand between quotes, and null is nothing at all.

    Times are written without their zone: the library looks it up for each, which takes twenty times as long.
    """
    import pyarrow as pa  # noqa: PLC0415
    from pyarrow import csv  # noqa: PLC0415

    columns = [one.cast(pa.timestamp("us")) if pa.types.is_timestamp(one.type) else one for one in table.columns]
    sink, options = pa.BufferOutputStream(), csv.WriteOptions(include_header=False, quoting_style="needed")
    csv.write_csv(pa.table(columns, names=table.column_names), sink, options)
    data: bytes = sink.getvalue().to_pybytes()
    return data


def months_in(table: ArrowTable, column: str) -> list[datetime]:
    """When the months begin that the times in a column are in."""
    import pyarrow as pa  # noqa: PLC0415
    from pyarrow import compute  # noqa: PLC0415

    times = table.column(column).cast(pa.timestamp("us"))
    begins: list[datetime] = compute.unique(compute.floor_temporal(times, unit="month")).to_pylist()
    return [one.replace(tzinfo=UTC) for one in begins]


def rows_of(spec: TableSpec[Any], table: ArrowTable) -> list[Row]:
    """The rows of columns; equal texts become one object.

    A fold of the past waits for this, so columns and rows are made without a step of Python for each value. One
    dictionary of the texts of all pieces would make it take half as long again.
    """
    texts: dict[Any, Any] = {}
    columns = [
        _values(table.column(name), kind, texts)
        for name, kind in zip(spec.columns, column_types(spec.row), strict=True)
    ]
    make: Callable[[Iterable[Any]], Row] = partial(tuple.__new__, spec.row)  # as `_make`, whose check `zip` makes
    return list(map(make, zip(*columns, strict=True)))


def all_rows_of(spec: TableSpec[Any], tables: Iterable[ArrowTable]) -> list[Row]:
    """The rows of the columns of several pieces."""
    with uncollected():
        return [row for table in tables for row in rows_of(spec, table)]


def _values(column: Any, kind: str, texts: dict[Any, Any]) -> list[Any]:  # noqa: ANN401 - a column of the library
    if column.null_count == len(column):
        return [None] * len(column)
    if kind == "timestamptz":
        return _times(column)
    values: list[Any] = column.to_pylist()
    if kind == "numeric":
        return [None if one is None else Sum(one) for one in values]
    if kind == "text":
        return list(map(texts.setdefault, values, values))
    return values


def _times(column: Any) -> list[datetime | None]:  # noqa: ANN401 - a column of the library
    """Times by way of their texts, which the libraries write and read in half the time that sums take."""
    import pyarrow as pa  # noqa: PLC0415

    texts = column.cast(pa.timestamp("us")).cast(pa.string()).to_pylist()
    return [None if text is None else datetime.fromisoformat(text + _IN_UTC) for text in texts]


def _digits(number: int | None) -> str | None:
    return None if number is None else str(int(number))


def concatenated(*tables: ArrowTable) -> ArrowTable:
    """The rows of tables one behind the other."""
    import pyarrow as pa  # noqa: PLC0415

    return pa.concat_tables(tables)
