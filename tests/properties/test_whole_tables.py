"""Every row of a table at a snapshot comes once, whatever retired, came back or is gone."""

from datetime import UTC, datetime
from typing import Any, NamedTuple

from hypothesis import given
from hypothesis import strategies as st

from gpuledger.domain.table import Sum, TableSpec
from gpuledger.events.position import Offset
from gpuledger.projection.fold_snapshots.manifest import FoldKey, PieceRef, TablePieces
from gpuledger.projection.fold_snapshots.parquet import arrow_of, gone_row, rows_of
from gpuledger.projection.fold_snapshots.pieces import Pieces
from gpuledger.projection.fold_snapshots.whole_tables import whole_table
from support.fold_snapshots import MemoryObjects


class Use(NamedTuple):
    holder: str
    since: datetime
    until: datetime | None
    note: str | None


class Day(NamedTuple):
    day: int
    held: Sum


class Noted(NamedTuple):
    text: str
    place: Offset


PAGED = TableSpec("use", Use, ("holder", "since"), retires=("until",), page_by=("holder",))
APPENDED = TableSpec("use_version", Use, ("holder", "since"), retires=())
KEPT = TableSpec("use_now", Use, ("holder", "since"))
ADDED = TableSpec("use_day", Day, ("day",), retires=(), adds=("held",))
NOTED = TableSpec("noted", Noted, ("text", "place"), retires=("place",))

times = st.integers(1, 3).map(lambda day: datetime(2026, 1, day, tzinfo=UTC))
uses = st.builds(Use, st.sampled_from("ab"), times, st.none() | times, st.none() | st.text(max_size=3))
days = st.builds(Day, st.integers(1, 3), st.integers(-2, 2).map(Sum))
parts_of_uses = st.lists(st.lists(st.tuples(uses, st.booleans()), min_size=1, max_size=6), max_size=4)


async def _written(spec: TableSpec[Any], parts: list[list[tuple[Any, bool]]]) -> tuple[Pieces, tuple[PieceRef, ...]]:
    pieces = Pieces(MemoryObjects(), FoldKey("ledger", 1, "uses", "layout"))
    columns = [
        arrow_of(
            spec,
            [gone_row(spec, row[: len(spec.key)]) if is_gone else row for row, is_gone in part],
            [is_gone for _, is_gone in part],
        )
        for part in parts
    ]
    return pieces, tuple(await pieces.write(columns, set()))


async def _whole(pieces: Pieces, spec: TableSpec[Any], table: TablePieces) -> list[Any]:
    found = []
    async for columns in whole_table(pieces, spec, table):
        assert tuple(columns.column_names) == spec.columns
        found += rows_of(spec, columns)
    return sorted(found, key=repr)


@given(parts=parts_of_uses, live=st.lists(uses, max_size=6, unique_by=lambda row: row[:2]), paged=st.booleans())
async def test_the_last_row_of_each_key_counts_and_a_live_one_before_all(
    parts: list[list[tuple[Use, bool]]], live: list[Use], paged: bool
) -> None:
    spec = PAGED if paged else APPENDED
    pieces, retired = await _written(spec, parts)
    buckets = await pieces.write([arrow_of(spec, live[::2]), arrow_of(spec, live[1::2])], set())
    expected: dict[Any, Use] = {}
    for row, is_gone in (one for part in parts for one in part):
        expected.pop(row[:2], None)
        if not is_gone:
            expected[row[:2]] = row
    expected |= {row[:2]: row for row in live}
    found = await _whole(pieces, spec, TablePieces((None, *buckets), retired))
    assert found == sorted(expected.values(), key=repr)


@given(parts=st.lists(st.lists(days, min_size=1, max_size=6), max_size=4))
async def test_sums_are_those_of_all_pieces(parts: list[list[Day]]) -> None:
    pieces, retired = await _written(ADDED, [[(row, False) for row in part] for part in parts])
    totals: dict[int, int] = {}
    for row in (row for part in parts for row in part):
        totals[row.day] = totals.get(row.day, 0) + row.held
    expected = [Day(day, Sum(held)) for day, held in totals.items() if held]
    assert await _whole(pieces, ADDED, TablePieces((), retired)) == sorted(expected, key=repr)


@given(live=st.lists(uses, max_size=6, unique_by=lambda row: row[:2]))
async def test_a_table_that_is_kept_is_its_live_rows(live: list[Use]) -> None:
    pieces, _ = await _written(KEPT, [])
    buckets = tuple(await pieces.write([arrow_of(KEPT, live)], set()))
    assert await _whole(pieces, KEPT, TablePieces(buckets)) == sorted(live, key=repr)


async def test_what_is_only_appended_is_all_there() -> None:
    rows = [Noted("a", 1), Noted("a", 2), Noted("b", 3)]
    pieces, retired = await _written(NOTED, [[(rows[0], False), (rows[1], False)], [(rows[2], False)]])
    assert await _whole(pieces, NOTED, TablePieces((), retired)) == rows
