"""Tables of a history that is shortened: what ended before leaves it, stored or not, and never comes back."""

from datetime import datetime
from typing import NamedTuple

import pytest

from gpuledger.domain.table import Changes, Table, TableSpec
from support.events import hour


class Range(NamedTuple):
    name: str
    valid_to: datetime | None


HISTORY: TableSpec[Range] = TableSpec(
    "range", Range, ("name",), retires=("valid_to",), page_by=("name",), history="ranges"
)
OPEN = Range("open", None)
OLD, LATER = Range("old", hour(1)), Range("later", hour(3))


def shortened(*rows: Range) -> Table[Range]:
    """A table whose history begins at hour 2, with rows of the store."""
    table = Table(HISTORY, "name")
    table.load(rows)
    table.take_changes()
    table.shorten(hour(2))
    return table


def test_what_is_open_or_ended_later_stays() -> None:
    table = Table(HISTORY, "name")
    for row in (OPEN, OLD, LATER):
        table.put(row)
    table.shorten(hour(2))
    assert set(table.rows) == {"open", "later"}
    assert table.where("name", "old") == []
    assert table.take_changes() == Changes([OPEN, LATER], [], [])


@pytest.mark.parametrize("end", [hour(2), hour(3), None])
def test_the_bound_itself_is_kept(end: datetime | None) -> None:
    table = shortened()
    table.put(Range("one", end))
    assert not table.is_dropped(Range("one", end))
    assert "one" in table.rows


def test_a_stored_row_that_ends_before_is_deleted() -> None:
    table = shortened(OPEN)
    table.put(OPEN._replace(valid_to=hour(1)))
    assert table.take_changes() == Changes([], [], ["open"])


def test_a_row_that_began_and_ended_before_is_never_stored() -> None:
    table = shortened()
    table.put(Range("new", None))
    table.put(Range("new", hour(1)))
    assert table.take_changes() == Changes([], [], [])


def test_what_is_paged_in_is_dropped_too() -> None:
    table = shortened()
    table.load([OLD, LATER])
    assert set(table.rows) == {"later"}


def test_a_history_never_becomes_longer_again() -> None:
    table = shortened()
    table.shorten(hour(1))
    assert table.begins == hour(2)
    table.shorten(hour(4))
    assert table.is_dropped(LATER)


def test_a_history_that_is_not_shortened_drops_nothing() -> None:
    assert not Table(HISTORY).is_dropped(OLD)
    assert Table(HISTORY).begins is None
