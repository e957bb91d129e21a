"""Begins a fold whose rows are written into tables: at the nearest snapshot, whose rows it copies there."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from contextlib import aclosing
from typing import Final, Protocol

from gpuledger.events.position import Offset, Position, back
from gpuledger.projection.definition import Projection
from gpuledger.projection.fold_snapshots.parquet import csv_of, months_in
from gpuledger.projection.fold_snapshots.pieces import all_of
from gpuledger.projection.fold_snapshots.reader import REFUSED_MAX, UNUSABLE, FoldSnapshots, LoadedFold
from gpuledger.projection.rows import Piece
from gpuledger.runtime.objects import ObjectsError
from gpuledger.runtime.tasks import abandon

ROWS_PER_COPY_MAX: Final = 100_000
"""So many rows are text at a time, some tens of megabytes, while PostgreSQL takes as many before them."""


class EmptyTables(Protocol):
    """Tables without rows, which the caller alone writes."""

    @property
    def names(self) -> Sequence[str]:
        """Those that are to have rows."""
        ...

    @property
    def filled_at_once(self) -> int:
        """How many may be filled at a time."""
        ...

    async def fill(self, table: str, pieces: AsyncIterator[Piece]) -> None:
        """Write all rows of a table."""
        ...

    async def empty(self) -> None:
        """Remove every row."""
        ...


TablesOf = Callable[[LoadedFold], EmptyTables]
"""Gives the tables of a fold that is about to begin."""


async def begin_tables(
    projection: Projection,
    snapshots: FoldSnapshots | None,
    until: Offset,
    skipped: Sequence[Position],
    tables_of: TablesOf,
) -> LoadedFold | None:
    """The fold at the nearest snapshot up to a position, whose rows the tables have; None: they have none.

    The caller takes the changes and the decisions of the fold. A snapshot of which a piece is gone or damaged is not
    used, and the one before it is.
    """
    if snapshots is None:
        return None
    for _ in range(REFUSED_MAX):
        loaded = await snapshots.load(projection, until, skipped, is_written=True)
        if loaded is None:
            return None
        tables, at = tables_of(loaded), loaded.manifest.anchor.sequence
        try:
            await _copy(loaded, tables)
        except UNUSABLE as error:
            snapshots.refuse(projection, at, error)
            until = back(at, 1)
        except ObjectsError as error:
            snapshots.refuse(projection, at, error)
            await tables.empty()
            return None
        else:
            return loaded
        await tables.empty()
    return None


async def _copy(loaded: LoadedFold, tables: EmptyTables) -> None:
    """Fill the tables, the largest first: indexes of one are made while rows of another are read."""
    free = asyncio.Semaphore(tables.filled_at_once)

    async def fill(name: str) -> None:
        async with free, aclosing(_pieces(loaded, name)) as pieces, aclosing(_one_ahead(pieces)) as ahead:
            await tables.fill(name, ahead)

    await all_of(map(fill, sorted(tables.names, key=loaded.rows_of, reverse=True)))


async def _pieces(loaded: LoadedFold, name: str) -> AsyncGenerator[Piece, None]:
    by_month = loaded.fold.state.tables()[name].spec.by_month
    async for columns in loaded.whole(name):
        for start in range(0, columns.num_rows, ROWS_PER_COPY_MAX):
            some = columns.slice(start, ROWS_PER_COPY_MAX)
            times = () if by_month is None else months_in(some, by_month)
            yield Piece(await asyncio.to_thread(csv_of, some), times)


async def _one_ahead(pieces: AsyncIterator[Piece]) -> AsyncGenerator[Piece, None]:
    """The pieces; each is read and encoded while PostgreSQL takes the one before it."""
    coming = asyncio.create_task(_next(pieces))
    try:
        while (piece := await coming) is not None:
            coming = asyncio.create_task(_next(pieces))
            yield piece
    finally:
        await abandon(coming)


async def _next(pieces: AsyncIterator[Piece]) -> Piece | None:
    return await anext(pieces, None)
