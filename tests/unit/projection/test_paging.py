"""Rows that left memory are read back in an order: a table is asked only for what another one has."""

from collections.abc import Sequence
from typing import Any, NamedTuple, cast

import pytest

from gpuledger.domain.fact import TableState
from gpuledger.domain.table import Table, TableSpec
from gpuledger.projection.paging import page_in


class Line(NamedTuple):
    name: str
    number: int


FIRST = TableSpec("first", Line, ("name", "number"), retires=("number",), page_by=("name",))
SECOND = TableSpec("second", Line, ("name", "number"), retires=("number",), page_by=("name",), page_after="first")


class Lines(TableState):
    def __init__(self) -> None:
        self.second = Table(SECOND)
        self.first = Table(FIRST)


class Asked:
    """Stored rows that note for what they are asked."""

    def __init__(self, spec: TableSpec[Line], *rows: Line) -> None:
        self.spec = spec
        self.asked: list[set[object]] = []
        self._rows = rows

    async def page(self, _connection: object, _column: str, keys: Sequence[str]) -> list[Line]:
        self.asked.append(set(keys))
        return [row for row in self._rows if row.name in keys]


def stored() -> dict[str, Asked]:
    return {"second": Asked(SECOND, Line("a", 1), Line("b", 2)), "first": Asked(FIRST, Line("a", 1))}


async def paged(rows: dict[str, Asked], *names: tuple[str, str]) -> Lines:
    state = Lines()
    await page_in(cast("Any", None), cast("Any", rows), state, [(table, "name", name) for table, name in names])
    return state


async def test_a_table_is_asked_for_what_the_one_before_it_has() -> None:
    rows = stored()
    state = await paged(rows, ("second", "a"), ("second", "b"), ("first", "a"), ("first", "b"))
    assert rows["first"].asked == [{"a", "b"}]
    assert rows["second"].asked == [{"a"}]
    assert list(state.second.rows) == [("a", 1)]
    assert list(state.first.rows) == [("a", 1)]


async def test_it_is_not_asked_at_all_for_nothing() -> None:
    rows = stored()
    await paged(rows, ("second", "new"), ("first", "new"))
    assert rows["second"].asked == []


@pytest.mark.parametrize("name", ["a", "b"])
async def test_without_the_one_before_it_is_asked_for_everything(name: str) -> None:
    rows = stored()
    state = await paged(rows, ("second", name))
    assert rows["second"].asked == [{name}]
    assert len(state.second.rows) == 1
