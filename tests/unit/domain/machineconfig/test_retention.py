"""Which rendered configurations of a pool are kept."""

from datetime import UTC, datetime

import pytest

from gpuledger.domain.machineconfig.retention import surplus
from gpuledger.domain.machineconfig.rows import RenderedConfigRow

ROWS = [
    RenderedConfigRow(f"r{place}", "worker", "", "", "", place, datetime(2026, 1, 1, tzinfo=UTC))
    for place in range(1, 6)
]


@pytest.mark.parametrize(
    ("limit", "used", "expected"),
    [
        (0, (), []),
        (5, (), []),
        (9, (), []),
        (2, (), ["r1", "r2", "r3"]),
        (2, ("r2",), ["r1", "r3"]),
        (2, ("r5",), ["r1", "r2", "r3"]),
        (1, ("r1", "r2", "r3", "r4"), []),
    ],
)
def test_the_newest_stay_and_those_in_use(limit: int, used: tuple[str, ...], expected: list[str]) -> None:
    assert surplus(ROWS, limit, used) == surplus(reversed(ROWS), limit, used) == expected
