"""Rows of a query are sequences of mappings, and columns."""

import pytest

from gpuledger.tools.queries.found_rows import FoundRows

ROWS = FoundRows(("device", "lives"), [("a", 1), ("b", 2), ("c", 3)])
MAPPINGS = [{"device": "a", "lives": 1}, {"device": "b", "lives": 2}, {"device": "c", "lives": 3}]


def test_rows_are_a_sequence_of_mappings() -> None:
    assert list(ROWS) == MAPPINGS
    assert (len(ROWS), ROWS[1], ROWS[-1]) == (3, MAPPINGS[1], MAPPINGS[2])
    assert list(ROWS[1:]) == MAPPINGS[1:]
    assert not FoundRows(("device",), [])


def test_columns_are_the_values_in_order() -> None:
    assert ROWS.column("lives") == [1, 2, 3]
    assert ROWS.column("slot") == [None, None, None]


@pytest.mark.parametrize(
    ("other", "equal"),
    [
        (MAPPINGS, True),
        (FoundRows(("lives", "device"), [(1, "a"), (2, "b"), (3, "c")]), True),
        (MAPPINGS[:2], False),
        ([*MAPPINGS[:2], {"device": "c", "lives": 4}], False),
        (3, False),
    ],
)
def test_rows_are_equal_to_equal_mappings(other: object, equal: bool) -> None:
    assert (other == ROWS) is equal
    assert repr(ROWS) == repr(MAPPINGS)
