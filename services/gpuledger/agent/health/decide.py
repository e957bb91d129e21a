"""Decides what an error or a poll of a card means: whether the card is fit, and which facts to record. Pure.

The verdicts of a card alternate between fit and unfit, and the current one is repeated once after the card appears and
once after the agent starts. An unfit card becomes fit as soon as its faults clear, without any restart. Errors of
applications never make a card unfit.
"""

from collections.abc import Callable, Set
from typing import Concatenate, Final, NamedTuple, ParamSpec

from gpuledger.agent.hardware.api import Readings
from gpuledger.agent.health.aggregation import Cause, add_errors, close_windows, open_window
from gpuledger.agent.health.card import (
    FAULTS_MAX,
    HISTORY_MAX,
    QUICK_CLEARS_MAX,
    RECOVERY_POLLS,
    REPEATED_S,
    CardFault,
    CardHealth,
    FaultHistory,
    LastingWarning,
    Rules,
)
from gpuledger.agent.health.severity import OFF_THE_BUS, Severity, Symptom
from gpuledger.agent.health.symptoms import completed, new_errors, symptoms_of, undecided, was_reset_between
from gpuledger.agent.part import AgentFact
from gpuledger.events.device import DeviceErrorsObserved, DeviceFailed, DeviceHealthChanged
from gpuledger.runtime.clock import Instant

DOUBLINGS_MAX: Final = 32
"""The clearing time of a fault doubles no further than this."""


P = ParamSpec("P")


class HealthDecision(NamedTuple):
    """The new health of a card, and the facts to record, in order."""

    card: CardHealth
    facts: tuple[AgentFact, ...] = ()

    def then(
        self, step: "Callable[Concatenate[CardHealth, P], HealthDecision]", *args: P.args, **kwargs: P.kwargs
    ) -> "HealthDecision":
        """Applies a further step."""
        card, facts = step(self.card, *args, **kwargs)
        return HealthDecision(card, (*self.facts, *facts))


def on_error(card: CardHealth, symptom: Symptom, now: Instant, rules: Rules, *, count: int = 1) -> HealthDecision:
    """The card had one or several errors of a kind that leaves no trace in readings."""
    if symptom.severity is Severity.IGNORE:
        return HealthDecision(card)
    if symptom.severity is not Severity.FAULT:
        return _with_errors(card, symptom, now, rules, count)
    card = _returned(card)
    found = next((fault for fault in card.faults if fault.kind == symptom.kind), None)
    if found is not None:
        again = found._replace(last=now, was_reset=False)
        faults = tuple(again if fault is found else fault for fault in card.faults)
        return _with_errors(card._replace(faults=faults), symptom, now, rules, count)
    history = _history(card.history, symptom.kind, now)
    clear_after_s = _clear_after_s(history.times, rules)
    fault = _fault(symptom, now, clear_after_s, in_readings=False)
    return _with_fault(_with_history(card, history), fault, now, rules)


def on_readings(card: CardHealth, readings: Readings | None, now: Instant, rules: Rules) -> HealthDecision:
    """The card was polled and gave these readings; None: it does not answer."""
    if readings is not None and readings == card.readings and _is_steady(card):
        return HealthDecision(card)
    symptoms = symptoms_of(readings, rules.classes)
    faults = [symptom for symptom in symptoms if symptom.severity is Severity.FAULT]
    warnings = [symptom for symptom in symptoms if symptom.severity is Severity.WARNING]
    decision = HealthDecision(card) if readings is None else _with_new_errors(_returned(card), readings, now, rules)
    for symptom in faults:
        decision = decision.then(_with_persistent_fault, symptom, now, rules)
    if readings is not None:
        shown = {symptom.kind for symptom in faults}
        decision = decision._replace(card=_without_cleared(decision.card, shown, readings, now))
    decision = decision.then(_with_verdict, now, rules, answers=readings is not None)
    decision = decision.then(_with_warnings, warnings, undecided(readings), now, rules)
    if readings is None:
        return decision
    return decision._replace(card=decision.card._replace(readings=completed(card.readings, readings)))


def mark_absent(card: CardHealth) -> CardHealth:
    """The card or its driver is absent: that is no fault of the card, and there is nothing to poll."""
    return card if card.was_absent else card._replace(was_absent=True)


def on_time(card: CardHealth, now: Instant, rules: Rules) -> HealthDecision:
    """Time passed: report the errors of windows that ended."""
    windows, groups = close_windows(card.windows, now)
    if windows is card.windows:
        return HealthDecision(card)
    subject = card.subject(rules)
    facts = tuple(AgentFact(subject, group.data, group.last.at) for group in groups)
    return HealthDecision(card._replace(windows=windows), facts)


def _returned(card: CardHealth) -> CardHealth:
    """A card that was absent and is back was reset, and so were its faults."""
    if not card.was_absent:
        return card
    return card._replace(was_absent=False, faults=tuple(fault._replace(was_reset=True) for fault in card.faults))


def _is_steady(card: CardHealth) -> bool:
    return card.is_reported and not (card.faults or card.warnings or card.was_absent or card.unfit_subject)


def _with_new_errors(card: CardHealth, readings: Readings, now: Instant, rules: Rules) -> HealthDecision:
    decision = HealthDecision(card)
    for symptom, count in new_errors(card.readings, readings, rules.classes):
        decision = decision.then(on_error, symptom, now, rules, count=count)
    return decision


def _with_persistent_fault(card: CardHealth, symptom: Symptom, now: Instant, rules: Rules) -> HealthDecision:
    """Readings show that the card cannot be used. On a card that is unfit already this counts as an error only.

    An error that needs a reset is nearly always followed by readings that show the same.
    """
    found = next((fault for fault in card.faults if fault.kind == symptom.kind and fault.in_readings), None)
    if found is None:
        history = _history(card.history, symptom.kind, now)
        extra = history.times - QUICK_CLEARS_MAX
        clear_after_s = _clear_after_s(extra, rules) if extra > 0 else 0.0
        fault = _fault(symptom, now, clear_after_s, in_readings=True)
        card = _with_history(card, history)
        if card.unfit_subject is None or len(card.faults) >= FAULTS_MAX:
            return _with_fault(card, fault, now, rules)
        return _with_errors(card._replace(faults=(*card.faults, fault)), symptom, now, rules, 1)
    still = found._replace(last=now, clear_polls=0)
    return HealthDecision(card._replace(faults=tuple(still if fault is found else fault for fault in card.faults)))


def _without_cleared(card: CardHealth, shown: set[str], readings: Readings, now: Instant) -> CardHealth:
    """The card without the faults that clear with these readings; one that they do not decide stays."""
    unsure = undecided(readings)
    faults = [one if one.kind in shown else one._replace(clear_polls=one.clear_polls + 1) for one in card.faults]
    faults = [one._replace(clear_polls=0) if one.in_readings and one.kind in unsure else one for one in faults]
    is_back = any(fault.kind == OFF_THE_BUS and fault.clear_polls >= RECOVERY_POLLS for fault in faults)
    if is_back or was_reset_between(card.readings, readings):
        faults = [fault._replace(was_reset=True) for fault in faults]
    if any(fault.in_readings and not _is_clear(fault, now) for fault in faults):
        left = [fault for fault in faults if not (fault.in_readings and _is_clear(fault, now))]
    else:
        left = [fault for fault in faults if not (fault.in_readings or _is_over(fault, now))]
    return card._replace(faults=tuple(left))


def _is_clear(fault: CardFault, now: Instant) -> bool:
    return fault.clear_polls >= RECOVERY_POLLS and now.monotonic_s - fault.last.monotonic_s >= fault.clear_after_s


def _is_over(fault: CardFault, now: Instant) -> bool:
    return fault.was_reset or now.monotonic_s - fault.last.monotonic_s >= fault.clear_after_s


def _with_verdict(card: CardHealth, now: Instant, rules: Rules, *, answers: bool) -> HealthDecision:
    """Report that the card is fit, or that it is not, where that is due."""
    if card.faults and card.unfit_subject is None:
        return _unfit(card, card.faults[0], now, rules)
    if card.faults and not card.is_reported:
        verdict = AgentFact(card.unfit_subject or card.subject(rules), _verdict(card.faults[0]), now.at)
        return HealthDecision(card._replace(is_reported=True), (verdict,))
    if card.faults or (card.unfit_subject is None and (card.is_reported or not answers)):
        return HealthDecision(card)
    message = "Nothing is wrong with it" if card.unfit_subject is None else "Nothing is wrong with it any more"
    fact = AgentFact(
        card.unfit_subject or card.subject(rules), DeviceHealthChanged(healthy=True, message=message), now.at
    )
    return HealthDecision(card._replace(unfit_subject=None, is_reported=True), (fact,))


def _with_fault(card: CardHealth, fault: CardFault, now: Instant, rules: Rules) -> HealthDecision:
    if len(card.faults) >= FAULTS_MAX:
        return _with_errors(card, Symptom(fault.kind, Severity.WARNING, fault.message), now, rules, 1)
    windows = open_window(card.windows, fault.kind, fault.message, now)
    card = card._replace(faults=(*card.faults, fault), windows=windows)
    if card.unfit_subject is None:
        return _unfit(card, fault, now, rules)
    return HealthDecision(card, (_failure(card, fault, now, rules),))


def _unfit(card: CardHealth, fault: CardFault, now: Instant, rules: Rules) -> HealthDecision:
    card = card._replace(unfit_subject=card.subject(rules), is_reported=True)
    verdict = AgentFact(card.subject(rules), _verdict(fault), now.at)
    return HealthDecision(card, (_failure(card, fault, now, rules), verdict))


def _fault(symptom: Symptom, now: Instant, clear_after_s: float, *, in_readings: bool) -> CardFault:
    kind, _severity, message, action = symptom
    return CardFault(kind, message, in_readings, last=now, clear_after_s=clear_after_s, action=action)


def _verdict(fault: CardFault) -> DeviceHealthChanged:
    return DeviceHealthChanged(healthy=False, kind=fault.kind, message=fault.message, action=fault.action)


def _failure(card: CardHealth, fault: CardFault, now: Instant, rules: Rules) -> AgentFact:
    failure = DeviceFailed(kind=fault.kind, slot=card.place(rules), message=fault.message, action=fault.action)
    return AgentFact(card.unfit_subject or card.subject(rules), failure, now.at)


def _with_errors(card: CardHealth, symptom: Symptom, now: Instant, rules: Rules, count: int) -> HealthDecision:
    cause: Cause = "application" if symptom.severity is Severity.APPLICATION else "hardware"
    windows, group = add_errors(card.windows, symptom.kind, cause, symptom.message, now, count=count)
    facts = () if group is None else (AgentFact(card.subject(rules), group.data, now.at),)
    return HealthDecision(card._replace(windows=windows), facts)


def _with_warnings(
    card: CardHealth, symptoms: list[Symptom], unsure: Set[str], now: Instant, rules: Rules
) -> HealthDecision:
    """Report each warning of a usable card when it has lasted for long enough, and again when it ends.

    One of an `unsure` kind goes on, and is not reported meanwhile.
    """
    shown = {symptom.kind: symptom for symptom in symptoms}
    before = {warning.kind for warning in card.warnings}
    new = (
        LastingWarning(kind, one.message, now, is_reported=False) for kind, one in shown.items() if kind not in before
    )
    over = [one for one in card.warnings if one.kind not in shown and one.kind not in unsure]
    current = [one for one in (*card.warnings, *new) if one not in over]
    due = [one for one in current if one.kind in shown and not one.is_reported and _is_due(one, now, rules)]
    warnings = tuple(one._replace(is_reported=True) if one in due else one for one in current)
    facts = [_warning_fact(card, one, _ended(one, now), now, rules) for one in over if one.is_reported]
    facts += [_warning_fact(card, one, one.message, now, rules) for one in due]
    return HealthDecision(card._replace(warnings=warnings), tuple(facts))


def _is_due(warning: LastingWarning, now: Instant, rules: Rules) -> bool:
    return now.monotonic_s - warning.since.monotonic_s >= rules.report_after_s(warning.kind)


def _ended(warning: LastingWarning, now: Instant) -> str:
    return f"{warning.message}; over after {now.monotonic_s - warning.since.monotonic_s:.0f} s"


def _warning_fact(card: CardHealth, warning: LastingWarning, message: str, now: Instant, rules: Rules) -> AgentFact:
    first_at = min(warning.since.at, now.at)
    data = DeviceErrorsObserved(kind=warning.kind, cause="hardware", first_at=first_at, message=message)
    return AgentFact(card.subject(rules), data, now.at)


def _history(histories: tuple[FaultHistory, ...], kind: str, now: Instant) -> FaultHistory:
    last = next((one for one in reversed(histories) if one.kind == kind), None)
    is_repeated = last is not None and now.monotonic_s - last.last.monotonic_s < REPEATED_S
    return FaultHistory(kind, last.times + 1 if last is not None and is_repeated else 1, now)


def _with_history(card: CardHealth, history: FaultHistory) -> CardHealth:
    others = [one for one in card.history if one.kind != history.kind]
    return card._replace(history=(*others, history)[-HISTORY_MAX:])


def _clear_after_s(times: int, rules: Rules) -> float:
    return min(rules.clear_after_s * 2.0 ** min(times - 1, DOUBLINGS_MAX), rules.clear_after_max_s)
