"""What a build does with rows of some version: never anything with those of a newer one."""

import pytest

from gpuledger.projection.upgrading import Rows, rows_of


@pytest.mark.parametrize(
    ("found", "ours", "expected"),
    [(None, 3, Rows.OURS), (3, 3, Rows.OURS), (2, 3, Rows.OLDER), (9, 10, Rows.OLDER), (10, 9, Rows.NEWER)],
)
def test_older_rows_are_built_and_newer_ones_left_alone(found: int | None, ours: int, expected: Rows) -> None:
    assert rows_of(found, ours) is expected
