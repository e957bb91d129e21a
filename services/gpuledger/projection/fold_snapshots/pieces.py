"""Pieces and manifests of snapshots in an object store: read and checked, written once."""

import asyncio
from collections.abc import Coroutine, Iterable, Sequence
from hashlib import sha256
from typing import Any, Final, TypeVar

from gpuledger.domain.table import TableSpec
from gpuledger.projection.fold_snapshots.manifest import (
    FoldKey,
    PieceRef,
    Place,
    SnapshotManifest,
    decode_manifest,
    encode_manifest,
    place_of_key,
)
from gpuledger.projection.fold_snapshots.parquet import (
    ArrowTable,
    EncodedColumns,
    all_rows_of,
    decode_piece,
    encode_piece,
)
from gpuledger.projection.snapshot import Row
from gpuledger.runtime.objects import Objects
from gpuledger.runtime.tasks import end

T = TypeVar("T")

REQUESTS_MAX: Final = 16
"""How many objects are read or written at a time."""


class PieceDamagedError(Exception):
    """A piece is not what was written."""


class Pieces:
    """The objects of one fold's snapshots."""

    def __init__(self, objects: Objects, key: FoldKey) -> None:
        self.key = key
        self._objects = objects
        self._requests = asyncio.Semaphore(REQUESTS_MAX)

    async def places(self) -> list[Place]:
        """Where its snapshots stand, the last first."""
        found = [place_of_key(one.key) async for one in self._objects.list(self.key.folder)]
        return sorted((one for one in found if one is not None), key=lambda one: one.order, reverse=True)

    async def manifest(self, place: Place) -> SnapshotManifest:
        """The manifest at a place.

        Raises:
            ManifestError: it is damaged.
            ObjectMissingError: it was deleted meanwhile.
        """
        return decode_manifest(await self._objects.get(self.key.manifest_key(place)), self.key)

    async def write_manifest(self, manifest: SnapshotManifest) -> None:
        """Write the manifest of pieces that are written."""
        await self._objects.put(self.key.manifest_key(manifest.place), encode_manifest(manifest))

    async def columns(self, refs: Iterable[PieceRef], names: Sequence[str] | None = None) -> list[ArrowTable]:
        """The columns of each of these pieces, or those with some names.

        Raises:
            PieceDamagedError: one is not what was written.
            ObjectMissingError: one is gone.
        """
        return await all_of(self._columns(one, names) for one in refs)

    async def encoded(self, refs: Iterable[PieceRef]) -> list[EncodedColumns]:
        """These pieces for whoever looks some of their rows up; raises as `columns`."""
        return await all_of(self._encoded(one) for one in refs)

    async def rows(self, spec: TableSpec[Any], refs: Iterable[PieceRef]) -> list[Row]:
        """The rows of these pieces; raises as `columns`."""
        return all_rows_of(spec, await self.columns(refs))

    async def write(
        self, tables: Sequence[ArrowTable], present: set[str], rows_per_group: int | None = None
    ) -> list[PieceRef]:
        """Write a piece of each table, but for those of the digests that are there."""
        return await all_of(self._write(one, present, rows_per_group) for one in tables)

    async def _columns(self, ref: PieceRef, names: Sequence[str] | None) -> ArrowTable:
        async with self._requests:
            return await asyncio.to_thread(decode_piece, await self._data(ref), names)

    async def _encoded(self, ref: PieceRef) -> EncodedColumns:
        async with self._requests:
            return await asyncio.to_thread(EncodedColumns, await self._data(ref))

    async def _data(self, ref: PieceRef) -> bytes:
        data = await self._objects.get(self.key.piece_key(ref.digest))
        if await asyncio.to_thread(_digest, data) != ref.digest:
            raise PieceDamagedError(f"The piece {ref.digest} is not what was written.")
        return data

    async def _write(self, table: ArrowTable, present: set[str], rows_per_group: int | None) -> PieceRef:
        async with self._requests:
            data = await asyncio.to_thread(encode_piece, table, rows_per_group)
            ref = PieceRef(_digest(data), table.num_rows, len(data))
            if ref.digest not in present:
                await self._objects.put(self.key.piece_key(ref.digest), data)
            return ref


async def all_of(works: Iterable[Coroutine[Any, Any, T]]) -> list[T]:
    """What each returns; the first failure ends the others."""
    tasks = [asyncio.create_task(work) for work in works]
    try:
        return await asyncio.gather(*tasks)
    finally:
        await end(tasks)


def _digest(data: bytes) -> str:
    return sha256(data).hexdigest()
