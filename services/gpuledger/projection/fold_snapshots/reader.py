"""Begins a fold of the past at the nearest snapshot in the object store, or says why not.

A snapshot is a function of the log up to its position. One of another ledger, layout or generation is not even listed;
one whose anchor the log does not have, that passed over other positions than operators name today, or that is not what
was written is refused with a word, and the one before is tried.
"""

from collections.abc import AsyncIterator, Callable, Collection, Iterable, Sequence
from functools import partial
from typing import Any, Final

from gpuledger.domain.fact import Touched
from gpuledger.domain.table import Key
from gpuledger.events.errors import EventError
from gpuledger.events.position import Offset, Position, is_at_or_after
from gpuledger.ledger.api import Ledger
from gpuledger.ledger.errors import LogChangedError
from gpuledger.ledger.identity import Anchor
from gpuledger.projection.checker import Checked
from gpuledger.projection.definition import Projection
from gpuledger.projection.fold import Fold
from gpuledger.projection.fold_snapshots.buckets import bucket_of
from gpuledger.projection.fold_snapshots.manifest import (
    ManifestError,
    PieceRef,
    Place,
    SnapshotManifest,
    TablePieces,
    empty_manifest,
    fold_key,
    skips_up_to,
)
from gpuledger.projection.fold_snapshots.parquet import ArrowTable, all_rows_of
from gpuledger.projection.fold_snapshots.pieces import PieceDamagedError, Pieces, all_of
from gpuledger.projection.fold_snapshots.retired import RetiredRows
from gpuledger.projection.fold_snapshots.state import kept_in_pieces, restored
from gpuledger.projection.fold_snapshots.whole_tables import whole_table
from gpuledger.projection.paging import fold_paged
from gpuledger.projection.snapshot import Row
from gpuledger.runtime.garbage import uncollected
from gpuledger.runtime.objects import ObjectMissingError, Objects, ObjectsError

REFUSED_MAX: Final = 8
"""After so many snapshots that do not fit, a fold begins at the first event."""

OnRefused = Callable[[str], None]
"""Hears why a snapshot is not used."""


class RefusedSnapshotError(Exception):
    """A snapshot is not one of this log; the message says why."""


UNUSABLE: Final = (RefusedSnapshotError, ManifestError, PieceDamagedError, ObjectMissingError, EventError)
"""Why a snapshot is not used, and the one before it is tried."""


class LoadedFold:
    """A fold that began at a snapshot, and the retired rows up to there that it may touch again."""

    def __init__(self, fold: Fold, manifest: SnapshotManifest, pieces: Pieces) -> None:
        self.fold = fold
        self.manifest = manifest
        self._pieces = pieces
        self._retired: dict[str, RetiredRows] = {}
        self._paged: set[tuple[str, str, Key]] = set()

    @property
    def anchor(self) -> Anchor:
        """The anchor at the fold's position."""
        return self.fold.anchor or self.manifest.anchor

    async def take(self, batch: Sequence[Checked]) -> None:
        """Fold messages, with the retired rows that they touch.

        Raises:
            BadEventError: one does not fold.
            PieceDamagedError: a piece is not what was written.
            ObjectsError: one cannot be read.
        """
        await fold_paged(self.fold, batch, self._page_in)

    async def _page_in(self, touched: Touched) -> None:
        values: dict[tuple[str, str], set[Key]] = {}
        for one in touched:
            if one not in self._paged:
                self._paged.add(one)
                values.setdefault(one[:2], set()).add(one[2])
        for (name, column), some in values.items():
            self.fold.state.tables()[name].load((await self.retired(name)).page(column, some))

    async def load_retired(self, name: str) -> None:
        """Have the state hold every row of a table; before anything is folded."""
        table = self.fold.state.tables()[name]
        if table.spec.retires is not None:
            table.load((await self.retired(name)).all())

    async def whole(self, name: str) -> AsyncIterator[ArrowTable]:
        """Every row of a table at the snapshot, in pieces with its columns; raises as `retired`."""
        spec = self.fold.state.tables()[name].spec
        async for columns in whole_table(self._pieces, spec, self.manifest.tables.get(name, TablePieces())):
            yield columns

    def rows_of(self, name: str) -> int:
        """How many rows of a table the snapshot has, those among them that later ones replaced."""
        return sum(one.rows for one in self.manifest.tables.get(name, TablePieces()).refs())

    async def retired(self, name: str) -> RetiredRows:
        """The retired rows of a table.

        Raises:
            PieceDamagedError: a piece is not what was written.
            ObjectsError: one cannot be read.
        """
        if name not in self._retired:
            spec = self.fold.state.tables()[name].spec
            parts = await self._pieces.encoded(self.manifest.tables.get(name, TablePieces()).retired)
            self._retired[name] = RetiredRows(spec, parts)
        return self._retired[name]

    def written(self, manifest: SnapshotManifest, parts: dict[str, Any]) -> None:
        """Go on behind the next snapshot, with what retired before it. What it evicted may be touched again."""
        self.manifest = manifest
        self._paged.clear()
        for name, retired in self._retired.items():
            if name in parts:
                retired.append(parts[name])


class FoldSnapshots:
    """The snapshots of folds of one log."""

    def __init__(self, objects: Objects, ledger: Ledger, on_refused: OnRefused) -> None:
        self._objects = objects
        self._ledger = ledger
        self._on_refused = on_refused

    def pieces(self, projection: Projection) -> Pieces:
        """The objects of a projection's snapshots."""
        return Pieces(self._objects, fold_key(projection, self._ledger.identity))

    async def load(
        self,
        projection: Projection,
        until: Offset,
        skipped: Sequence[Position],
        *,
        whole: Collection[str] = (),
        is_written: bool = False,
    ) -> LoadedFold | None:
        """The fold at the nearest snapshot that is not behind a position; None where there is none.

        Args:
            projection: whose fold it is, with exactly the state of the product's projection of that name.
            until: the position.
            skipped: every position that operators decided to pass over.
            whole: the tables of which the state is to hold every row, the retired ones too.
            is_written: whether changes are taken from the tables, and decisions kept.
        """
        pieces = self.pieces(projection)
        try:
            places = [one for one in await pieces.places() if is_at_or_after(until, one.sequence)]
            for place in places[:REFUSED_MAX]:
                try:
                    return await self.load_at(projection, place, skipped, whole=whole, is_written=is_written)
                except UNUSABLE as error:
                    self.refuse(projection, place.sequence, error)
        except ObjectsError as error:
            self.refuse(projection, until, error)
        return None

    def refuse(self, projection: Projection, at: Offset, error: Exception) -> None:
        """Say why a snapshot is not used, or none at all."""
        if isinstance(error, UNUSABLE):
            position = self._ledger.generations.position(at)
            self._on_refused(f"The snapshot of {projection.name} at {position} is not used: {error}")
        else:
            self._on_refused(str(error))

    async def load_at(
        self,
        projection: Projection,
        place: Place,
        skipped: Sequence[Position],
        *,
        whole: Collection[str] = (),
        is_written: bool = False,
    ) -> LoadedFold:
        """The fold at a snapshot; see `load`.

        Raises:
            RefusedSnapshotError: it is not of this log.
            ManifestError: it is damaged.
            PieceDamagedError: one of its pieces is.
            EventError: a decision in it does not decode.
            ObjectMissingError: it, or a piece, is gone.
            ObjectsError: the store cannot be used.
        """
        pieces = self.pieces(projection)
        manifest = await self.manifest(pieces, place, skipped)
        specs = kept_in_pieces(projection)
        found = await all_of(pieces.columns(_present(manifest.tables[name].live)) for name in specs)
        rows = {
            name: partial(all_rows_of, spec, parts) for (name, spec), parts in zip(specs.items(), found, strict=True)
        }
        generations = self._ledger.generations
        with uncollected():
            fold = restored(projection, manifest, generations, rows, skipped, is_written=is_written)
        loaded = LoadedFold(fold, manifest, pieces)
        for name in whole:
            await loaded.load_retired(name)
        return loaded

    def begin(self, projection: Projection, skipped: Sequence[Position], *, is_written: bool) -> LoadedFold:
        """The fold at the first event, with nothing before it."""
        fold = Fold(projection, self._ledger.generations, skipped=skipped, publishes=is_written)
        if not is_written:
            for table in fold.state.tables().values():
                table.never_written()
        fold.begin(self._ledger.identity)
        pieces = self.pieces(projection)
        return LoadedFold(fold, empty_manifest(pieces.key), pieces)

    async def manifest(self, pieces: Pieces, place: Place, skipped: Iterable[Position]) -> SnapshotManifest:
        """The manifest at a place, if it is of this log.

        Raises:
            RefusedSnapshotError: it is not.
            ManifestError: it is damaged.
            ObjectMissingError: it was deleted meanwhile.
        """
        manifest = await pieces.manifest(place)
        if manifest.skips != skips_up_to(skipped, self._ledger.generations, manifest.anchor.sequence):
            raise RefusedSnapshotError("Operators decided since to pass over another position before it.")
        try:
            await self._ledger.confirm(manifest.anchor)
        except LogChangedError as error:
            raise RefusedSnapshotError(str(error)) from error
        return manifest

    async def rows(
        self, projection: Projection, manifest: SnapshotManifest, table: str, keys: Sequence[Key]
    ) -> list[Row]:
        """The live rows of a table with these keys; reads only the buckets that they are in.

        Raises:
            PieceDamagedError: a piece is not what was written.
            ObjectsError: one cannot be read.
        """
        live = manifest.tables[table].live
        buckets = {bucket_of(key, len(live)) for key in keys} if live else set()
        table_of = projection.new_state().tables()[table]
        refs = [ref for ref in (live[bucket] for bucket in sorted(buckets)) if ref is not None]
        found = await self.pieces(projection).rows(table_of.spec, refs)
        sought = set(keys)
        return [row for row in found if table_of.key_of(row) in sought]


def _present(refs: Iterable[PieceRef | None]) -> list[PieceRef]:
    return [one for one in refs if one is not None]
