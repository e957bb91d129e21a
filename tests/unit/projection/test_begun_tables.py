"""Tables that begin at a snapshot are filled a few at a time, the largest first, and each with all of its rows."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Sequence

import pytest

from gpuledger.projection.fold_snapshots import begun_tables
from gpuledger.projection.fold_snapshots.begun_tables import begin_tables
from gpuledger.projection.fold_snapshots.reader import FoldSnapshots, LoadedFold
from gpuledger.projection.fold_snapshots.taking import Hearers, take_snapshots
from gpuledger.projection.fold_snapshots.writer import FoldSnapshotSettings
from gpuledger.projection.replay import skipped_positions
from gpuledger.projection.rows import Piece
from gpuledger.readmodels.projections import DevicesProjection
from support.fold_snapshots import CountingLedger, KilledError, MemoryObjects, recorded_messages

PROJECTION = DevicesProjection()
MESSAGES = len(recorded_messages())


class FilledTables:
    """Counts the lines that each table takes; one that `dies` takes none."""

    def __init__(self, at_once: int, dies: str = "") -> None:
        self.filled_at_once = at_once
        self.lines = Counter[str]()
        self.begun: list[str] = []
        self.most = 0
        self._dies = dies
        self._under_way = 0

    @property
    def names(self) -> Sequence[str]:
        return [spec.name for spec in PROJECTION.specs]

    async def fill(self, table: str, pieces: AsyncIterator[Piece]) -> None:
        if table == self._dies:
            raise KilledError
        self.begun.append(table)
        self._under_way += 1
        self.most = max(self.most, self._under_way)
        async for piece in pieces:
            assert piece.rows.count(b"\n") <= begun_tables.ROWS_PER_COPY_MAX
            self.lines[table] += piece.rows.count(b"\n")
            await asyncio.sleep(0)
        self._under_way -= 1

    async def empty(self) -> None:
        self.lines.clear()


async def _begin(tables: FilledTables) -> LoadedFold:
    ledger, objects = CountingLedger(recorded_messages()), MemoryObjects()
    snapshots = FoldSnapshots(objects, ledger, pytest.fail)
    hearers = Hearers(lambda _: None, lambda error: pytest.fail(str(error)))
    await take_snapshots([PROJECTION], ledger, snapshots, hearers, settings=FoldSnapshotSettings(), also_last=True)
    loaded = await begin_tables(PROJECTION, snapshots, MESSAGES, await skipped_positions(ledger), lambda _: tables)
    assert loaded is not None
    return loaded


@pytest.mark.parametrize("at_once", [1, 2])
async def test_as_many_are_filled_at_a_time_as_may_be(at_once: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(begun_tables, "ROWS_PER_COPY_MAX", 2)
    tables = FilledTables(at_once)
    loaded = await _begin(tables)
    assert tables.most == at_once
    assert tables.lines == {name: rows for name in tables.names if (rows := await _rows(loaded, name))}
    sizes = [loaded.rows_of(name) for name in tables.begun]
    assert sizes == sorted(sizes, reverse=True)


async def test_one_that_cannot_be_filled_ends_all() -> None:
    tables = FilledTables(2, dies="slot")
    with pytest.raises(KilledError):
        await _begin(tables)


async def _rows(loaded: LoadedFold, name: str) -> int:
    return sum([columns.num_rows async for columns in loaded.whole(name)])
