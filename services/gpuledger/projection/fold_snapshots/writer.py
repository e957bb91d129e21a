"""Writes the next snapshot of a fold: the pieces that changed since the one before, and the manifest last.

Whatever ends the process in between leaves pieces that no manifest names, which are collected later.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from gpuledger.domain.fact import time_of_ns
from gpuledger.domain.table import Changes, Key, Table, TableSpec
from gpuledger.events.position import Position, lag
from gpuledger.ledger.identity import Anchor
from gpuledger.projection.checker import Checked
from gpuledger.projection.fold import Fold
from gpuledger.projection.fold_snapshots.buckets import bucket_count, grouped, sort_key
from gpuledger.projection.fold_snapshots.manifest import (
    PieceRef,
    SnapshotManifest,
    TablePieces,
    skips_up_to,
)
from gpuledger.projection.fold_snapshots.parquet import ROWS_PER_GROUP, ArrowTable, arrow_of, concatenated, gone_row
from gpuledger.projection.fold_snapshots.pieces import Pieces
from gpuledger.projection.fold_snapshots.reader import LoadedFold
from gpuledger.projection.fold_snapshots.state import BESIDE, rows_beside
from gpuledger.projection.snapshot import ROWS_PER_PIECE, Row

PART_ROWS_MAX: Final = 500_000
"""How many rows a piece of retired rows may have when smaller ones are merged into it."""


@dataclass(frozen=True, slots=True)
class FoldSnapshotSettings:
    """When the next snapshot of a fold is due.

    After `events_min` events, and after one for each `rows_per_event` rows in memory, so that writing costs no more
    than that many rows an event however large the fleet is.
    """

    events_min: int = 20_000
    rows_per_event: int = 16

    def is_due(self, events: int, rows: int) -> bool:
        """Whether so many events since the last snapshot are worth another one of so many rows."""
        return events >= max(self.events_min, rows // self.rows_per_event)


class SnapshotWriter:
    """One fold that goes along the log, and leaves snapshots on its way."""

    def __init__(self, pieces: Pieces, loaded: LoadedFold, skipped: Sequence[Position], build: str) -> None:
        self._pieces = pieces
        self._loaded = loaded
        self._skipped = skipped
        self._build = build
        self._last: Checked | None = None

    @property
    def fold(self) -> Fold:
        """The fold as it stands."""
        return self._loaded.fold

    @property
    def events(self) -> int:
        """How many events were read since the last snapshot."""
        return lag(self._loaded.manifest.anchor.sequence, self.fold.sequence)

    @property
    def rows(self) -> int:
        """How many rows are in memory."""
        return sum(len(table) for table in self.fold.state.tables().values())

    async def take(self, batch: Sequence[Checked]) -> None:
        """Fold messages in the order of the log.

        Raises:
            BadEventError: one does not fold.
        """
        if not batch:
            return
        await self._loaded.take(batch)
        self.fold.take_decided()
        self.fold.waiting.take_returned()
        self._last = batch[-1]

    async def write(self) -> SnapshotManifest:
        """Write the snapshot of the fold as it stands; something was folded since the last one.

        Raises:
            ObjectsError: the store cannot be used. Nothing goes on then: what was taken from the tables is lost.
        """
        assert self._last is not None, "nothing was folded"
        assert self.fold.anchor is not None, "something was folded"
        before, tables, parts = self._loaded.manifest, dict[str, TablePieces](), dict[str, ArrowTable]()
        present = {one.digest for one in before.refs()}
        for name, table in self.fold.state.tables().items():
            pieces, changes = before.tables.get(name, TablePieces()), table.take_changes()
            retired = _left(table, changes)
            if retired is not None:
                parts[name] = retired
            tables[name] = TablePieces(
                await self._live(table, changes, pieces.live, present),
                await self._retired(table.spec, retired, pieces.retired, present),
            )
        beside = rows_beside(self.fold)
        for spec in BESIDE:
            tables[spec.name] = TablePieces(await self._beside(spec, beside[spec.name], present))
        manifest = self._manifest(self.fold.anchor, time_of_ns(self._last.message.recorded_ns), tables)
        await self._pieces.write_manifest(manifest)
        self._loaded.written(manifest, parts)
        return manifest

    def _manifest(self, anchor: Anchor, at: datetime, tables: dict[str, TablePieces]) -> SnapshotManifest:
        fold, key = self.fold, self._pieces.key
        skips = skips_up_to(self._skipped, fold.generations, anchor.sequence)
        recorded_at = at.replace(microsecond=0)
        return SnapshotManifest(
            key,
            anchor,
            recorded_at,
            self._build,
            fold.events,
            fold.numbering.next_number,
            skips,
            fold.waiting.changed,
            tables,
        )

    async def _live(
        self, table: Table[Any], changes: Changes[Any], before: tuple[PieceRef | None, ...], present: set[str]
    ) -> tuple[PieceRef | None, ...]:
        """The buckets of the rows in memory; only those are written that a change falls into."""
        if table.spec.retires == ():
            return ()
        count = bucket_count(len(table), len(before))
        if count != len(before):
            after: list[PieceRef | None] = [None] * count
            keys = grouped(table.rows, count)
        else:
            changed = grouped(_keys(table, changes), count)
            after = [None if bucket in changed else ref for bucket, ref in enumerate(before)]
            keys = {bucket: some for bucket, some in grouped(table.rows, count).items() if bucket in changed}
        columns = [
            arrow_of(table.spec, [table.rows[key] for key in sorted(some, key=sort_key)]) for some in keys.values()
        ]
        for bucket, ref in zip(keys, await self._pieces.write(columns, present), strict=True):
            after[bucket] = ref
        return tuple(after)

    async def _retired(
        self, spec: TableSpec[Any], part: ArrowTable | None, before: tuple[PieceRef, ...], present: set[str]
    ) -> tuple[PieceRef, ...]:
        """The pieces of the retired rows with one more, in which those before it are merged that are no larger."""
        if part is None:
            return before
        kept = list(before)
        while kept and kept[-1].rows <= 2 * part.num_rows and kept[-1].rows + part.num_rows <= PART_ROWS_MAX:
            (earlier,) = await self._pieces.columns([kept.pop()])
            part = concatenated(earlier, part)
        rows_per_group = ROWS_PER_GROUP if spec.page_by else None
        return (*kept, *await self._pieces.write([part], present, rows_per_group))

    async def _beside(
        self, spec: TableSpec[Any], rows: Sequence[Row], present: set[str]
    ) -> tuple[PieceRef | None, ...]:
        some = [rows[start : start + ROWS_PER_PIECE] for start in range(0, len(rows), ROWS_PER_PIECE)]
        return tuple(await self._pieces.write([arrow_of(spec, one) for one in some], present))


def _keys(table: Table[Any], changes: Changes[Any]) -> Iterable[Key]:
    yield from (table.key_of(row) for row in changes.new)
    yield from (table.key_of(row) for row in changes.changed)
    yield from changes.gone


def _left(table: Table[Any], changes: Changes[Any]) -> ArrowTable | None:
    """The rows that retired, and the keys that are gone, of a table whose rows retire."""
    if table.spec.retires is None:
        return None
    retired = [row for row in (*changes.new, *changes.changed) if table.key_of(row) not in table.rows]
    gone = [gone_row(table.spec, key) for key in changes.gone]
    if not retired and not gone:
        return None
    return arrow_of(table.spec, [*retired, *gone], [False] * len(retired) + [True] * len(gone))
