"""Every row of a table at a snapshot, once, as columns: for those who write tables that begin there.

Rows that retired are more than memory has room for, so a piece is held at a time, and of all pieces only the keys.
"""

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Any, NamedTuple

from gpuledger.domain.table import TableSpec
from gpuledger.projection.fold_snapshots.manifest import PieceRef, TablePieces
from gpuledger.projection.fold_snapshots.parquet import GONE, ArrowTable, arrow_of, concatenated
from gpuledger.projection.fold_snapshots.pieces import Pieces
from gpuledger.projection.fold_snapshots.retired import RetiredRows

_PLACE = "place of the row"
"""Where a row stands among all of its table; no column of a table is called so."""


class _Part(NamedTuple):
    """A piece, the place of its first row, and whether it may hold keys that are gone."""

    ref: PieceRef
    first: int
    is_retired: bool


async def whole_table(pieces: Pieces, spec: TableSpec[Any], table: TablePieces) -> AsyncIterator[ArrowTable]:
    """The rows of a table, in pieces with exactly its columns; see `RetiredRows` and `TablePieces` on which count.

    Raises:
        PieceDamagedError: a piece is not what was written.
        ObjectsError: one cannot be read.
    """
    if spec.adds:
        yield arrow_of(spec, RetiredRows(spec, await pieces.encoded(table.retired)).all())
        return
    parts = _parts(table)
    last = await _last_places(pieces, spec, parts) if _returns(spec) else None
    for part in parts:
        (columns,) = await pieces.columns([part.ref])
        columns = await asyncio.to_thread(_that_count, columns, part, last)
        if columns.num_rows:
            yield columns.select(list(spec.columns))


def _that_count(columns: ArrowTable, part: _Part, last: Any) -> ArrowTable:  # noqa: ANN401 - an array of the library
    """The rows of a piece that count; `last` are the places of those that do, if not all do."""
    if last is not None:
        columns = _at(columns, last, part.first)
    return _present(columns) if part.is_retired else columns


def _returns(spec: TableSpec[Any]) -> bool:
    """Whether a key may be in several pieces; see `TableSpec.retires`."""
    return spec.retires is not None and not (spec.retires and spec.is_append_only)


def _parts(table: TablePieces) -> list[_Part]:
    parts, first = [], 0
    for refs, is_retired in ((table.retired, True), (table.live, False)):
        for ref in refs:
            if ref is not None:
                parts.append(_Part(ref, first, is_retired))
                first += ref.rows
    return parts


async def _last_places(pieces: Pieces, spec: TableSpec[Any], parts: Sequence[_Part]) -> Any:  # noqa: ANN401
    """The places of the last rows of each key, ascending."""
    import pyarrow as pa  # noqa: PLC0415 - takes a quarter of a second

    keys = []
    for part in parts:
        (columns,) = await pieces.columns([part.ref], spec.key)
        places = pa.arange(part.first, part.first + part.ref.rows)
        keys.append(columns.append_column(_PLACE, places))
    if not keys:
        return pa.array([], pa.int64())
    return await asyncio.to_thread(_last_of, concatenated(*keys), spec.key)


def _last_of(keys: ArrowTable, names: Sequence[str]) -> Any:  # noqa: ANN401
    last = keys.group_by(list(names)).aggregate([(_PLACE, "max")])
    return last.column(f"{_PLACE}_max").combine_chunks().sort()


def _at(columns: ArrowTable, places: Any, first: int) -> ArrowTable:  # noqa: ANN401 - an array of the library
    """The rows of a piece that stand at one of the places."""
    from pyarrow import compute  # noqa: PLC0415

    is_here = compute.and_(compute.greater_equal(places, first), compute.less(places, first + columns.num_rows))
    return columns.take(compute.subtract(places.filter(is_here), first))


def _present(columns: ArrowTable) -> ArrowTable:
    """The rows of retired ones whose keys are not gone."""
    from pyarrow import compute  # noqa: PLC0415

    return columns.filter(compute.invert(columns.column(GONE)))
