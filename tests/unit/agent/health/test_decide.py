"""The severity of errors, the symptoms in readings, and what follows for a card."""

from dataclasses import replace

import pytest

from gpuledger.agent.hardware.api import Readings
from gpuledger.agent.health.aggregation import BURST_S, KINDS_MAX
from gpuledger.agent.health.card import CLEAR_AFTER_MAX_S, CLEAR_AFTER_S, REPEATED_S, THROTTLE_S, CardHealth, Rules
from gpuledger.agent.health.cards import NodeCards, with_decision, with_survey
from gpuledger.agent.health.decide import HealthDecision, mark_absent, on_error, on_readings, on_time
from gpuledger.agent.health.severity import DEFAULT_CLASSES, Severity, parse_classes
from gpuledger.agent.health.state import HealthStateError, dump, load
from gpuledger.agent.part import AgentFact
from gpuledger.events.device import DeviceErrorsObserved, DeviceFailed, DeviceHealthChanged
from gpuledger.runtime.settings import SettingsError
from support.agent_parts import CARD, NODE, PLACE, SURVEY, UUID, moment

RULES = Rules(NODE)
HEALTHY = CardHealth(PLACE, UUID, is_reported=True)
WELL = Readings(ecc_corrected_volatile=0, ecc_uncorrected_volatile=0)
SLOT = f"{NODE}/{PLACE}"


def strike(card: CardHealth, number: int, at_s: float, rules: Rules = RULES) -> HealthDecision:
    return on_error(card, rules.classes.xid(number), moment(at_s), rules)


def look(card: CardHealth, readings: Readings | None, at_s: float, rules: Rules = RULES) -> HealthDecision:
    return on_readings(card, readings, moment(at_s), rules)


def brief(facts: tuple[AgentFact, ...]) -> list[str]:
    """What was told, in a word each."""
    return [_brief(fact) for fact in facts]


def _brief(fact: AgentFact) -> str:
    match fact.data:
        case DeviceFailed():
            return f"failed {fact.data.kind}"
        case DeviceHealthChanged():
            return "fit" if fact.data.healthy else f"unfit {fact.data.kind}"
        case DeviceErrorsObserved():
            return f"{fact.data.count} {fact.data.kind} {fact.data.cause}"
    return "?"


@pytest.mark.parametrize("number", [13, 31, 43, 45, 68, 109])
def test_errors_of_applications_are_reported_as_theirs(number: int) -> None:
    assert DEFAULT_CLASSES.xid(number).severity is Severity.APPLICATION


@pytest.mark.parametrize("number", [46, 48, 62, 64, 74, 79, 95, 110, 119, 120, 136, 140, 143, 151, 156, 158])
def test_what_needs_a_reset_makes_a_card_unusable(number: int) -> None:
    assert DEFAULT_CLASSES.xid(number).severity is Severity.FAULT


@pytest.mark.parametrize("number", [0, 8, 63, 92, 94, 137, 144, 150, 154, 155, 171, 172, 200, 1_000_000])
def test_everything_else_is_a_warning(number: int) -> None:
    symptom = DEFAULT_CLASSES.xid(number)
    assert (symptom.kind, symptom.severity) == (f"XID {number}", Severity.WARNING)
    assert symptom.message


def test_settings_report_otherwise() -> None:
    classes = parse_classes(" 79=warning, 31=fault,63=ignore ,NvlinkDown=fault,,")
    assert [classes.xid(number).severity.value for number in (79, 31, 63, 48)] == [
        "warning",
        "fault",
        "ignore",
        "fault",
    ]
    assert classes.reading("NvlinkDown").severity is Severity.FAULT
    assert parse_classes("").xid(79).severity is Severity.FAULT


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("79", "has no class; give"),
        ("79=bad", "'bad' is not a class"),
        ("79=", "is not a class"),
        ("x=fault", "neither an XID's number nor one of"),
        ("-1=fault", "neither an XID's number"),
        ("٧٩=fault", "neither an XID's number"),
        ("79=fault,079=warning", "79 is given twice"),
        ("NvlinkDown=fault,NvlinkDown=fault", "given twice"),
        ("OffTheBus=application", "never an application's"),
    ],
)
def test_settings_that_cannot_be_read_report_why(text: str, message: str) -> None:
    with pytest.raises(SettingsError, match=message):
        parse_classes(text)


def test_a_fault_is_reported_at_once_with_where_the_card_is() -> None:
    decision = strike(HEALTHY, 79, 5)
    assert brief(decision.facts) == ["failed XID 79", "unfit XID 79"]
    assert {fact.subject for fact in decision.facts} == {UUID}
    failed, _ = (fact.data for fact in decision.facts)
    assert isinstance(failed, DeviceFailed)
    assert failed.slot == SLOT
    assert decision.facts[0].time == moment(5).at


def test_a_card_without_a_uuid_is_reported_by_its_place_and_recovers_under_it() -> None:
    card, facts = look(CardHealth(PLACE), None, 0)
    assert {fact.subject for fact in facts} == {SLOT}
    card = with_survey(NodeCards({PLACE: card}), SURVEY).here[PLACE]
    card, _ = look(card, WELL, 5)
    card, facts = look(card, WELL, 10)
    assert [(fact.subject, _brief(fact)) for fact in facts] == [(SLOT, "fit")]
    assert strike(card, 48, 20).facts[0].subject == UUID


def test_repeats_while_unfit_are_counted_and_other_kinds_are_failures_of_their_own() -> None:
    card, _ = strike(HEALTHY, 95, 0)
    for second in range(1, 9):
        card, facts = strike(card, 95, second)
        assert not facts
    card, facts = strike(card, 48, 9)
    assert brief(facts) == ["failed XID 48"]
    card, facts = on_time(card, moment(BURST_S), RULES)
    assert brief(facts) == ["8 XID 95 hardware"]
    assert isinstance(facts[0].data, DeviceErrorsObserved)
    assert (facts[0].data.first_at, facts[0].time) == (moment(1).at, moment(8).at)


def test_a_quiet_window_doubles_with_each_fault_of_the_kind_and_is_bounded() -> None:
    card, at_s, windows = HEALTHY, 0.0, []
    for _ in range(8):
        card, _ = strike(card, 95, at_s)
        began_s = at_s
        while card.faults:
            at_s += 5
            card, _ = look(card, WELL, at_s)
        windows.append(at_s - began_s)
    assert windows[:4] == [CLEAR_AFTER_S, 2 * CLEAR_AFTER_S, 4 * CLEAR_AFTER_S, 8 * CLEAR_AFTER_S]
    assert windows[-1] == CLEAR_AFTER_MAX_S
    card, _ = strike(card, 95, at_s + REPEATED_S)
    assert card.faults[0].clear_after_s == CLEAR_AFTER_S


def test_a_further_fault_of_the_kind_begins_the_quiet_anew() -> None:
    card, _ = strike(HEALTHY, 95, 0)
    card, _ = strike(card, 95, CLEAR_AFTER_S - 1)
    card, facts = look(card, WELL, CLEAR_AFTER_S + 1)
    assert not facts
    assert brief(look(card, WELL, 2 * CLEAR_AFTER_S).facts) == ["fit"]


def test_a_card_is_fit_at_once_when_its_counters_went_back() -> None:
    card, _ = look(HEALTHY, Readings(ecc_uncorrected_volatile=3), 0)
    card, _ = strike(card, 95, 1)
    card, facts = look(card, Readings(ecc_uncorrected_volatile=4), 5)
    assert brief(facts) == ["1 EccUncorrected hardware"]
    assert brief(look(card, WELL, 10).facts) == ["fit"]


def test_a_card_is_fit_when_its_driver_was_loaded_anew() -> None:
    card, _ = look(HEALTHY, WELL, 0)
    card, _ = strike(card, 119, 1)
    card = mark_absent(card)
    assert brief(look(card, WELL, 10).facts) == ["fit"]


def test_what_readings_show_ends_when_two_polls_in_a_row_do_not() -> None:
    card, facts = look(HEALTHY, Readings(remap_failed=True), 0)
    assert brief(facts) == ["failed RemapFailed", "unfit RemapFailed"]
    recorded = []
    for second, failed in enumerate([True, False, True, False, False], 1):
        card, facts = look(card, Readings(remap_failed=failed), 5 * second)
        recorded.append(brief(facts))
    assert recorded == [[], [], [], [], ["fit"]]


def test_what_readings_show_again_and_again_has_to_stay_away_for_longer() -> None:
    card, at_s, lasted = HEALTHY, 0.0, []
    for _ in range(9):
        card, _ = look(card, None, at_s)
        began_s = at_s
        while card.faults:
            at_s += 5
            card, _ = look(card, WELL, at_s)
        lasted.append(at_s - began_s)
    assert lasted[:5] == [10, 10, CLEAR_AFTER_S, 2 * CLEAR_AFTER_S, 4 * CLEAR_AFTER_S]
    assert lasted[-1] == CLEAR_AFTER_MAX_S
    card, _ = look(card, None, at_s + REPEATED_S)
    assert card.faults[0].clear_after_s == 0


def test_how_a_card_stands_is_reported_once_after_it_came() -> None:
    card, facts = look(CardHealth(PLACE, UUID), WELL, 0)
    assert brief(facts) == ["fit"]
    assert look(card, WELL, 5).facts == ()
    again = with_survey(with_survey(NodeCards({PLACE: card}), SURVEY._replace(cards=())), SURVEY)
    assert again.unfit() == {PLACE: "NotLookedAt"}
    assert brief(look(again.here[PLACE], WELL, 10).facts) == ["fit"]
    assert look(CardHealth(PLACE, UUID), None, 0, replace(RULES, classes=parse_classes("OffTheBus=ignore"))).facts == ()


def test_without_a_driver_no_card_can_be_used() -> None:
    card, _ = strike(HEALTHY, 95, 0)
    cards = NodeCards({PLACE: card, "0000:3d:00.0": HEALTHY})
    assert cards.unfit(driver_missing=True) == {PLACE: "XID 95", "0000:3d:00.0": "DriverMissing"}
    assert cards.unfit() == {PLACE: "XID 95"}


def test_a_card_that_came_back_to_the_bus_has_been_reset() -> None:
    card, _ = look(HEALTHY, WELL, 0)
    card, _ = strike(card, 79, 1)
    card, facts = look(card, None, 5)
    assert brief(facts) == ["1 OffTheBus hardware"]
    assert look(card, None, 10).facts == ()
    card, facts = look(card, WELL, 15)
    assert not facts
    assert brief(look(card, WELL, 20).facts) == ["fit"]


def test_a_reset_does_not_end_what_readings_still_show() -> None:
    card, _ = look(HEALTHY, Readings(ecc_uncorrected_volatile=3), 0)
    card, _ = strike(card, 64, 1)
    card, _ = look(card, Readings(ecc_uncorrected_volatile=0, remap_failed=True), 5)
    card, facts = look(card, Readings(ecc_uncorrected_volatile=0, remap_failed=True), 10)
    assert not facts
    card, _ = look(card, WELL, 15)
    assert brief(look(card, WELL, 20).facts) == ["fit"]


def test_throttling_is_reported_when_it_lasts_and_when_it_ends() -> None:
    hot = Readings(throttled=frozenset({"HwThermalSlowdown"}))
    card, recorded = HEALTHY, []
    for at_s in range(0, 90, 5):
        card, facts = look(card, hot, at_s)
        recorded += [(at_s, _brief(fact)) for fact in facts]
    assert recorded == [(THROTTLE_S, "1 ThermalThrottling hardware")]
    card, facts = look(card, WELL, 90)
    assert brief(facts) == ["1 ThermalThrottling hardware"]
    assert isinstance(facts[0].data, DeviceErrorsObserved)
    assert (facts[0].data.first_at, facts[0].data.message.endswith("over after 90 s")) == (moment(0).at, True)
    assert not card.warnings


def test_throttling_that_comes_and_goes_is_not_reported() -> None:
    card = HEALTHY
    for at_s in range(0, 600, 5):
        card, facts = look(card, Readings(throttled=frozenset({"HwSlowdown"} if at_s % 10 else ())), at_s)
        assert not facts


def test_a_poll_that_shows_nothing_new_makes_nothing_new() -> None:
    card, _ = look(HEALTHY, WELL, 0)
    assert look(card, Readings(*WELL), 5).card is card


def test_what_is_ignored_is_not_reported() -> None:
    rules = replace(RULES, classes=parse_classes("79=ignore,OffTheBus=ignore,EccUncorrected=ignore"))
    card, facts = strike(HEALTHY, 79, 0, rules)
    assert (card, facts) == (HEALTHY, ())
    assert look(card, None, 5, rules).facts == ()
    card, _ = look(card, WELL, 10, rules)
    assert look(card, Readings(ecc_uncorrected_volatile=9), 15, rules).facts == ()


def test_a_counter_may_be_made_a_fault() -> None:
    rules = replace(RULES, classes=parse_classes("NvlinkErrors=fault"))
    card, _ = look(HEALTHY, Readings(nvlink_errors=1), 0, rules)
    card, facts = look(card, Readings(nvlink_errors=7), 5, rules)
    assert brief(facts) == ["failed NvlinkErrors", "unfit NvlinkErrors"]
    assert brief(look(card, Readings(nvlink_errors=7), 5 + CLEAR_AFTER_S, rules).facts) == ["fit"]


def test_a_card_with_too_many_kinds_of_errors_has_them_reported_as_one() -> None:
    card, recorded = HEALTHY, list[str]()
    for number in range(200, 300):
        card, facts = strike(card, number, 0)
        recorded += brief(facts)
    assert len(card.windows) == KINDS_MAX + 1
    assert recorded[-1] == "1 Other hardware"
    _, facts = on_time(card, moment(BURST_S), RULES)
    assert brief(facts) == [f"{100 - KINDS_MAX - 1} Other hardware"]


def test_a_hot_card_floods_nobody() -> None:
    card, recorded = HEALTHY, list[str]()
    for number in range(38_905):
        at_s = number * 60 / 38_905
        card, facts = strike(card, 95, at_s)
        card, later = on_time(card, moment(at_s), RULES)
        recorded += brief((*facts, *later))
    assert recorded[:2] == ["failed XID 95", "unfit XID 95"]
    assert len(recorded) <= 2 + 60 / BURST_S


def test_a_card_is_known_by_its_uuid_wherever_it_sits() -> None:
    card, _ = strike(HEALTHY, 95, 0)
    other = CARD._replace(address="0000:3d:00.0", uuid="GPU-other")
    swapped = (CARD._replace(uuid="GPU-other"), other._replace(uuid=UUID))
    cards = with_survey(NodeCards({PLACE: card, other.address: CardHealth(other.address, "GPU-other")}), SURVEY)
    other_card = CardHealth(other.address, "GPU-other", is_reported=True)
    cards = with_survey(NodeCards({**cards.here, other.address: other_card}), SURVEY._replace(cards=swapped))
    assert cards.unfit() == {other.address: "XID 95"}


def test_an_unfit_card_that_left_is_stored_and_reported_to_be_fit_when_it_is_back() -> None:
    card, _ = strike(HEALTHY, 95, 0)
    elsewhere = SURVEY._replace(cards=(CARD._replace(uuid="GPU-new"),))
    cards = with_survey(NodeCards({PLACE: card}), elsewhere)
    assert (cards.unfit(), [one.uuid for one in cards.gone]) == ({PLACE: "NotLookedAt"}, [UUID])
    cards = with_survey(with_survey(cards, SURVEY._replace(cards=())), SURVEY)
    assert cards.unfit() == {PLACE: "XID 95"}
    decision = look(cards.here[PLACE], WELL, 5)
    assert brief(decision.facts) == ["fit"]
    assert with_decision(cards, decision).unfit() == {}


def test_what_was_stored_but_perhaps_not_reported_is_reported() -> None:
    card, _ = strike(look(HEALTHY, WELL, 0).card, 95, 1)
    cards = with_survey(load(dump(NodeCards({PLACE: card}), pending={PLACE}), moment(2)), SURVEY)
    assert brief(look(cards.here[PLACE], WELL, 5).facts) == ["failed XID 95", "unfit XID 95"]


def test_what_is_stored_goes_on_by_the_time_that_passed() -> None:
    card, _ = strike(HEALTHY, 95, 0)
    later = moment(CLEAR_AFTER_S - 10)._replace(monotonic_s=3.0)
    kept = with_survey(load(dump(NodeCards({PLACE: card})), later), SURVEY).here[PLACE]
    assert kept.unfit_subject == UUID
    kept, facts = look(kept, WELL, 0)
    assert brief(facts) == ["unfit XID 95"]
    assert look(kept, WELL, 0).facts == ()
    assert brief(on_readings(kept, WELL, later._replace(monotonic_s=14.0), RULES).facts) == ["fit"]


def test_a_card_that_does_not_answer_shows_nothing_of_what_else_is_wrong_with_it() -> None:
    hot = Readings(throttled=frozenset({"HwThermalSlowdown"}))
    card, _ = look(HEALTHY, hot, 0)
    card, facts = look(card, None, THROTTLE_S + 5)
    assert brief(facts) == ["failed OffTheBus", "unfit OffTheBus"]
    assert brief(look(card, hot, THROTTLE_S + 10).facts) == ["1 ThermalThrottling hardware"]


def test_a_driver_that_was_loaded_anew_before_a_fault_ends_none() -> None:
    card, _ = look(HEALTHY, WELL, 0)
    card, _ = look(mark_absent(card), WELL, 5)
    card, _ = strike(card, 95, 6)
    assert look(card, WELL, 10).facts == ()
    card, _ = strike(mark_absent(HEALTHY), 95, 0)
    assert look(card, WELL, 5).facts == ()


def test_nothing_is_left_of_errors_that_are_over() -> None:
    card, _ = strike(HEALTHY, 31, 0)
    card, _ = strike(card, 31, 1)
    card, _ = on_time(card, moment(BURST_S), RULES)
    assert on_time(card, moment(2 * BURST_S), RULES) == (HEALTHY, ())


def test_a_restart_forgets_neither_counters_nor_what_a_card_had_before() -> None:
    card, _ = look(HEALTHY, Readings(ecc_uncorrected_volatile=3), 0)
    card, _ = strike(card, 95, 1)
    card = with_survey(load(dump(NodeCards({PLACE: card})), moment(2)), SURVEY).here[PLACE]
    card, facts = look(card, WELL, 5)
    assert brief(facts) == ["fit"]
    card = with_survey(load(dump(NodeCards({PLACE: card})), moment(6)), SURVEY).here[PLACE]
    card, _ = strike(card, 95, 10)
    assert ([past.times for past in card.history], card.faults[0].clear_after_s) == ([2], 2 * CLEAR_AFTER_S)


@pytest.mark.parametrize("value", [b"", b"[]", b"{}", b'{"version": 2, "cards": []}', b'{"version": 1, "cards": [1]}'])
def test_what_cannot_be_read_is_rejected(value: bytes) -> None:
    with pytest.raises(HealthStateError):
        load(value, moment(0))
