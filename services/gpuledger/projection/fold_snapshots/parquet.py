"""Rows of a table as Parquet, and back. The library is imported only where a snapshot is read or written."""

from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from gpuledger.domain.table import Key, Sum, TableSpec
from gpuledger.projection.rows import column_types
from gpuledger.projection.snapshot import Row

GONE: Final = "gone"
"""The column of retired rows that says that a key is gone; its row has nothing but the key."""

COMPRESSION: Final = "zstd"

_UNIX: Final = datetime(1970, 1, 1, tzinfo=UTC)

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


def encode_piece(table: ArrowTable) -> bytes:
    """A table of columns as the bytes of a Parquet file."""
    import pyarrow as pa  # noqa: PLC0415
    from pyarrow import parquet  # noqa: PLC0415

    sink = pa.BufferOutputStream()
    parquet.write_table(table, sink, compression=COMPRESSION)
    data: bytes = sink.getvalue().to_pybytes()
    return data


def decode_piece(data: bytes) -> ArrowTable:
    """The columns of a Parquet file."""
    import pyarrow as pa  # noqa: PLC0415
    from pyarrow import parquet  # noqa: PLC0415

    return parquet.read_table(pa.BufferReader(data), use_threads=False)


def rows_of(spec: TableSpec[Any], table: ArrowTable, texts: dict[str, str]) -> list[Row]:
    """The rows of columns; equal texts become one object, as where a fold interns them."""
    columns = [
        _values(table.column(name), kind, texts)
        for name, kind in zip(spec.columns, column_types(spec.row), strict=True)
    ]
    make: Callable[[Iterable[Any]], Row] = spec.row._make
    return list(map(make, zip(*columns, strict=True)))


def _values(column: Any, kind: str, texts: dict[str, str]) -> list[Any]:  # noqa: ANN401 - a column of the library
    if kind == "timestamptz":
        numbers = column.cast("int64").to_pylist()
        return [None if one is None else _UNIX + timedelta(0, 0, one) for one in numbers]
    values: list[Any] = column.to_pylist()
    if kind == "numeric":
        return [None if one is None else Sum(one) for one in values]
    if kind == "text":
        return [None if one is None else texts.setdefault(one, one) for one in values]
    return values


def _digits(number: int | None) -> str | None:
    return None if number is None else str(int(number))


def concatenated(*tables: ArrowTable) -> ArrowTable:
    """The rows of tables one behind the other."""
    import pyarrow as pa  # noqa: PLC0415

    return pa.concat_tables(tables)
