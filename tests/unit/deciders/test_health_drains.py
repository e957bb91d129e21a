"""Drains of cards that rules request: for the cards whose faults stand, and no wider where nobody names one."""

from typing import Any

import pytest

from gpuledger.deciders.health.decide import NO_CARD
from gpuledger.events.envelope import Decoded, encode, parse, with_payload
from gpuledger.events.maintenance import NodeMaintenanceReleased, NodeMaintenanceRequested
from support.events import START
from support.quarantine import QuarantineLog, given_back, reported, rules

ONE, TWO = "GPU-1111", "GPU-2222"
OF_CARDS: dict[str, Any] = {
    "name": "Cards",
    "match": {"all": [{"expression": "event.isFatal"}]},
    "drain": {"mode": "Immediate"},
    "drain_scope": "device",
}


def begun(**breaker: int) -> QuarantineLog:
    return QuarantineLog("n1", "n2", "n3", document=rules(OF_CARDS, **breaker))


def card(uuid: str, *, healthy: bool = False, **fields: Any) -> Any:
    return reported(healthy=healthy, entities=[{"type": "GPU_UUID", "value": uuid}], **fields)


def drained(decided: list[Decoded]) -> list[tuple[str, ...] | None]:
    """The cards of each request that was decided; None: it drains nothing."""
    data = [one.data for one in decided if isinstance(one.data, NodeMaintenanceRequested)]
    return [one.drain.devices if one.drain else None for one in data]


def test_a_request_drains_the_card_that_is_reported() -> None:
    log = begun()
    (request,) = log.record("n1", card(ONE), 10)
    assert isinstance(request.data, NodeMaintenanceRequested)
    assert (drained([request]), request.data.cordon) == ([(ONE,)], False)


def test_another_card_of_the_node_joins_and_one_that_is_healthy_leaves() -> None:
    log = begun()
    log.record("n1", card(ONE), 10)
    assert drained(log.record("n1", card(ONE), 11)) == []
    assert drained(log.record("n1", card(TWO), 12)) == [(ONE, TWO)]
    assert drained(log.record("n1", card(ONE, check="Thermal"), 13)) == []
    assert log.record("n1", card(ONE, healthy=True), 14) == [], "another fault of it stands"
    assert drained(log.record("n1", card(ONE, healthy=True, check="Thermal"), 15)) == [(TWO,)]
    (release,) = log.record("n1", card(TWO, healthy=True), 16)
    assert isinstance(release.data, NodeMaintenanceReleased)


def test_a_report_without_uuid_drains_nothing_and_says_so() -> None:
    log = begun()
    (request,) = log.record("n1", reported("0"), 10)
    assert isinstance(request.data, NodeMaintenanceRequested)
    assert (request.data.drain, request.data.cordon, NO_CARD in request.data.message) == (None, False, True)
    assert drained(log.record("n1", card(ONE), 11)) == [(ONE,)]


@pytest.mark.parametrize("name", ["GPU-" + "a" * 236 + "\u20ac" * 10, "GPU-" + "a" * 200, "GPU-1 and others", "GPU-"])
def test_what_cannot_be_a_uuid_drains_nothing_and_stops_nobody(name: str) -> None:
    log = begun()
    (request,) = log.record("n1", card(name), 10)
    assert isinstance(request.data, NodeMaintenanceRequested)
    assert (request.data.drain, NO_CARD in request.data.message) == (None, True)
    assert with_payload(parse(encode(request))).data == request.data


def test_a_card_that_is_healthy_is_drained_no_longer_though_an_old_fault_keeps_the_request() -> None:
    log = begun()
    log.record("n1", card(ONE), 5000)
    assert log.record("n1", card(TWO, first_at=START), 5001) == []
    assert log.fault_states("n1") == ["accepted", "stale"]
    assert drained(log.record("n1", card(ONE, healthy=True), 5002)) == [None]
    (release,) = log.record("n1", card(TWO, healthy=True), 5003)
    assert isinstance(release.data, NodeMaintenanceReleased)


def test_an_open_breaker_holds_further_cards_back() -> None:
    log = begun(percentage=34)
    log.record("n1", card(ONE), 10)
    log.record("n2", card("GPU-3333"), 11)
    assert log.state.is_open()
    assert log.record("n1", card(TWO), 12) == []
    assert sorted(log.fault_states("n1")) == ["accepted", "held"]
    decided = log.reset(13)
    assert (ONE, TWO) in drained(decided)


def test_a_request_that_a_person_has_released_is_not_made_for_fewer_cards() -> None:
    log = begun()
    log.record("n1", card(ONE), 10)
    log.record("n1", card(TWO), 11)
    log.record("n1", given_back("health/Cards"), 12)
    assert log.record("n1", card(ONE, healthy=True), 13) == []


def test_other_rules_leave_a_request_as_it_is() -> None:
    log = begun()
    log.record("n1", card(ONE), 10)
    log.record("n1", card(TWO), 11)
    log.record("default", rules(OF_CARDS).model_copy(update={"digest": "b" * 64}), 12)
    assert log.record("n1", card(ONE, healthy=True), 13) == []


def test_a_fold_of_the_log_decides_the_same() -> None:
    log = begun()
    for second, data in enumerate((card(ONE), card(TWO), card(ONE, healthy=True)), 10):
        log.record("n1", data, second)
    again = log.new_fold()
    again.apply_all(log.messages())
    assert {name: dict(table.rows) for name, table in again.state.tables().items()} == {
        name: dict(table.rows) for name, table in log.state.tables().items()
    }
