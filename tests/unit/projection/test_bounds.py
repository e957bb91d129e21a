"""`Rule.BOUNDS`: from its position on, what hostile agents make folds keep is bounded."""

from collections import Counter

import pytest

from gpuledger.deciders.bootstrap.projection import BootstrapProjection
from gpuledger.deciders.sources.projection import SourcesProjection
from gpuledger.domain.bootstrap.observations import HEALTH_OF_NODE_MAX
from gpuledger.domain.devices.fold import ERRORS_OF_NODE_MAX
from gpuledger.domain.workloads import allocations as bounded
from gpuledger.events.allocation import (
    UNITS_OF_CONTAINER_MAX,
    UNITS_OF_NODE_MAX,
    AllocatedClaim,
    AllocatedDevices,
    AllocationEnded,
    AllocationObserved,
)
from gpuledger.events.device import DeviceErrorsObserved, DeviceHealthChanged, DeviceReportAccepted
from gpuledger.events.envelope import Decoded
from gpuledger.events.payload import Payload
from gpuledger.events.publishing import Rule
from gpuledger.events.rule import RuleEnforced
from gpuledger.events.source import SourceRejected
from gpuledger.projection.fold import Fold
from gpuledger.readmodels.projections import AllocationsProjection, DevicesProjection
from support.events import AGENT, GENERATION, START, event, folded, hour, log_of, rows_of

UNFIT = DeviceHealthChanged(healthy=False, kind="XID 79")
BOUNDS = event(RuleEnforced(), Rule.BOUNDS, source="/services/sources")


def holding(resources: int, devices: int, claims: int = 0, *, node: str = "n1") -> AllocationObserved:
    """A container with so many units of each resource, and so many claims."""
    units = tuple(map(str, range(devices)))
    return AllocationObserved(
        node=node,
        namespace="ns",
        pod="p",
        container="c",
        resources=tuple(AllocatedDevices(resource=f"r{one}", devices=units) for one in range(resources)),
        claims=tuple(AllocatedClaim(claim="c", driver="d", pool="p", device=str(one)) for one in range(claims)),
    )


def fact(number: int, data: Payload, container: str = "c", *, node: str = "n1") -> Decoded:
    """A fact of a node's agent about a container, in the hour of its number."""
    return event(data, f"{node}/ns/p/{container}", number=number, at=number, source=f"/nodes/{node}/agent")


def allocations(*events: Decoded) -> Fold:
    return folded(AllocationsProjection(), log_of(events))


def units(fold: Fold) -> dict[str, int]:
    """How many units each container has now."""
    return dict(Counter(allocation for allocation, _ in fold.state.tables()["container_allocation"].rows))


@pytest.mark.parametrize("data", [holding(2, 2048, 1), holding(1, 1, 4096)], ids=["devices", "claims"])
def test_more_units_than_a_container_may_hold_are_rejected_from_the_rule_on(data: AllocationObserved) -> None:
    before, after = fact(1, data), fact(2, data, "other")
    assert units(allocations(before, BOUNDS, after)) == {before.subject: data.units}
    fold = folded(SourcesProjection(), log_of([before, BOUNDS, after]))
    (rejected,) = [one.data for one in fold.take_decided()]
    assert isinstance(rejected, SourceRejected)
    assert (rejected.sequence, rejected.reason) == (3, data.excess())
    assert fold.state.tables()["source"].rows[AGENT, "e1"].rejected == 1


def test_a_container_may_hold_as_many_units_as_the_bound() -> None:
    full = fact(1, holding(2, 2047, 2))
    assert units(allocations(BOUNDS, full)) == {full.subject: UNITS_OF_CONTAINER_MAX}
    assert folded(SourcesProjection(), log_of([BOUNDS, full])).take_decided() == []


FULL = [fact(number, holding(1, UNITS_OF_CONTAINER_MAX), f"c{number}") for number in range(1, 5)]
"""The reports that give a node as many units as it may hold."""

ALL = dict.fromkeys((one.subject for one in FULL), UNITS_OF_CONTAINER_MAX)


def without(*containers: Decoded) -> dict[str, int]:
    return {subject: held for subject, held in ALL.items() if subject not in {one.subject for one in containers}}


def test_the_container_whose_report_is_the_oldest_makes_room_on_a_full_node() -> None:
    assert sum(ALL.values()) == UNITS_OF_NODE_MAX
    more, elsewhere = fact(5, holding(1, 1), "more"), fact(5, holding(1, 1, node="n2"), node="n2")
    assert units(allocations(BOUNDS, *FULL, more)) == {**without(FULL[0]), more.subject: 1}
    assert units(allocations(BOUNDS, *FULL, elsewhere)) == {**ALL, elsewhere.subject: 1}
    assert units(allocations(*FULL, BOUNDS, more)) == {**without(FULL[0]), more.subject: 1}
    assert units(allocations(*FULL, more, BOUNDS)) == {**ALL, more.subject: 1}


def test_a_container_that_is_reported_again_is_not_the_oldest() -> None:
    again, more = fact(5, holding(1, UNITS_OF_CONTAINER_MAX), "c1"), fact(6, holding(1, 1), "more")
    assert units(allocations(BOUNDS, *FULL, again)) == ALL
    assert units(allocations(BOUNDS, *FULL, again, more)) == {**without(FULL[1]), more.subject: 1}


def test_a_full_node_takes_what_replaces_its_own_units() -> None:
    ended, more = fact(5, AllocationEnded(), "c1"), fact(6, holding(1, 9), "more")
    assert units(allocations(BOUNDS, *FULL, ended, more)) == {**without(ended), more.subject: 9}


@pytest.mark.parametrize("at", [6, 0.5])
def test_a_container_that_makes_room_has_a_past_and_may_be_reported_again(at: float) -> None:
    """It ends with the event that takes its room, or with its own last report if that is of a later time."""
    more = event(holding(1, 1), "n1/ns/p/more", number=5, at=at, source=AGENT)
    fold = allocations(BOUNDS, *FULL, more)
    history = fold.state.tables()["container_allocation_history"].rows.values()
    (first,) = [one for one in FULL if one.subject not in units(fold)]
    past = [(row.valid_from, row.valid_to) for row in history if row.allocation == first.subject]
    assert past == [(hour(1), hour(at))] * UNITS_OF_CONTAINER_MAX if at > 1 else past == []
    again = fact(7, holding(1, 2), "c1")
    assert units(allocations(BOUNDS, *FULL, more, again)) == {
        **without(first),
        more.subject: 1,
        first.subject: 2,
    }


def test_a_node_whose_ends_of_containers_were_lost_has_the_last_reported() -> None:
    """An agent that loses its state with every boot reports no ends, and containers with new names."""
    boots, of_boot, units_each = 5, 8, UNITS_OF_NODE_MAX // 32
    names = [f"c{boot}-{one}" for boot in range(boots) for one in range(of_boot)]
    reports = [fact(number, holding(1, units_each), name) for number, name in enumerate(names, 1)]
    last = {one.subject: units_each for one in reports[-32:]}
    assert units(allocations(BOUNDS, *reports)) == last


def test_a_restart_makes_room_by_the_order_of_the_log(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounded, "UNITS_OF_NODE_MAX", 4)
    names = ["c1", "c2", "c3", "c4", "c2", "more", "another", "c1"]
    reports = [fact(number, holding(1, 1), name) for number, name in enumerate(names, 1)]
    late = reports[2]._replace(id="late", number=len(reports) + 1, time=hour(2))
    log = log_of([BOUNDS, *reports[:5], late, *reports[5:]])
    whole = folded(AllocationsProjection(), log)
    assert set(units(whole)) == {f"n1/ns/p/{name}" for name in ("c2", "more", "another", "c1")}
    for at in range(len(log)):
        first, state = folded(AllocationsProjection(), log[:at]), AllocationsProjection().new_state()
        for name, table in first.state.tables().items():
            state.tables()[name].load(sorted(table.rows.values(), reverse=True))
        rest = Fold(AllocationsProjection(), GENERATION, state=state, seen=first.seen, enforced=first.enforced)
        rest.apply_all(log[at:])
        assert rows_of(rest) == rows_of(whole)


def accepted(number: int, data: Payload, card: str, *, node: str = "n1") -> Decoded:
    """The verdict that makes folds hear a report of a node's agent on a card, in the hour of its number."""
    content = data.model_dump(mode="json", exclude_none=True)
    verdict = DeviceReportAccepted(node=node, report="r", type=data.TYPE, epoch="e", number=number, data=content)
    return event(verdict, card, number=number, at=number, source="/services/inventory")


def test_the_health_of_so_many_cards_of_a_node_is_kept_and_that_of_the_last_reported() -> None:
    reports = [
        accepted(number, DeviceHealthChanged(healthy=True), f"card-{number}")
        for number in range(1, HEALTH_OF_NODE_MAX + 1)
    ]
    end = len(reports)
    again, elsewhere = accepted(end + 1, UNFIT, "card-1"), accepted(end + 2, UNFIT, "card-1", node="n2")
    more = accepted(end + 3, UNFIT, "new")
    rows = (
        folded(BootstrapProjection(), log_of([BOUNDS, *reports, again, elsewhere, more]))
        .state.tables()["bootstrap_health"]
        .rows
    )
    cards = {*(one.subject for one in reports), "new"} - {"card-2"}
    assert set(rows) == {*(("n1", card) for card in cards), ("n2", "card-1")}
    rows = (
        folded(BootstrapProjection(), log_of([*reports, again, elsewhere, more, BOUNDS]))
        .state.tables()["bootstrap_health"]
        .rows
    )
    assert len(rows) == HEALTH_OF_NODE_MAX + 2


def test_so_many_kinds_of_errors_of_a_node_are_counted_and_the_latest() -> None:
    reports = [
        accepted(number, DeviceErrorsObserved(kind=f"XID {number}", cause="hardware", first_at=START), "GPU-a")
        for number in range(1, ERRORS_OF_NODE_MAX + 2)
    ]
    late = reports[0]._replace(id="late", number=len(reports) + 1)
    rows = folded(DevicesProjection(), log_of([BOUNDS, *reports, late])).state.tables()["device_errors"].rows
    assert {kind for _, kind, _, _ in rows} == {f"XID {number}" for number in range(2, ERRORS_OF_NODE_MAX + 2)}
    rows = folded(DevicesProjection(), log_of([*reports, late, BOUNDS])).state.tables()["device_errors"].rows
    assert len(rows) == ERRORS_OF_NODE_MAX + 1
