"""Rows that add to the stored ones: what PostgreSQL has is the sum of all that was written, and no row of nothing."""

from datetime import UTC, datetime

import pytest

from gpuledger.db.engine import connect
from gpuledger.domain.table import Changes, Sum
from gpuledger.domain.workloads.fold import ALLOCATION_DAY, AllocationDay
from gpuledger.projection.rows import COPIED_ROWS_MIN, RowStore

DAY = datetime(2024, 2, 29, tzinfo=UTC)
LARGE = 2**63 - 1


def row(holder: int, held: int, held_us: int) -> AllocationDay:
    return AllocationDay(DAY, str(holder), "n1", None, 'of "class" \\', Sum(held), Sum(held_us))


@pytest.mark.parametrize("others", [0, COPIED_ROWS_MIN], ids=["document", "copied"])
async def test_what_is_written_is_added(url: str, others: int) -> None:
    beside = [row(10 + number, 1, 1) for number in range(others)]
    taken = [row(10 + number, -1, -1) for number in range(others)]
    store = RowStore(ALLOCATION_DAY, "gpuledger_live")
    async with connect(url, application_name="test") as connection:
        for rows in (
            [row(1, LARGE, LARGE * 86_400_000_000), row(2, 0, 7), row(3, 1, 0), *beside],
            [row(1, LARGE, 1), row(2, 0, -7), row(3, -1, 5), *taken],
        ):
            async with connection.transaction():
                await store.write(connection, Changes([], rows, []))
        found = [row async for rows in store.all(connection) for row in rows]
    assert sorted(found) == [row(1, 2 * LARGE, LARGE * 86_400_000_000 + 1), row(3, 0, 5)]
