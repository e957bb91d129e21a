"""Retired rows are looked up in the bytes of their pieces: what comes is what a scan of all rows would give."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyarrow import parquet

from gpuledger.domain.table import TableSpec
from gpuledger.projection.fold_snapshots.parquet import EncodedColumns, HeldColumns, arrow_of, encode_piece
from gpuledger.projection.fold_snapshots.retired import RetiredRows


class Life(NamedTuple):
    """A row that is looked up by two columns."""

    device: str
    begins: int
    slot: str | None
    note: str | None


LIVES = TableSpec("life", Life, ("device", "begins"), retires=(), page_by=("device", "slot"))
Part = tuple[list[tuple[Life, bool]], int | None]
"""Rows, each with whether its key is gone, and how many are encoded as one group; None: they are held in memory."""

names = st.sampled_from("abcdef")
lives = st.builds(Life, names, st.integers(0, 3), st.none() | names, st.none() | st.text(max_size=3))
parts = st.lists(
    st.tuples(st.lists(st.tuples(lives, st.booleans()), min_size=1, max_size=12), st.none() | st.integers(1, 4)),
    max_size=4,
)


def retired_rows(given_parts: Sequence[Part]) -> RetiredRows:
    columns = []
    for rows, per_group in given_parts:
        table = arrow_of(LIVES, [row for row, _ in rows], [is_gone for _, is_gone in rows])
        columns.append(HeldColumns(table) if per_group is None else EncodedColumns(encode_piece(table, per_group)))
    return RetiredRows(LIVES, columns)


def scanned(given_parts: Sequence[Part], column: str | None, values: Sequence[str]) -> list[Life]:
    last: dict[Any, Life] = {}
    for row, is_gone in (one for rows, _ in given_parts for one in rows):
        if column is None or getattr(row, column) in values:
            last.pop((row.device, row.begins), None)
            if not is_gone:
                last[row.device, row.begins] = row
    return list(last.values())


@given(parts, st.lists(st.tuples(st.sampled_from(("device", "slot")), st.lists(names, min_size=1)), max_size=4))
def test_look_ups_find_what_a_scan_of_all_rows_would(
    given_parts: list[Part], asked: list[tuple[str, list[str]]]
) -> None:
    retired = retired_rows(given_parts)
    for column, values in asked:
        assert sorted(retired.page(column, values), key=repr) == sorted(scanned(given_parts, column, values), key=repr)
    assert sorted(retired.all(), key=repr) == sorted(scanned(given_parts, None, ()), key=repr)


def test_a_look_up_decodes_the_groups_with_a_match_once(monkeypatch: pytest.MonkeyPatch) -> None:
    decoded, read = [], parquet.ParquetFile.read_row_group

    def counted(file: Any, number: int, **options: Any) -> Any:
        decoded.append(number)
        return read(file, number, **options)

    monkeypatch.setattr(parquet.ParquetFile, "read_row_group", counted)
    rows = [(Life(device, number, "s", None), False) for device in "abcd" for number in range(3)]
    retired = retired_rows([(rows, 3)])
    assert retired.page("device", ["e"]) == []
    assert decoded == []
    assert len(retired.page("device", ["b", "d"])) == 6
    assert decoded == [1, 3]
    assert len(retired.page("device", ["b", "c"])) == 6
    assert decoded == [1, 3, 2]
