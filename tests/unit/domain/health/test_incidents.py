"""What belongs to an incident, where it ends, and what a node has no room for."""

from itertools import permutations
from typing import Any

import pytest

from gpuledger.domain.fact import Fact
from gpuledger.domain.health import fold as health
from gpuledger.domain.health.incidents import CAUSE_LENGTH_MAX
from gpuledger.domain.health.own_reports import AGENT_CHECK, AGENT_MONITOR
from gpuledger.domain.health.rows import Incident
from gpuledger.events.device import DeviceDetached, DeviceErrorsObserved, DeviceFailed, DeviceHealthChanged
from gpuledger.events.envelope import Decoded
from gpuledger.events.health import CODES_MAX, HealthEntity, NodeHealthReported
from gpuledger.events.node import NodeGone
from gpuledger.events.payload import Payload
from gpuledger.events.publishing import Rule
from gpuledger.readmodels.projections import IncidentsProjection
from support.events import AGENT, IMPORT, INVENTORY, event, folded, hour, log_of
from support.health import card_report


def log(*facts: tuple[float, str, Payload, str]) -> list[Decoded]:
    """Facts at these hours, about these subjects, of these sources."""
    return [
        event(data, subject, number=number, at=at, source=source)
        for number, (at, subject, data, source) in enumerate(facts, 1)
    ]


def incidents(*facts: tuple[float, str, Payload, str]) -> list[Incident]:
    """The incidents that facts amount to, in the order of their beginnings."""
    fold = folded(IncidentsProjection(), log_of(log(*facts)), types=[NodeHealthReported])
    return sorted(fold.state.tables()["incident"].rows.values(), key=lambda row: (row.opened_at, row.entity))


def by_monitor(at: float, data: Payload) -> tuple[float, str, Payload, str]:
    return at, "n1", data, AGENT


def by_agent(at: float, data: Payload, card: str = "a") -> tuple[float, str, Payload, str]:
    return at, card, data, AGENT


def test_repeats_with_other_codes_belong_to_one_incident() -> None:
    (row,) = incidents(
        by_monitor(1, card_report("a", "119", message="Timeout of GSP", action="COMPONENT_RESET")),
        by_monitor(2, card_report("a", "94", message="Contained ECC error", count=3)),
        by_monitor(3, card_report("a", healthy=True)),
        by_monitor(4, card_report("a", healthy=True)),
    )
    assert (row.opened_at, row.last_at, row.ended_at, row.ended_by) == (hour(1), hour(2), hour(3), "healthy")
    assert (row.reports, row.codes, row.fatal, row.action) == (4, "119,94", True, "COMPONENT_RESET")
    assert (row.first_cause, row.last_cause) == ("Timeout of GSP", "Contained ECC error")


def test_an_incident_lasts_until_each_of_its_codes_is_cleared() -> None:
    (row,) = incidents(
        by_monitor(1, card_report("a", "119")),
        by_monitor(2, card_report("a", "94")),
        by_monitor(3, card_report("a", "119", healthy=True)),
        by_monitor(4, card_report("a", "94", healthy=True)),
    )
    assert (row.opened_at, row.ended_at, row.codes, row.standing) == (hour(1), hour(4), "119,94", "")
    (row,) = incidents(
        by_monitor(2, card_report("a", "94")),
        by_monitor(1, card_report("a", "119")),
        by_monitor(4, card_report("a", "119", healthy=True)),
        by_monitor(3, card_report("a", "119")),
    )
    assert (row.ended_at, row.standing) == (None, "94"), "late reports count at their times"


def test_a_report_without_codes_stands_until_all_are_cleared() -> None:
    (row,) = incidents(
        by_monitor(1, card_report("a")),
        by_monitor(2, card_report("a", "94")),
        by_monitor(3, card_report("a", "94", healthy=True)),
    )
    assert (row.ended_at, row.standing) == (None, "")
    (row,) = incidents(by_monitor(1, card_report("a")), by_monitor(3, card_report("a", healthy=True)))
    assert row.ended_at == hour(3)


@pytest.mark.parametrize("order", list(permutations(range(3))))
def test_of_one_time_a_code_is_cleared_and_another_stands_in_whatever_order(order: tuple[int, ...]) -> None:
    facts = [
        by_monitor(1, card_report("a", "119")),
        by_monitor(2, card_report("a", "119", healthy=True)),
        by_monitor(2, card_report("a", "94")),
    ]
    (row,) = incidents(*(facts[place] for place in order))
    assert (row.opened_at, row.ended_at, row.standing, row.reports) == (hour(1), None, "94", 2)
    (row,) = incidents(*(facts[place] for place in order), by_monitor(3, card_report("a", "94", healthy=True)))
    assert row.ended_at == hour(3)


def test_the_codes_of_all_cards_are_cleared_by_a_report_without_entities() -> None:
    whole = card_report("a", "119", healthy=True).model_copy(update={"entities": (), "devices": ()})
    rows = incidents(
        by_monitor(1, card_report("a", "119")), by_monitor(1, card_report("b", "94")), by_monitor(2, whole)
    )
    assert [(row.entity, row.ended_at) for row in rows] == [("a", hour(2)), ("b", None)]


def test_what_a_gateway_took_belongs_to_the_incidents_of_its_node_as_an_agents_does() -> None:
    (row,) = incidents(
        by_monitor(1, card_report("a", "79")),
        (2, "n1", card_report("a", "79"), "/gateways/health"),
        (3, "n1", card_report("a", healthy=True), "/gateways/health"),
    )
    assert (row.node, row.reports, row.ended_at) == ("n1", 2, hour(3))


def test_other_checks_and_cards_have_their_own_incidents() -> None:
    rows = incidents(
        by_monitor(1, card_report("a", "48")),
        by_monitor(1, card_report("b", "48")),
        by_monitor(1, card_report("a", "48", check="SXID")),
        by_monitor(2, card_report("a", healthy=True)),
    )
    assert [(row.entity, row.check_name, row.ended_at) for row in rows] == [
        ("a", "XID", hour(2)),
        ("a", "SXID", None),
        ("b", "XID", None),
    ]
    assert len({row.incident for row in rows}) == 3


def test_healthy_without_entities_ends_all_of_the_check() -> None:
    whole = NodeHealthReported(monitor="syslog", check="XID", healthy=True, fatal=False)
    rows = incidents(
        by_monitor(1, card_report("a", "48")),
        by_monitor(1, card_report("b", "48", check="SXID")),
        by_monitor(1.5, whole.model_copy(update={"healthy": False})),
        by_monitor(2, whole),
    )
    assert [(row.entity, row.ended_at) for row in rows] == [("a", hour(2)), ("b", None), ("", hour(2))]


def test_the_agents_verdicts_are_one_incident_of_a_card() -> None:
    (row,) = incidents(
        by_agent(1, DeviceFailed(kind="XID 79", message="fell off the bus")),
        by_agent(1, DeviceHealthChanged(healthy=False, kind="XID 79", message="fell off the bus")),
        by_agent(2, DeviceFailed(kind="XID 48")),
        by_agent(3, DeviceErrorsObserved(kind="XID 31", cause="hardware", first_at=hour(3))),
        by_agent(4, DeviceHealthChanged(healthy=True)),
    )
    assert (row.monitor, row.check_name, row.device) == (AGENT_MONITOR, AGENT_CHECK, "a")
    assert (row.codes, row.reports, row.ended_at, row.fatal) == ("XID 48,XID 79", 3, hour(4), True)


def test_failures_of_imports_begin_nothing() -> None:
    assert incidents((1, "a", DeviceFailed(kind="DBE"), IMPORT)) == []


def test_nodes_and_cards_that_leave_end_their_incidents() -> None:
    rows = incidents(
        by_monitor(1, card_report("a", "48")),
        by_monitor(1, card_report("b", "48")),
        (2, "a", DeviceDetached(name="g", slot="n1/0000:17:00.0"), INVENTORY),
        (2.5, "b", DeviceDetached(name="h", slot="n2/0000:17:00.0"), INVENTORY),
        (3, "n1", NodeGone(), "/watchers/nodes"),
        by_monitor(4, card_report("b", "48")),
    )
    assert [(row.entity, row.opened_at, row.ended_at, row.ended_by) for row in rows] == [
        ("a", hour(1), hour(2), "card-left"),
        ("b", hour(1), hour(3), "node-gone"),
        ("b", hour(4), None, None),
    ]


def test_an_id_stays_as_long_as_the_first_report_does() -> None:
    first = by_monitor(2, card_report("a", "48"))
    (alone,) = incidents(first)
    (with_others, _) = incidents(first, by_monitor(3, card_report("a", "79")), by_monitor(2.5, card_report("b", "48")))
    (earlier,) = incidents(first, by_monitor(1, card_report("a", "48")))
    assert alone.incident == with_others.incident != earlier.incident


def test_long_texts_and_many_codes_are_cut() -> None:
    codes = tuple(f"{number:03}" for number in range(CODES_MAX))
    (row,) = incidents(
        by_monitor(1, card_report("a", *codes, message="x" * 1000)), by_monitor(2, card_report("a", "zzz", "a,b"))
    )
    assert row.codes.split(",") == list(codes)
    assert row.first_cause == "x" * CAUSE_LENGTH_MAX


def fold_with_bounds(state: Any, *events: Decoded) -> None:
    for position, one in enumerate(events, 1):
        health.HANDLERS[type(one.data)](state, Fact(one, position, 0, (Rule.BOUNDS,)), one.data)


def test_a_node_has_room_for_so_many_incidents(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(health, "OPEN_OF_NODE_MAX", 3)
    state = IncidentsProjection().new_state()
    many = card_report("a", "48").model_copy(
        update={"entities": tuple(HealthEntity(type="NVLINK", value=str(number)) for number in range(5))}
    )
    healthy = many.model_copy(update={"healthy": True, "entities": many.entities[:1]})
    reports = [by_monitor(1, many), by_monitor(2, many), by_monitor(3, healthy), by_monitor(4, many)]
    fold_with_bounds(state, *log(*reports))
    rows = state.tables()["incident"].rows.values()
    assert {(row.entity, row.reports) for row in rows if row.ended_at is None} == {
        ("NVLINK/0", 1),
        ("NVLINK/1", 3),
        ("NVLINK/2", 3),
    }


def test_a_node_has_room_for_so_many_checks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(health, "CHECKS_OF_NODE_MAX", 2)
    state = IncidentsProjection().new_state()
    reports = [by_monitor(number, card_report("a", "48", check=f"check-{number % 4}")) for number in range(8)]
    fold_with_bounds(state, *log(*reports))
    assert {row.check_name for row in state.tables()["health_check"].rows.values()} == {"check-0", "check-1"}
