"""Tables: what counts as new, changed and gone, what leaves memory, and what comes back."""

from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuledger.domain.table import KEYS_PER_TUPLE_MAX, Changes, Sum, Table, TableSpec


class Row(NamedTuple):
    name: str
    group: str
    value: int
    done: int | None = None


KEPT = TableSpec("kept", Row, ("name",))
PAIRED = TableSpec("paired", Row, ("name", "group"))
RETIRING: TableSpec[Row] = TableSpec("retiring", Row, ("name",), retires=("done",), page_by=("name",))
APPENDED: TableSpec[Row] = TableSpec("appended", Row, ("name",), retires=())
NOTHING: Changes[Any] = Changes([], [], [])
A, B = Row("a", "g", 1), Row("b", "g", 2)


def stored(spec: TableSpec[Row], *rows: Row) -> Table[Row]:
    table = Table(spec, "group")
    table.load(rows)
    return table


def test_what_is_put_is_new_once() -> None:
    table = Table(KEPT)
    table.put(A)
    table.put(A._replace(value=3))
    assert table.has_changes()
    assert table.take_changes() == Changes([A._replace(value=3)], [], [])
    assert (table.has_changes(), table.take_changes()) == (False, NOTHING)


def test_what_the_store_has_is_changed_or_gone() -> None:
    table = stored(KEPT, A, B)
    assert table.take_changes() == NOTHING
    table.put(A._replace(value=3))
    table.delete("b")
    table.delete("unheard-of")
    assert table.take_changes() == Changes([], [A._replace(value=3)], ["b"])


def test_rows_are_loaded_when_they_are_first_asked_for() -> None:
    asked: list[str] = []

    def left(table: Table[Row]) -> Table[Row]:
        table.load_lazily(lambda: asked.append("asked") or [A, B])  # type: ignore[func-returns-value]
        return table

    uses: list[Callable[[Table[Row]], object]] = [
        len,
        lambda table: table.get("a"),
        lambda table: table.where("group", "g"),
        lambda table: table.by["group"].get("g"),
        lambda table: table.put(A._replace(value=3)),
        lambda table: table.delete("b"),
        lambda table: table.load([A._replace(value=3)]),
        lambda table: table.take_changes(),
    ]
    for use in uses:
        asked.clear()
        expected, table = stored(KEPT, A, B), left(Table(KEPT, "group"))
        assert not table.is_loaded
        assert not table.has_changes()
        assert use(table) == use(expected)
        assert (asked, table.is_loaded) == (["asked"], True)
        assert table.rows == expected.rows
        assert list(table.by["group"].get("g")) == list(expected.by["group"].get("g"))
        assert table.take_changes() == expected.take_changes()
        assert asked == ["asked"]
    with pytest.raises(AttributeError, match="nothing"):
        Table(KEPT).nothing  # type: ignore[attr-defined]  # noqa: B018


def test_what_was_deleted_is_not_read_back() -> None:
    table = Table(RETIRING._replace(page_by=("name", "group")))
    table.never_written()
    table.load([A, B])
    table.delete("a")
    table.put(B._replace(value=9))
    table.load([A, B])
    assert list(table.rows.values()) == [B._replace(value=9)]


def test_a_row_that_came_and_went_is_no_change() -> None:
    table = Table(KEPT)
    table.put(A)
    table.delete("a")
    assert table.take_changes() == NOTHING


def test_what_went_and_came_back_is_changed() -> None:
    table = stored(KEPT, A)
    table.delete("a")
    table.put(A._replace(value=3))
    assert table.take_changes() == Changes([], [A._replace(value=3)], [])


def test_what_went_came_and_went_again_is_gone() -> None:
    table = stored(KEPT, A)
    table.delete("a")
    table.put(A)
    table.delete("a")
    assert table.take_changes() == Changes([], [], ["a"])


def test_an_index_follows_the_rows() -> None:
    table = stored(PAIRED, A, B)
    other = Row("a", "h", 5)
    table.put(other)
    assert table.where("group", "g") == [A, B]
    assert table.by["group"].get("h") == (("a", "h"),)
    table.delete(("a", "g"))
    table.delete(("a", "h"))
    assert (table.where("group", "g"), table.where("group", "h"), len(table)) == ([B], [], 1)


def test_an_index_keeps_the_order_of_few_keys_and_of_many() -> None:
    table, count = Table(KEPT, "group"), 3 * KEYS_PER_TUPLE_MAX
    rows = [Row(str(number), "g", number) for number in range(count)]
    for number, row in enumerate(rows, 1):
        table.put(row)
        assert table.where("group", "g") == rows[:number]
    table.delete("3")
    table.put(rows[3])
    assert table.where("group", "g") == [*rows[:3], *rows[4:], rows[3]]
    table.by["group"].remove("unheard-of", rows[0])
    for key in table.by["group"].get("g"):
        table.delete(key)
    assert (len(table), table.where("group", "g"), len(table.by["group"].get("g"))) == (0, [], 0)
    table.put(A)
    assert table.where("group", "g") == [A]


def test_a_retired_row_leaves_memory_once_it_was_taken() -> None:
    table = Table(RETIRING, "group")
    table.put(A._replace(done=1))
    table.put(B)
    assert table.get("a") is not None
    assert table.take_changes() == Changes([A._replace(done=1), B], [], [])
    assert (list(table.rows), table.where("group", "g")) == (["b"], [B])


def test_a_row_that_was_paged_in_is_changed_and_leaves_again() -> None:
    table = Table(RETIRING)
    table.load([A._replace(done=1)])
    table.put(A._replace(done=2))
    assert table.take_changes() == Changes([], [A._replace(done=2)], [])
    assert not table.rows


def test_a_row_that_was_paged_in_for_nothing_leaves_too() -> None:
    table = Table(RETIRING)
    table.load([A._replace(done=1), B])
    assert table.has_changes()
    assert table.take_changes() == NOTHING
    assert (list(table.rows), table.has_changes()) == (["b"], False)


def test_loading_does_not_touch_the_rows_that_stand() -> None:
    table = stored(KEPT, A)
    table.put(A._replace(value=3))
    table.load([A, B])
    assert table.get("a") == A._replace(value=3)


def test_loading_does_not_bring_back_what_went_and_is_not_yet_written() -> None:
    table = stored(RETIRING, A)
    table.delete("a")
    table.load([A])
    assert table.get("a") is None
    assert table.take_changes() == Changes([], [], ["a"])


def test_a_table_that_forgets_reports_every_row_as_perhaps_stored() -> None:
    table = Table(APPENDED)
    table.put(A)
    assert table.take_changes() == Changes([], [A], [])
    assert not table.rows
    table.put(A._replace(value=3))
    assert table.take_changes() == Changes([], [A._replace(value=3)], [])


def test_the_columns_are_those_of_the_row() -> None:
    assert KEPT.columns == ("name", "group", "value", "done")


def test_a_table_that_is_never_written_keeps_no_account() -> None:
    table = Table(KEPT, "group")
    table.never_written()
    table.put(A)
    table.put(B)
    table.delete("b")
    assert (table.has_changes(), table.where("group", "g")) == (False, [A])


class Total(NamedTuple):
    name: str
    held: Sum


SUMMED: TableSpec[Total] = TableSpec("summed", Total, ("name",), retires=(), adds=("held",))


def test_what_is_added_is_a_sum_until_it_is_written() -> None:
    table = Table(SUMMED)
    for held in (2, 3, -1):
        table.add(Total("a", Sum(held)))
    assert table.take_changes() == Changes([], [Total("a", Sum(4))], [])
    table.add(Total("a", Sum(-4)))
    assert table.take_changes() == Changes([], [Total("a", Sum(-4))], [])


def test_a_sum_of_nothing_is_not_written() -> None:
    table = Table(SUMMED)
    table.add(Total("a", Sum(0)))
    table.add(Total("b", Sum(1)))
    table.add(Total("b", Sum(-1)))
    assert (table.has_changes(), table.rows) == (False, {})


def test_a_table_that_nobody_writes_keeps_no_list_of_retired_rows() -> None:
    table = Table(RETIRING)
    table.never_written()
    table.load([A._replace(done=1), B])
    assert (list(table.rows), table.has_changes()) == (["a", "b"], False)


@given(st.lists(st.sampled_from("gh"), max_size=3 * KEYS_PER_TUPLE_MAX) | st.lists(st.text(), unique=True))
def test_rows_are_found_by_value_however_they_came(groups: list[str]) -> None:
    rows = [Row(str(number), group, number) for number, group in enumerate(groups)]
    table = Table(KEPT, "group")
    for row in rows:
        table.put(row)
    in_parts = stored(KEPT, *rows[:2])
    in_parts.load(rows)
    for group in groups:
        found = table.where("group", group)
        assert found == stored(KEPT, *rows).where("group", group) == in_parts.where("group", group)
