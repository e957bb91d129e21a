"""Whatever happens to a card, its health is recorded rightly, in bounded events, and the same after a restart."""

from itertools import groupby, pairwise
from math import inf
from typing import NamedTuple

from hypothesis import given
from hypothesis import strategies as st

from gpuledger.agent.hardware.api import Readings, Unread
from gpuledger.agent.health.aggregation import BURST_S, KINDS_MAX
from gpuledger.agent.health.card import CLEAR_AFTER_MAX_S, RECOVERY_POLLS, CardHealth, Rules
from gpuledger.agent.health.cards import NOT_LOOKED_AT, NodeCards, on_time_all, with_decision, with_survey
from gpuledger.agent.health.decide import HealthDecision, mark_absent, on_error, on_readings
from gpuledger.agent.health.severity import APPLICATION_XIDS, DEFAULT_CLASSES, Severity
from gpuledger.agent.health.state import dump, load
from gpuledger.agent.part import AgentFact
from gpuledger.events.device import DeviceErrorsObserved, DeviceFailed, DeviceHealthChanged
from gpuledger.runtime.clock import Instant
from support.agent_parts import NODE, PLACE, SURVEY, moment
from support.thoroughness import examples

RULES = Rules(NODE)
RESTART = "restart"
GONE = "the driver is not there"
LOST = "the card does not answer"


class Step(NamedTuple):
    """After some seconds: an XID, a look, the driver gone, or a restart of the agent."""

    after_s: float
    what: int | Readings | str


numbers = st.sampled_from([13, 31, 43, 48, 63, 74, 79, 94, 95, 119, 154, 999]) | st.integers(1, 300)
readings = st.builds(
    Readings,
    ecc_corrected_volatile=st.sampled_from([None, 0, 1, 7]),
    ecc_uncorrected_volatile=st.sampled_from([None, 0, 0, 1, 2]),
    remap_pending=st.sampled_from([None, False, True]),
    remap_failed=st.sampled_from([None, False, False, True]),
    throttled=st.sampled_from([frozenset(), {"SwPowerCap"}, {"HwThermalSlowdown"}, {"hw-power-brake"}]).map(frozenset),
    nvlink_errors=st.sampled_from([None, 0, 5]),
    nvlinks_down=st.sampled_from([(), (), (3,)]),
    recovery=st.sampled_from([None, None, None, "GpuReset", "DrainP2P"]),
    sram_uncorrected_volatile=st.sampled_from([None, 0, 0, 1, 2, 2**64 - 1]),
    sram_threshold_exceeded=st.sampled_from([None, False, False, True]),
    unread=st.lists(st.builds(Unread, st.sampled_from(Readings._fields[:-1]), st.just("no")), max_size=2).map(tuple),
)
whats = st.one_of(numbers, readings, st.just(Readings()), st.sampled_from([LOST, GONE]))
steps = st.lists(st.builds(Step, st.sampled_from([0.0, 1.0, 5.0, 5.0, 12.0, 400.0, 90_000.0]), whats), max_size=40)


class Result(NamedTuple):
    """What is known at the end, and what was told."""

    cards: NodeCards
    facts: list[AgentFact]
    now: Instant

    @property
    def verdicts(self) -> list[tuple[bool, str | None]]:
        reports = (fact.data for fact in self.facts)
        return [(one.healthy, one.kind) for one in reports if isinstance(one, DeviceHealthChanged)]


def run(what: list[Step], rules: Rules = RULES) -> Result:
    cards, facts, now = with_survey(NodeCards(), SURVEY), list[AgentFact](), moment(0)
    for step in what:
        now = moment(now.monotonic_s + step.after_s)
        if step.what == RESTART:
            cards = with_survey(load(dump(cards), now), SURVEY)
            continue
        decision = decide(cards.here[PLACE], step, now, rules)
        cards = with_decision(cards, decision)
        cards, later = on_time_all(cards, now, rules)
        facts += [*decision.facts, *later]
    return Result(cards, facts, now)


def decide(card: CardHealth, step: Step, now: Instant, rules: Rules) -> HealthDecision:
    match step.what:
        case int():
            return on_error(card, rules.classes.xid(step.what), now, rules)
        case Readings():
            return on_readings(card, step.what, now, rules)
        case str() if step.what == LOST:
            return on_readings(card, None, now, rules)
    return HealthDecision(mark_absent(card))


@examples(3)
@given(steps)
def test_fit_and_unfit_are_reported_in_turns_and_are_what_stands_on_the_board(what: list[Step]) -> None:
    recorded = run(what)
    healthy = [verdict[0] for verdict in recorded.verdicts]
    assert all(one != other for one, other in pairwise(healthy))
    assert bool(recorded.cards.unfit()) == (healthy[-1:] != [True])


@examples(2)
@given(st.lists(st.sampled_from(sorted(APPLICATION_XIDS)), max_size=60), st.sampled_from([0.0, 3.0, 30.0]))
def test_errors_of_applications_alone_make_no_card_unfit(xids: list[int], after_s: float) -> None:
    recorded = run([Step(after_s, number) for number in xids])
    assert not recorded.verdicts
    assert set(recorded.cards.unfit().values()) == {NOT_LOOKED_AT}
    assert all(
        isinstance(fact.data, DeviceErrorsObserved) and fact.data.cause == "application" for fact in recorded.facts
    )


@examples(3)
@given(steps)
def test_after_the_last_fault_and_long_enough_quiet_every_card_is_fit(what: list[Step]) -> None:
    well = [Step(CLEAR_AFTER_MAX_S, Readings()), *[Step(5.0, Readings())] * RECOVERY_POLLS]
    recorded = run([*what, *well])
    assert recorded.cards.unfit() == {}
    assert recorded.verdicts[-1:] == [(True, None)]


@examples(4)
@given(steps, st.data())
def test_a_restart_at_any_point_changes_no_verdict(what: list[Step], data: st.DataObject) -> None:
    at = data.draw(st.sampled_from([at for at in range(len(what) + 1) if looks_first(what[at:])]))
    restarted, usual = run([*what[:at], Step(0.0, RESTART), *what[at:]]), run(what)
    assert turns(restarted) == turns(usual)
    assert len(restarted.verdicts) <= len(usual.verdicts) + 1
    assert failures(restarted) == failures(usual)


def looks_first(what: list[Step]) -> bool:
    """Whether a card is looked at before it has an error, as an agent does that starts.

    Without that look nothing shows that the counters went back to 0 since: the card is then unfit for longer.
    """
    heard = (isinstance(step.what, Readings) for step in what if isinstance(step.what, int | Readings))
    return next(heard, True)


def turns(recorded: Result) -> list[bool]:
    """The verdicts without repetitions of the one before."""
    return [healthy for healthy, _ in groupby(healthy for healthy, _ in recorded.verdicts)]


def failures(recorded: Result) -> int:
    return sum(isinstance(fact.data, DeviceFailed) for fact in recorded.facts)


@examples(2)
@given(st.lists(st.builds(Step, st.sampled_from([0.0, 0.01, 1.0, 11.0]), numbers), max_size=200))
def test_errors_are_reported_by_a_bounded_number_of_events_that_counts_all_of_them(what: list[Step]) -> None:
    recorded = run(what)
    _, rest = on_time_all(recorded.cards, Instant(inf, recorded.now.at), RULES)
    data = [fact.data for fact in (*recorded.facts, *rest)]
    failures = sum(isinstance(one, DeviceFailed) for one in data)
    assert failures + sum(one.count for one in data if isinstance(one, DeviceErrorsObserved)) == len(what)
    faults = sum(DEFAULT_CLASSES.xid(number).severity is Severity.FAULT for number in range(1, 301))
    assert failures <= faults
    assert len(data) <= 1 + faults + (KINDS_MAX + 2) * (2 + recorded.now.monotonic_s // BURST_S)


@examples(2)
@given(steps)
def test_no_errors_are_reported_to_have_begun_after_they_ended(what: list[Step]) -> None:
    for fact in run(what).facts:
        if isinstance(fact.data, DeviceErrorsObserved):
            assert fact.data.first_at <= fact.time
