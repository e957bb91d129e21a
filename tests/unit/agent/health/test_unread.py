"""A reading that the driver fails to give shows neither a fault nor its end."""

import pytest

from gpuledger.agent.hardware.api import Readings, Unread
from gpuledger.agent.health.card import CLEAR_AFTER_S, THROTTLE_S, CardHealth, Rules
from gpuledger.agent.health.cards import NodeCards, with_survey
from gpuledger.agent.health.decide import HealthDecision, on_error, on_readings
from gpuledger.agent.health.severity import DEFAULT_CLASSES
from gpuledger.agent.health.state import dump, load
from gpuledger.agent.health.symptoms import READINGS_OF, symptoms_of, undecided
from gpuledger.agent.part import AgentFact
from gpuledger.events.device import DeviceHealthChanged
from support.agent_parts import NODE, PLACE, SURVEY, UUID, moment

RULES = Rules(NODE)
HEALTHY = CardHealth(PLACE, UUID, is_reported=True)
FAILED, WELL = Readings(remap_failed=True), Readings(remap_failed=False)
UNREAD = Readings(unread=(Unread("remap_failed", "Unknown Error"),))
UNCOUNTED = Readings(unread=(Unread("ecc_uncorrected_volatile", "Unknown Error"),))


def poll(card: CardHealth, readings: Readings | None, at_s: float) -> HealthDecision:
    return on_readings(card, readings, moment(at_s), RULES)


def is_healthy(facts: tuple[AgentFact, ...]) -> list[bool]:
    """The verdicts in some facts."""
    return [fact.data.healthy for fact in facts if isinstance(fact.data, DeviceHealthChanged)]


@pytest.mark.parametrize("is_restarted", [False, True])
def test_a_fault_stands_until_its_reading_is_there_again(is_restarted: bool) -> None:
    card, _ = poll(HEALTHY, FAILED, 0)
    if is_restarted:
        card = with_survey(load(dump(NodeCards({PLACE: card})), moment(1)), SURVEY).here[PLACE]
    for second in range(5, 2_000, 5):
        card, _ = poll(card, UNREAD, second)
        assert [fault.kind for fault in card.faults] == ["RemapFailed"]
    card, facts = poll(card, WELL, 2_000)
    assert not facts, "two polls in a row have to be without it"
    assert is_healthy(poll(card, WELL, 2_005).facts) == [True]


def test_a_fault_that_has_to_stay_away_for_long_does_not_clear_meanwhile() -> None:
    card = HEALTHY
    for began_s in (0, 100, 200):
        card, _ = poll(card, FAILED, began_s)
        card, _ = poll(card, WELL, began_s + 5)
        card, _ = poll(card, WELL, began_s + 10)
    assert card.faults[0].clear_after_s == CLEAR_AFTER_S
    card, _ = poll(card, UNREAD, 200 + CLEAR_AFTER_S)
    card, facts = poll(card, WELL, 205 + CLEAR_AFTER_S)
    assert not facts
    assert is_healthy(poll(card, WELL, 210 + CLEAR_AFTER_S).facts) == [True]


@pytest.mark.parametrize("fault", [Readings(recovery="GpuReset"), None])
def test_other_faults_clear(fault: Readings | None) -> None:
    card, _ = poll(HEALTHY, fault, 0)
    card, _ = poll(card, UNREAD, 5)
    assert is_healthy(poll(card, UNREAD, 10).facts) == [True]


def test_a_warning_is_neither_reported_nor_over_meanwhile() -> None:
    slow, unread = Readings(throttled=frozenset({"HwThermalSlowdown"})), Readings(unread=(Unread("throttled", "no"),))
    card, _ = poll(HEALTHY, slow, 0)
    card, facts = poll(card, unread, THROTTLE_S)
    assert not facts
    card, facts = poll(card, slow, THROTTLE_S + 5)
    assert len(facts) == 1
    card, facts = poll(card, unread, THROTTLE_S + 10)
    assert not facts
    assert len(poll(card, Readings(), THROTTLE_S + 15).facts) == 1


def test_errors_that_were_counted_meanwhile_are_reported_afterwards() -> None:
    card, _ = poll(HEALTHY, Readings(ecc_uncorrected_volatile=2), 0)
    for second in (5, 10):
        card, facts = poll(card, UNCOUNTED, second)
        assert not facts
    _, (errors,) = poll(card, Readings(ecc_uncorrected_volatile=5), 15)
    assert (errors.data.kind, errors.data.count) == ("EccUncorrected", 3)  # type: ignore[attr-defined]


def test_a_reset_meanwhile_is_noticed_afterwards() -> None:
    card, _ = poll(HEALTHY, Readings(ecc_uncorrected_volatile=2), 0)
    card, _ = on_error(card, DEFAULT_CLASSES.xid(95), moment(1), RULES)
    card, _ = poll(card, UNCOUNTED, 5)
    assert is_healthy(poll(card, Readings(ecc_uncorrected_volatile=0), 10).facts) == [True]


def test_every_symptom_that_lasts_is_undecided_without_its_reading() -> None:
    bad = Readings(
        remap_pending=True,
        remap_failed=True,
        sram_threshold_exceeded=True,
        throttled=frozenset({"HwThermalSlowdown", "HwPowerBrakeSlowdown"}),
        nvlinks_down=(1,),
    )
    shown = {
        symptom.kind
        for readings in (bad._replace(recovery="GpuReset"), bad._replace(recovery="DrainP2P"))
        for symptom in symptoms_of(readings, DEFAULT_CLASSES)
    }
    assert shown == READINGS_OF.keys()
    for kind, reading in READINGS_OF.items():
        assert kind in undecided(Readings(unread=(Unread(reading, "no"),)))
        without = Readings(**(bad._asdict() | {reading: Readings._field_defaults[reading]}))
        assert kind not in {one.kind for one in symptoms_of(without, DEFAULT_CLASSES)}
