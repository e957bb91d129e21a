"""Slices and claims in the past: at a time, and as recorded up to a position."""

from collections.abc import AsyncIterator

import pytest

from gpuledger.events.claim import ClaimReleased
from gpuledger.tools.queries.availability import availability_as_of
from gpuledger.tools.queries.backend import Backend
from support.dra_explanations import WATCHERS, devices, holding, slice_of
from support.events import RecordedFact, hour, numbered, outgoing
from support.ledgers import memory_ledger

SLICE = slice_of("w1", *devices("gpu-0", "gpu-1"))
FIRST, LATE = holding("a/first", "w1/gpu-0"), holding("a/late", "w1/gpu-1")
FACTS = [
    RecordedFact(WATCHERS, SLICE[0], 1, SLICE[1]),
    RecordedFact(WATCHERS, FIRST[0], 4, FIRST[1]),
    RecordedFact(WATCHERS, FIRST[0], 6, ClaimReleased(uid="u-a/first")),
    RecordedFact(WATCHERS, LATE[0], 3, LATE[1]),  # learnt of after what happened later
]


@pytest.fixture
async def backend() -> AsyncIterator[Backend]:
    async with memory_ledger() as ledger:
        await ledger.publish_many([outgoing(event) for event in numbered(FACTS)])
        yield Backend(ledger, "", "", None)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("at", "held"),
    [
        (0.5, None),
        (1, []),
        (3, ["gpu-1"]),
        (4, ["gpu-0", "gpu-1"]),
        (5.9, ["gpu-0", "gpu-1"]),
        (6, ["gpu-1"]),
        (99, ["gpu-1"]),
    ],
)
async def test_up_to_a_time_facts_count_in_the_order_of_their_times(
    backend: Backend, at: float, held: list[str] | None
) -> None:
    state = await availability_as_of(backend, hour(at))
    status = state.status("w1-slice")
    found = None if status is None else [one["name"] for one in status["devices"] if one["state"] == "Allocated"]
    assert found == held


@pytest.mark.parametrize(("sequence", "held"), [(1, []), (2, ["gpu-0"]), (3, []), (4, ["gpu-1"])])
async def test_up_to_a_position_recorded_facts_count(backend: Backend, sequence: int, held: list[str]) -> None:
    state = await availability_as_of(backend, sequence)
    status = state.status("w1-slice")
    assert status is not None
    assert [one["name"] for one in status["devices"] if one["state"] == "Allocated"] == held


async def test_the_start_of_an_allocation_does_not_depend_on_its_recording(backend: Backend) -> None:
    state = await availability_as_of(backend, hour(99))
    (row,) = state.held("a/late")
    assert row.valid_from == hour(3)
    assert [one.valid_to for one in state.allocation.rows.values() if one.claim == "a/first"] == [hour(6)]
