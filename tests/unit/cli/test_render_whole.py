"""Whole tables and documents, whatever values their rows have."""

import io
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from decimal import Decimal
from types import MappingProxyType
from typing import Any, NamedTuple
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from gpuledger.cli.render import Column, Console, Output, View, render
from gpuledger.cli.render.rows import LINES_PER_WRITE_MAX
from gpuledger.cli.render.values import cell, cells, json_text
from gpuledger.tools.queries.found_rows import FoundRows


class _Own(tzinfo):
    """A zone of the standard library's protocol and no more."""

    def utcoffset(self, _when: datetime | None) -> timedelta:
        return timedelta(hours=2)

    def dst(self, _when: datetime | None) -> None:
        return None

    def tzname(self, _when: datetime | None) -> str:
        return "own"


class _Pair(NamedTuple):
    first: str
    second: datetime


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ({1: 2**70, None: [float("nan")]}, '{"1":1180591620717411303424,"None":[null]}'),
        ([{"a\udc80": "b\udc80"}], '[{"a\\\\udc80":"b\\\\udc80"}]'),
        (_Pair("a", datetime(2017, 2, 7, tzinfo=UTC)), '["a","2017-02-07T00:00:00Z"]'),
        ({"set": frozenset({Decimal("1.50")}), "enum": Output.CSV}, '{"set":[1.50],"enum":"csv"}'),
        (MappingProxyType({"at": datetime(2017, 2, 7, 1, tzinfo=UTC), "low": -(2**63) - 1}),
         '{"at":"2017-02-07T01:00:00Z","low":-9223372036854775809}'),
    ],
)  # fmt: skip
def test_json_has_what_the_library_does_not_take(value: object, text: str) -> None:
    assert json_text(value) == text


TEXTS = st.text(st.sampled_from("ab \x1b\n機é\u200d"), max_size=6)
VALUES = st.one_of(st.none(), TEXTS, st.integers(), st.booleans(), st.decimals(allow_nan=False), st.lists(TEXTS))


@given(st.lists(st.tuples(VALUES, VALUES, VALUES), min_size=1), st.booleans())
def test_every_cell_of_a_table_stands_padded_below_its_heading(
    values: list[tuple[object, object, object]], headers: bool
) -> None:
    columns = (Column("a"), Column("number", right=True), Column("long heading"))
    fields = [one.field for one in columns]
    rows = [dict(zip(fields, row, strict=True)) for row in values]
    texts = [[one.heading for one in columns]] if headers else []
    texts += [[cell(row[one.field], one) for one in columns] for row in rows]
    widths = [max(map(cell_len, column)) for column in zip(*texts, strict=True)]

    def line(row: list[str]) -> str:
        first, second, third = [" " * (width - cell_len(text)) for width, text in zip(widths, row, strict=True)]
        return f"{row[0]}{first}   {second}{row[1]}   {row[2]}{third}".rstrip(" ")

    expected = "".join(f"{line(row)}\n" for row in texts)
    for given_rows in (rows, FoundRows(fields, values)):
        out = io.StringIO()
        render(given_rows, View("thing", columns), Output.TABLE, headers=headers, console=Console(out, io.StringIO()))
        assert out.getvalue() == expected


ZONES: tuple[tzinfo | None, ...] = (
    *(None, UTC, ZoneInfo("UTC"), ZoneInfo("Europe/London")),
    *(timezone(timedelta(seconds=1)), _Own()),
)
TIMES = st.datetimes(datetime(2, 1, 1), datetime(9998, 1, 1), timezones=st.sampled_from(ZONES))  # noqa: DTZ001
"""In UTC, in zones that are as late as UTC at times, and in one that libraries do not know."""

KINDS: tuple[st.SearchStrategy[Any], ...] = (TEXTS, st.integers(), st.booleans(), st.datetimes(), TIMES)
ONE_TYPE = st.sampled_from(KINDS).flatmap(lambda kind: st.lists(st.none() | kind))


@given(ONE_TYPE)
def test_a_column_of_one_type_has_the_texts_of_its_cells(values: list[object]) -> None:
    assert cells(values, Column("a")) == [cell(value, Column("a")) for value in values]
    assert cells(values, Column("a", format=repr)) == [cell(value, Column("a", format=repr)) for value in values]


def test_lines_beyond_those_of_one_write_are_all_there() -> None:
    out, rows = io.StringIO(), [{"a": number} for number in range(2 * LINES_PER_WRITE_MAX + 1)]
    render(rows, View("thing", (Column("a"),)), Output.TABLE, console=Console(out, io.StringIO()))
    assert out.getvalue() == "".join(f"{text}\n" for text in ("A", *range(len(rows))))
