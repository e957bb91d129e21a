"""The actions that verdicts on cards recommend."""

import pytest

from gpuledger.agent.hardware.api import Readings
from gpuledger.agent.health.card import CardHealth, Rules
from gpuledger.agent.health.cards import NodeCards, with_survey
from gpuledger.agent.health.decide import on_readings
from gpuledger.agent.health.severity import DEFAULT_CLASSES
from gpuledger.agent.health.state import dump, load
from gpuledger.events.device import DeviceFailed, DeviceHealthChanged
from support.agent_parts import CARD, NODE, PLACE, SURVEY, UUID, moment

RULES = Rules(NODE)
HEALTHY = CardHealth(PLACE, UUID, is_reported=True)


@pytest.mark.parametrize(
    ("action", "numbers"),
    [
        ("COMPONENT_RESET", [46, 48, 62, 63, 74, 94, 95, 110, 119, 120, 136, 140, 143, 156, 158]),
        ("RESTART_BM", [79]),
        ("RESTART_VM", [151]),
        ("NONE", [13, 31, 43, 45, 68, 109]),
        ("CONTACT_SUPPORT", [0, 64, 92, 137, 150, 154, 171, 172, 200]),
    ],
)
def test_an_xid_has_the_action_that_mends_it_and_one_that_is_not_clear_has_a_person_look(
    action: str, numbers: list[int]
) -> None:
    assert {DEFAULT_CLASSES.xid(number).action for number in numbers} == {action}


@pytest.mark.parametrize(
    ("readings", "kind", "action"),
    [
        (None, "OffTheBus", "RESTART_BM"),
        (Readings(recovery="GpuReset"), "RecoveryNeeded", "COMPONENT_RESET"),
        (Readings(recovery="DrainAndReset"), "RecoveryNeeded", "COMPONENT_RESET"),
        (Readings(recovery="NodeReboot"), "RecoveryNeeded", "RESTART_BM"),
        (Readings(recovery="SystemReboot"), "RecoveryNeeded", "RESTART_BM"),
        (Readings(remap_failed=True), "RemapFailed", "CONTACT_SUPPORT"),
        (Readings(sram_threshold_exceeded=True), "SramThresholdExceeded", "CONTACT_SUPPORT"),
    ],
)
def test_the_verdict_on_a_card_recommends_what_mends_its_fault(
    readings: Readings | None, kind: str, action: str
) -> None:
    decision = on_readings(HEALTHY, readings, moment(1), RULES)
    named = [
        (type(data), data.kind, data.action)
        for data in (fact.data for fact in decision.facts)
        if isinstance(data, DeviceFailed | DeviceHealthChanged)
    ]
    assert named == [(DeviceFailed, kind, action), (DeviceHealthChanged, kind, action)]
    stored = load(dump(NodeCards({PLACE: decision.card})), moment(2))
    again = with_survey(stored, SURVEY).here[CARD.address]
    (repeated,) = on_readings(again, readings, moment(3), RULES).facts
    assert isinstance(repeated.data, DeviceHealthChanged)
    assert (repeated.data.kind, repeated.data.action) == (kind, action), "a restarted agent recommends the same"
