"""`Rule.BOUNDS`: from its position on, what hostile agents make folds keep is bounded."""

from collections import Counter

import pytest

from gpuledger.deciders.sources.projection import SourcesProjection
from gpuledger.events.allocation import (
    UNITS_OF_CONTAINER_MAX,
    UNITS_OF_NODE_MAX,
    AllocatedClaim,
    AllocatedDevices,
    AllocationEnded,
    AllocationObserved,
)
from gpuledger.events.envelope import Decoded
from gpuledger.events.payload import Payload
from gpuledger.events.publishing import Rule
from gpuledger.events.rule import RuleEnforced
from gpuledger.events.source import SourceRejected
from gpuledger.projection.fold import Fold
from gpuledger.readmodels.projections import AllocationsProjection
from support.events import AGENT, event, folded, log_of

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


def test_a_container_holds_nothing_that_its_node_has_no_room_for() -> None:
    assert sum(ALL.values()) == UNITS_OF_NODE_MAX
    more, elsewhere = fact(5, holding(1, 1), "more"), fact(5, holding(1, 1, node="n2"), node="n2")
    assert units(allocations(BOUNDS, *FULL, more)) == ALL
    assert units(allocations(BOUNDS, *FULL, elsewhere)) == {**ALL, elsewhere.subject: 1}
    assert units(allocations(*FULL, BOUNDS, more)) == ALL
    assert units(allocations(*FULL, more, BOUNDS)) == {**ALL, more.subject: 1}


def test_a_full_node_takes_what_replaces_its_own_units() -> None:
    again = fact(5, holding(1, UNITS_OF_CONTAINER_MAX), "c1")
    assert units(allocations(BOUNDS, *FULL, again)) == ALL
    ended, more = fact(5, AllocationEnded(), "c1"), fact(6, holding(1, 9), "more")
    rest = {subject: held for subject, held in ALL.items() if subject != ended.subject}
    assert units(allocations(BOUNDS, *FULL, ended, more)) == {**rest, more.subject: 9}


def test_a_container_that_grows_beyond_its_nodes_room_holds_nothing() -> None:
    small, grown = fact(5, holding(1, 9), "c4"), fact(6, holding(1, 10), "c4")
    room = fact(7, holding(1, UNITS_OF_CONTAINER_MAX - 9), "more")
    rest = {one.subject: UNITS_OF_CONTAINER_MAX for one in FULL[:3]}
    assert units(allocations(BOUNDS, *FULL, small, room, grown._replace(number=8))) == {
        **rest,
        room.subject: UNITS_OF_CONTAINER_MAX - 9,
    }
