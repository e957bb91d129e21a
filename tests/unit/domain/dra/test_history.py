"""Rows of history: who held which device, and how the views of pools stood."""

from datetime import datetime
from typing import Any

import pytest

from gpuledger.events.claim import ClaimReleased
from gpuledger.events.payload import Payload
from gpuledger.events.slice import SliceWithdrawn
from support.dra import ANYWHERE, RecordedSlices, device, given, on, published, result, share, shared
from support.events import hour

SubjectFact = tuple[float, str, Payload]

GPU = device("gpu-0")
NODE, NETWORK = published(GPU), published(GPU, reach=ANYWHERE)
HELD = given(result("gpu-0"))
SHARED = published(shared("gpu-0", m="4"))


def recorded(*facts: SubjectFact) -> RecordedSlices:
    found = RecordedSlices()
    for at, subject, data in facts:
        found.record((subject, data), at=at)
    return found


def past(rows: dict[Any, Any], *columns: str) -> list[tuple[Any, ...]]:
    """From when to when, in hours, and some columns."""
    return sorted(
        (_hour(row.valid_from), _hour(row.valid_to), *(getattr(row, column) for column in columns))
        for row in rows.values()
    )


def _hour(at: datetime | None) -> float:
    return -1 if at is None else (at - hour(0)).total_seconds() / 3600


@pytest.mark.parametrize(
    ("facts", "rows"),
    [
        ([(1, "ns/c", HELD)], [(1, -1)]),
        ([(1, "ns/c", HELD), (2, "ns/c", HELD)], [(1, -1)]),
        ([(1, "ns/c", HELD), (3, "ns/c", ClaimReleased())], [(1, 3)]),
        ([(1, "ns/c", HELD), (1, "ns/c", ClaimReleased())], []),
        ([(2, "ns/c", HELD), (1, "ns/c", ClaimReleased())], []),
        ([(1, "ns/c", HELD), (2, "ns/c", ClaimReleased()), (2, "ns/c", HELD)], [(1, 2), (2, -1)]),
        ([(1, "ns/c", HELD), (2, "ns/c", given(result("gpu-0"), uid="2"))], [(1, 2), (2, -1)]),
        ([(1, "ns/c", HELD), (2, "ns/c", given(result("gpu-1")))], [(1, 2), (2, -1)]),
        ([(1, "ns/c", HELD), (2, "ns/c", given(result("gpu-0"), result("gpu-1")))], [(1, -1), (2, -1)]),
        ([(3, "ns/c", HELD), (2, "ns/c", given(result("gpu-1")))], [(3, -1)]),
        ([(1, "ns/c", given(share("gpu-0", m="1"))), (2, "ns/c", given(share("gpu-0", m="2")))], [(1, 2), (2, -1)]),
        ([(1, "ns/c", given(share("gpu-0", m="1"))), (1, "ns/c", given(share("gpu-0", m="2")))], [(1, -1)]),
        ([(1, "ns/c", given(share("gpu-0", m="1"))), (2, "ns/c", given(share("gpu-0", m="1000m")))], [(1, -1)]),
        ([(1, "ns/c", HELD), (2, "ns/c", given(result("gpu-0", admin_access=True)))], [(1, 2), (2, -1)]),
        ([(1, "ns/c", given(result("gpu-0"), result("gpu-0", admin_access=True)))], [(1, -1)]),
        ([(1, "ns/c", HELD), (2, "ns/d", HELD), (3, "ns/c", ClaimReleased())], [(1, 3), (2, -1)]),
    ],
)
def test_claims_that_held_a_device_and_when(facts: list[SubjectFact], rows: list[tuple[float, float]]) -> None:
    assert past(recorded(*facts).state.allocation.rows) == rows


COUNTED = ("node", "total", "allocated", "available", "partial", "unavailable")


@pytest.mark.parametrize(
    ("facts", "rows"),
    [
        ([(1, "s", NODE)], [(1, -1, "n1", 1, 0, 1, 0, 0)]),
        ([(1, "s", NODE), (2, "s", NODE)], [(1, -1, "n1", 1, 0, 1, 0, 0)]),
        ([(1, "s", NODE), (2, "ns/c", HELD)], [(1, 2, "n1", 1, 0, 1, 0, 0), (2, -1, "n1", 1, 1, 0, 0, 0)]),
        ([(1, "s", NODE), (1, "ns/c", HELD)], [(1, -1, "n1", 1, 1, 0, 0, 0)]),
        ([(2, "s", NODE), (1, "ns/c", HELD)], [(2, -1, "n1", 1, 1, 0, 0, 0)]),
        ([(1, "ns/c", HELD), (2, "s", NODE)], [(2, -1, "n1", 1, 1, 0, 0, 0)]),
        (
            [(1, "s", NODE), (2, "ns/c", HELD), (3, "ns/d", HELD)],
            [(1, 2, "n1", 1, 0, 1, 0, 0), (2, -1, "n1", 1, 1, 0, 0, 0)],
        ),
        ([(1, "s", NODE), (2, "s", SliceWithdrawn())], [(1, 2, "n1", 1, 0, 1, 0, 0)]),
        ([(1, "s", NODE), (1, "s", SliceWithdrawn())], []),
        (
            [(1, "s", NODE), (2, "s", SliceWithdrawn()), (2, "t", NODE)],
            [(1, 2, "n1", 1, 0, 1, 0, 0), (2, -1, "n1", 1, 0, 1, 0, 0)],
        ),
        ([(1, "s", NODE), (2, "s", NETWORK)], [(1, 2, "n1", 1, 0, 1, 0, 0), (2, -1, "", 1, 0, 1, 0, 0)]),
        (
            [(1, "s", SHARED), (2, "ns/c", given(share("gpu-0", m="1")))],
            [(1, 2, "n1", 1, 0, 1, 0, 0), (2, -1, "n1", 1, 1, 0, 1, 0)],
        ),
        ([(1, "s", published(GPU, count=2))], [(1, -1, "n1", 1, 0, 0, 0, 1)]),
        (
            [(1, "s", NODE), (2, "t", published(GPU, pool="n1", reach=on("n2")))],
            [(1, -1, "n1", 1, 0, 1, 0, 0), (2, -1, "n2", 1, 0, 1, 0, 0)],
        ),
    ],
)  # fmt: skip
def test_how_views_of_a_pool_stood(facts: list[SubjectFact], rows: list[tuple[Any, ...]]) -> None:
    assert past(recorded(*facts).state.availability.rows, *COUNTED) == rows


def test_rows_leave_memory_with_the_object_that_they_describe() -> None:
    found = recorded((1, "s", NODE), (2, "ns/c", HELD), (3, "ns/c", ClaimReleased()), (4, "s", SliceWithdrawn()))
    changes = {name: table.take_changes() for name, table in found.state.tables().items()}
    assert (len(changes["device_allocation"].new), len(changes["pool_availability"].new)) == (1, 3)
    assert {name: len(table) for name, table in found.state.tables().items() if len(table)} == {}


def test_a_slice_in_another_pool_leaves_nothing_in_the_one_before() -> None:
    found = recorded((1, "s", NODE), (2, "s", published(GPU, pool="n2")))
    assert past(found.state.availability.rows, "pool") == [(1, 2, "n1"), (2, -1, "n2")]
    assert {row.pool for row in found.state.condition.rows.values()} == {"n2"}


def test_a_claim_is_allocated_since_it_was() -> None:
    found = recorded((1, "ns/c", HELD), (2, "ns/c", given(result("gpu-1"))))
    assert [(row.phase, row.devices, _hour(row.since)) for row in found.state.claim.rows.values()] == [
        ("Allocated", 1, 1)
    ]
    found.record(("ns/c", given(uid="2")), at=3)
    assert [_hour(row.since) for row in found.state.claim.rows.values()] == [3]
