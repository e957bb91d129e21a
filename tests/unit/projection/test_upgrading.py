"""What a build does with rows of some version: never anything with those of a newer one."""

import pytest

from gpuledger.projection.upgrading import Rows, rows_of
from gpuledger.readmodels.projections import DevicesProjection


@pytest.mark.parametrize(
    ("found", "ours", "same_rows_as", "expected"),
    [
        (None, 3, (), Rows.OURS),
        (3, 3, (), Rows.OURS),
        (2, 3, (), Rows.OLDER),
        (9, 10, (), Rows.OLDER),
        (10, 9, (), Rows.NEWER),
        (None, 3, (2,), Rows.OURS),
        (3, 3, (2,), Rows.OURS),
        (2, 3, (2,), Rows.TAKEN_OVER),
        (1, 3, (2,), Rows.OLDER),
        (2, 4, (2, 3), Rows.TAKEN_OVER),
        (3, 4, (2, 3), Rows.TAKEN_OVER),
        (1, 4, (2, 3), Rows.OLDER),
        (4, 3, (2,), Rows.NEWER),
    ],
)
def test_older_rows_are_built_or_taken_over_and_newer_ones_left_alone(
    found: int | None, ours: int, same_rows_as: tuple[int, ...], expected: Rows
) -> None:
    projection = type("Some", (DevicesProjection,), {"version": ours, "same_rows_as": same_rows_as})()
    assert rows_of(found, projection) is expected
