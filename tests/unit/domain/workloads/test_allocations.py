"""Container allocations: agents' reports become units with a beginning and an end."""

from typing import Any

import pytest

from gpuledger.events.allocation import AllocatedClaim, AllocatedDevices, AllocationEnded, AllocationObserved
from gpuledger.events.envelope import Decoded
from gpuledger.events.payload import NAME_LENGTH_MAX, Payload
from gpuledger.projection.fold import Fold
from gpuledger.readmodels.projections import AllocationsProjection
from support.events import AGENT, event, fact_of, folded, hour, log_of

TRAINER = "n1/ml/trainer-0/main"
RESOURCE = "gpu.deckhouse.io/training"


def observed(*devices: str, claims: tuple[AllocatedClaim, ...] = (), resource: str = RESOURCE) -> AllocationObserved:
    held = (AllocatedDevices(resource=resource, devices=devices),) if devices else ()
    return AllocationObserved(
        node="n1", namespace="ml", pod="trainer-0", container="main", resources=held, claims=claims
    )


def events_of(*facts: tuple[float, Payload], subject: str = TRAINER, source: str = AGENT) -> list[Decoded]:
    return [event(data, subject, number=n, at=at, source=source) for n, (at, data) in enumerate(facts, 1)]


def fold_of(events: list[Decoded]) -> Fold:
    return folded(AllocationsProjection(), log_of(events))


def rows(fold: Fold, table: str = "container_allocation") -> list[Any]:
    return sorted(fold.state.tables()[table].rows.values())


def ranges(fold: Fold) -> list[tuple[Any, ...]]:
    return [(row.device, row.valid_from, row.valid_to) for row in rows(fold, "container_allocation_history")]


def test_a_units_row_has_its_container_and_its_slice() -> None:
    claim = AllocatedClaim(claim="one-gpu", driver="gpu.example.com", pool="n1", device="gpu-3")
    sliced, alone, claimed = sorted(
        rows(fold_of(events_of((1, observed("GPU-a::3", "GPU-b", claims=(claim,)))))), key=lambda row: row.device
    )
    assert tuple(sliced[:6]) == (TRAINER, f"{RESOURCE}/GPU-a::3", "n1", "ml", "trainer-0", "main")
    assert tuple(sliced[6:]) == (RESOURCE, "GPU-a", 3, None, None, None, hour(1))
    assert (alone.device, alone.slice) == ("GPU-b", None)
    assert tuple(claimed[6:]) == (None, "gpu-3", None, "one-gpu", "gpu.example.com", "n1", hour(1))


@pytest.mark.parametrize("odd", ["::1", "GPU-a::", "GPU-a::x", "GPU-a::-1", "GPU-a::1234567890", "GPU-a::٣"])
def test_an_id_that_is_no_slice_is_a_device(odd: str) -> None:
    (row,) = rows(fold_of(events_of((1, observed(odd)))))
    assert (row.device, row.slice) == (odd, None)


def test_a_repeated_report_of_a_restarted_agent_keeps_its_beginning() -> None:
    fold = fold_of(events_of((1, observed("GPU-a")), (5, observed("GPU-a")), (9, observed("GPU-a"))))
    assert [row.since for row in rows(fold)] == [hour(1)]
    assert ranges(fold) == [("GPU-a", hour(1), None)]


def test_what_changes_ends_and_begins() -> None:
    fold = fold_of(events_of((1, observed("GPU-a", "GPU-b")), (2, observed("GPU-b", "GPU-c")), (3, AllocationEnded())))
    assert rows(fold) == []
    assert ranges(fold) == [("GPU-a", hour(1), hour(2)), ("GPU-b", hour(1), hour(3)), ("GPU-c", hour(2), hour(3))]


def test_a_late_end_is_an_end() -> None:
    fold = fold_of(events_of((1, observed("GPU-a")), (5, observed("GPU-a")), (3, AllocationEnded())))
    assert ranges(fold) == [("GPU-a", hour(1), hour(3)), ("GPU-a", hour(5), None)]
    assert [row.since for row in rows(fold)] == [hour(5)]


def test_a_late_observation_joins_what_it_touches() -> None:
    fold = fold_of(
        events_of((1, observed("GPU-a")), (3, AllocationEnded()), (5, observed("GPU-a")), (3, observed("GPU-a")))
    )
    assert ranges(fold) == [("GPU-a", hour(1), None)]


def test_of_two_reports_of_one_time_the_one_recorded_later_holds() -> None:
    fold = fold_of(
        events_of((1, observed("GPU-a")), (1, observed("GPU-b")), (1, AllocationEnded()), (1, observed("GPU-c")))
    )
    assert ranges(fold) == [("GPU-c", hour(1), None)]


def test_a_different_report_for_the_last_time_considers_the_past() -> None:
    events = events_of((1, observed("GPU-a")), (3, observed("GPU-b")), (3, observed("GPU-a")))
    *log, again = log_of(events)
    fold = folded(AllocationsProjection(), log)
    tables = fold.state.tables()
    written = [row for table in tables.values() for row in table.take_changes().new if row[0] == TRAINER]
    assert ranges(fold) == [("GPU-b", hour(3), None)]
    fact = fact_of(fold, again)
    assert fact is not None
    assert {name for name, _, _ in fold.projection.touched(fold.state, fact)} == {
        "container_allocation_history",
        "container_allocation_report",
    }
    for name, _, _ in fold.projection.touched(fold.state, fact):
        tables[name].load(row for row in written if isinstance(row, tables[name].spec.row))
    fold.apply(again)
    assert ranges(fold) == [("GPU-a", hour(1), None)]


def test_nothing_observed_is_an_end() -> None:
    fold = fold_of(events_of((1, observed("GPU-a")), (2, observed())))
    assert ranges(fold) == [("GPU-a", hour(1), hour(2))]


@pytest.mark.parametrize(
    ("subject", "source"),
    [(TRAINER, "/nodes/n2/agent"), ("n2/ml/trainer-0/main", AGENT), ("n1", AGENT), ("n11/ml/trainer-0/main", AGENT)],
)
def test_an_agent_reports_on_its_own_node_only(subject: str, source: str) -> None:
    own = events_of((1, observed("GPU-a")))
    strange = events_of((2, observed("GPU-b")), (3, AllocationEnded()), subject=subject, source=source)
    foreign = [one._replace(number=one.number + 1) for one in strange]
    assert rows(fold_of([*own, *foreign])) == rows(fold_of(own))


def test_a_node_that_the_data_names_is_the_agents_own() -> None:
    stranger = observed("GPU-b").model_copy(update={"node": "n2"})
    assert rows(fold_of(events_of((1, stranger)))) == []


def test_an_index_holds_a_unit_whatever_an_agent_reports() -> None:
    long = "x" * NAME_LENGTH_MAX
    fold = fold_of(events_of((1, observed(f"{long[1:]}a", f"{long[1:]}b", resource=long))))
    one, other = rows(fold)
    assert one.unit != other.unit
    assert len(one.unit) == NAME_LENGTH_MAX
    assert {one.device, other.device} == {f"{long[1:]}a", f"{long[1:]}b"}
