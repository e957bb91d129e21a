"""Workloads: phases, allocations and corrections, event by event."""

from itertools import permutations
from typing import Any

import pytest

from gpuledger.domain.workloads.fold import Allocation, Workload
from gpuledger.events.payload import BIGINT_MAX, Payload
from gpuledger.events.workload import DeviceShare, WorkloadEnded, WorkloadScheduled, WorkloadSubmitted
from gpuledger.readmodels.projections import WorkloadsProjection
from support.events import AGENT, IMPORT, event, folded, hour, log_of

SUBMITTED = WorkloadSubmitted(gpu_milli=1500, owner="ann", workload_class="BE")
SCHEDULED = WorkloadScheduled(gpu_milli=1500, node="n1")
ENDED = WorkloadEnded(outcome="Succeeded")


def rows(*facts: tuple[float, Payload], sources: tuple[str, ...] = ()) -> tuple[Workload, list[Allocation]]:
    """The workload and its allocations after these facts, recorded in this order."""
    events = [
        event(data, "w1", number=number, at=at, source=sources[number - 1] if sources else IMPORT)
        for number, (at, data) in enumerate(facts, 1)
    ]
    state = folded(WorkloadsProjection(), log_of(events)).state.tables()
    return state["workload"].rows["w1"], list(state["allocation"].rows.values())


@pytest.mark.parametrize(
    ("facts", "phase"),
    [
        ([(1, SUBMITTED)], "Pending"),
        ([(1, SUBMITTED), (2, SCHEDULED)], "Running"),
        ([(1, SUBMITTED), (2, SCHEDULED), (3, ENDED)], "Ended"),
        ([(1, SUBMITTED), (3, ENDED)], "Unscheduled"),
        ([(2, SCHEDULED)], "Running"),
        ([(3, ENDED)], "Unscheduled"),
        ([(2, SCHEDULED), (3, ENDED), (4, SCHEDULED)], "Running"),
        ([(2, SCHEDULED), (2, ENDED)], "Ended"),
        ([(2, ENDED), (2, SCHEDULED)], "Ended"),
    ],
)
def test_the_phase_follows_from_the_facts(facts: list[Any], phase: str) -> None:
    assert rows(*facts)[0].phase == phase


def test_an_end_ends_the_allocation() -> None:
    _, (held,) = rows((1, SUBMITTED), (2, SCHEDULED), (5, ENDED))
    assert held == Allocation("w1", "", hour(2), "n1", 1500, hour(5))


def test_of_a_scheduling_and_an_end_of_one_time_the_end_holds() -> None:
    for facts in permutations([(2, SCHEDULED), (2, ENDED)]):
        assert [(held.valid_from, held.valid_to) for held in rows(*facts)[1]] == [(hour(2), hour(2))]


MOVED = WorkloadScheduled(gpu_milli=1, node="n2", devices=(DeviceShare(device="d1", gpu_milli=700),))


def test_each_scheduling_is_held_until_the_next_one_or_the_end() -> None:
    facts = [(2, SCHEDULED), (4, MOVED), (7, ENDED), (9, SCHEDULED)]
    for order in permutations(facts):
        row, held = rows(*order)
        assert (row.node, row.phase) == ("n1", "Running")
        assert sorted(held, key=lambda one: one.valid_from) == [
            Allocation("w1", "", hour(2), "n1", 1500, hour(4)),
            Allocation("w1", "d1", hour(4), "n2", 700, hour(7)),
            Allocation("w1", "", hour(9), "n1", 1500, None),
        ]


def test_a_scheduling_without_gpus_ends_what_was_held() -> None:
    for order in permutations([(2, SCHEDULED), (4, WorkloadScheduled(gpu_milli=0)), (7, ENDED)]):
        assert rows(*order)[1] == [Allocation("w1", "", hour(2), "n1", 1500, hour(4))]


def test_what_an_end_released_is_not_held_because_of_a_later_end() -> None:
    for order in permutations([(2, SCHEDULED), (4, ENDED), (7, ENDED)]):
        row, (held,) = rows(*order)
        assert (row.ended_at, held.valid_to) == (hour(7), hour(4))


def test_of_two_schedulings_of_one_time_the_one_recorded_later_holds() -> None:
    assert rows((2, SCHEDULED), (2, MOVED), (3, ENDED))[1] == [Allocation("w1", "d1", hour(2), "n2", 700, hour(3))]
    assert rows((3, ENDED), (2, MOVED), (2, SCHEDULED))[1] == [Allocation("w1", "", hour(2), "n1", 1500, hour(3))]


def test_of_two_facts_of_one_time_the_one_recorded_later_holds() -> None:
    other = SUBMITTED.model_copy(update={"owner": "bob"})
    assert rows((1, SUBMITTED), (1, other))[0].owner == "bob"
    assert rows((1, other), (1, SUBMITTED))[0].owner == "ann"


def test_shares_of_one_device_add_up_within_what_a_column_holds() -> None:
    shares = tuple(DeviceShare(device="d1", gpu_milli=amount) for amount in (300, 200))
    assert rows((1, WorkloadScheduled(gpu_milli=0, devices=shares)))[1][0].gpu_milli == 500
    shares = tuple(DeviceShare(device="d1", gpu_milli=BIGINT_MAX) for _ in range(2))
    assert rows((1, WorkloadScheduled(gpu_milli=0, devices=shares)))[1][0].gpu_milli == BIGINT_MAX


def test_without_gpus_nothing_is_allocated() -> None:
    assert rows((1, WorkloadScheduled(gpu_milli=0, node="n1")))[1] == []


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0), (1, 0, 2), (1, 2, 0)])
def test_the_source_is_that_of_the_submission(order: tuple[int, ...]) -> None:
    facts, sources = [(1, SUBMITTED), (2, SCHEDULED), (3, ENDED)], (IMPORT, AGENT, "/nodes/n2/agent")
    row, _ = rows(*(facts[one] for one in order), sources=tuple(sources[one] for one in order))
    assert row.source == IMPORT
