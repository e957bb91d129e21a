"""What follows from an error of a card, or from a look at it: whether it is fit, and what is told. Pure.

Of each card fit and unfit are told in turns, and what holds is told once more after it came and after the agent began.
A card that was unfit is fit again as soon as nothing speaks against it: nobody has to restart anything for that. Errors
of applications never make a card unfit.
"""

from collections.abc import Callable
from typing import Concatenate, Final, NamedTuple, ParamSpec

from gpuledger.agent.hardware.api import Readings
from gpuledger.agent.health import aggregation
from gpuledger.agent.health.card import (
    FAULTS_MAX,
    PAST_MAX,
    RECOVERY_LOOKS,
    REPEATED_S,
    SOON_OVER_TIMES,
    CardHealth,
    Fault,
    Lasting,
    Past,
    Rules,
)
from gpuledger.agent.health.classes import OFF_THE_BUS, Severity, Sign
from gpuledger.agent.health.symptoms import growth, is_reset, standing
from gpuledger.agent.part import Fact, Moment
from gpuledger.events.device import DeviceErrorsObserved, DeviceFailed, DeviceHealthChanged

DOUBLINGS_MAX: Final = 32
"""Faults in a row after which the quiet window is not computed any further."""


P = ParamSpec("P")


class Decision(NamedTuple):
    """What is known of a card now, and what is to be told, in its order."""

    card: CardHealth
    facts: tuple[Fact, ...] = ()

    def then(
        self, step: "Callable[Concatenate[CardHealth, P], Decision]", *args: P.args, **kwargs: P.kwargs
    ) -> "Decision":
        """What follows from a further step."""
        card, facts = step(self.card, *args, **kwargs)
        return Decision(card, (*self.facts, *facts))


def struck(card: CardHealth, sign: Sign, now: Moment, rules: Rules, *, count: int = 1) -> Decision:
    """The card had an error, or some of a kind, that no reading shows as long as it lasts."""
    if sign.severity is Severity.IGNORE:
        return Decision(card)
    if sign.severity is not Severity.FAULT:
        return _erred(card, sign, now, rules, count)
    card = _back(card)
    known = next((fault for fault in card.faults if fault.kind == sign.kind), None)
    if known is not None:
        again = known._replace(last=now, was_reset=False)
        faults = tuple(again if fault is known else fault for fault in card.faults)
        return _erred(card._replace(faults=faults), sign, now, rules, count)
    past = _past(card.past, sign.kind, now)
    fault = Fault(sign.kind, sign.message, standing=False, last=now, quiet_s=_quiet_s(past.times, rules))
    return _failed(_with_past(card, past), fault, now, rules)


def looked(card: CardHealth, readings: Readings | None, now: Moment, rules: Rules) -> Decision:
    """The card said this of itself; None: it does not answer."""
    if readings is not None and readings == card.readings and _is_calm(card):
        return Decision(card)
    signs = standing(readings, rules.classes)
    faults = [sign for sign in signs if sign.severity is Severity.FAULT]
    warnings = [sign for sign in signs if sign.severity is Severity.WARNING]
    decision = Decision(card) if readings is None else _grown(_back(card), readings, now, rules)
    for sign in faults:
        decision = decision.then(_stands, sign, now, rules)
    if readings is not None:
        decision = decision._replace(card=_eased(decision.card, {sign.kind for sign in faults}, readings, now))
    answers = readings is not None
    decision = decision.then(_judged, now, rules, answers=answers).then(_lasted, warnings, now, rules, answers=answers)
    return decision if readings is None else decision._replace(card=decision.card._replace(readings=readings))


def away(card: CardHealth) -> CardHealth:
    """The card, or its driver, is not there: that is no fault of its own, and there is nothing to look at."""
    return card if card.was_away else card._replace(was_away=True)


def passed(card: CardHealth, now: Moment, rules: Rules) -> Decision:
    """Time went on."""
    windows, told = aggregation.closed(card.windows, now)
    if windows is card.windows:
        return Decision(card)
    subject = card.subject(rules)
    return Decision(card._replace(windows=windows), tuple(Fact(subject, one.data, one.last.at) for one in told))


def _back(card: CardHealth) -> CardHealth:
    """The card with what follows for its faults where it was away: what comes now is of after the reset."""
    if not card.was_away:
        return card
    return card._replace(was_away=False, faults=tuple(fault._replace(was_reset=True) for fault in card.faults))


def _is_calm(card: CardHealth) -> bool:
    return card.is_known and not (card.faults or card.lasting or card.was_away or card.told)


def _grown(card: CardHealth, readings: Readings, now: Moment, rules: Rules) -> Decision:
    decision = Decision(card)
    for sign, count in growth(card.readings, readings, rules.classes):
        decision = decision.then(struck, sign, now, rules, count=count)
    return decision


def _stands(card: CardHealth, sign: Sign, now: Moment, rules: Rules) -> Decision:
    """Readings show that the card cannot be used. Of a card that is unfit already, that is no failure of its own.

    An error that needs a reset is nearly always followed by readings that say so.
    """
    known = next((fault for fault in card.faults if fault.kind == sign.kind and fault.standing), None)
    if known is None:
        past = _past(card.past, sign.kind, now)
        quiet_s = _quiet_s(past.times - SOON_OVER_TIMES, rules) if past.times > SOON_OVER_TIMES else 0.0
        fault = Fault(sign.kind, sign.message, standing=True, last=now, quiet_s=quiet_s)
        card = _with_past(card, past)
        if card.told is None or len(card.faults) >= FAULTS_MAX:
            return _failed(card, fault, now, rules)
        return _erred(card._replace(faults=(*card.faults, fault)), sign, now, rules, 1)
    still = known._replace(last=now, clear_looks=0)
    return Decision(card._replace(faults=tuple(still if fault is known else fault for fault in card.faults)))


def _eased(card: CardHealth, seen: set[str], readings: Readings, now: Moment) -> CardHealth:
    """What is left of the card's faults after a look that it answered."""
    faults = [one if one.kind in seen else one._replace(clear_looks=one.clear_looks + 1) for one in card.faults]
    is_back = any(fault.kind == OFF_THE_BUS and fault.clear_looks >= RECOVERY_LOOKS for fault in faults)
    if is_back or is_reset(card.readings, readings):
        faults = [fault._replace(was_reset=True) for fault in faults]
    if any(fault.standing and not _is_clear(fault, now) for fault in faults):
        left = [fault for fault in faults if not (fault.standing and _is_clear(fault, now))]
    else:
        left = [fault for fault in faults if not (fault.standing or _is_over(fault, now))]
    return card._replace(faults=tuple(left))


def _is_clear(fault: Fault, now: Moment) -> bool:
    return fault.clear_looks >= RECOVERY_LOOKS and now.s - fault.last.s >= fault.quiet_s


def _is_over(fault: Fault, now: Moment) -> bool:
    return fault.was_reset or now.s - fault.last.s >= fault.quiet_s


def _judged(card: CardHealth, now: Moment, rules: Rules, *, answers: bool) -> Decision:
    """Tell that the card is fit, or that it is not, where that is still to be told."""
    if card.faults and card.told is None:
        return _told_unfit(card, card.faults[0], now, rules)
    if card.faults and not card.is_known:
        verdict = Fact(card.told or card.subject(rules), _verdict(card.faults[0]), now.at)
        return Decision(card._replace(is_known=True), (verdict,))
    if card.faults or (card.told is None and (card.is_known or not answers)):
        return Decision(card)
    message = "Nothing is wrong with it" if card.told is None else "Nothing is wrong with it any more"
    fact = Fact(card.told or card.subject(rules), DeviceHealthChanged(healthy=True, message=message), now.at)
    return Decision(card._replace(told=None, is_known=True), (fact,))


def _failed(card: CardHealth, fault: Fault, now: Moment, rules: Rules) -> Decision:
    if len(card.faults) >= FAULTS_MAX:
        return _erred(card, Sign(fault.kind, Severity.WARNING, fault.message), now, rules, 1)
    windows = aggregation.opened(card.windows, fault.kind, fault.message, now)
    card = card._replace(faults=(*card.faults, fault), windows=windows)
    if card.told is None:
        return _told_unfit(card, fault, now, rules)
    return Decision(card, (_failure(card, fault, now, rules),))


def _told_unfit(card: CardHealth, fault: Fault, now: Moment, rules: Rules) -> Decision:
    card = card._replace(told=card.subject(rules), is_known=True)
    return Decision(card, (_failure(card, fault, now, rules), Fact(card.subject(rules), _verdict(fault), now.at)))


def _verdict(fault: Fault) -> DeviceHealthChanged:
    return DeviceHealthChanged(healthy=False, kind=fault.kind, message=fault.message)


def _failure(card: CardHealth, fault: Fault, now: Moment, rules: Rules) -> Fact:
    failure = DeviceFailed(kind=fault.kind, slot=card.place(rules), message=fault.message)
    return Fact(card.told or card.subject(rules), failure, now.at)


def _erred(card: CardHealth, sign: Sign, now: Moment, rules: Rules, count: int) -> Decision:
    cause: aggregation.Cause = "application" if sign.severity is Severity.APPLICATION else "hardware"
    windows, burst = aggregation.took(card.windows, sign.kind, cause, sign.message, now, count=count)
    card = card._replace(windows=windows)
    return Decision(card) if burst is None else Decision(card, (Fact(card.subject(rules), burst.data, now.at),))


def _lasted(card: CardHealth, signs: list[Sign], now: Moment, rules: Rules, *, answers: bool) -> Decision:
    """Tell of what is wrong with a usable card when it has lasted for long enough, and when it is over."""
    seen = {sign.kind: sign for sign in signs}
    known = {lasting.kind for lasting in card.lasting}
    begun = (Lasting(kind, sign.message, now, told=False) for kind, sign in seen.items() if kind not in known)
    over = [one for one in card.lasting if answers and one.kind not in seen]
    going_on = [one for one in (*card.lasting, *begun) if one not in over]
    due = [one for one in going_on if one.kind in seen and not one.told and _lasts(one, now, rules)]
    lasting = tuple(one._replace(told=True) if one in due else one for one in going_on)
    facts = [_ended(card, one, now, rules) for one in over if one.told]
    facts += [_begun(card, one, now, rules) for one in due]
    return Decision(card._replace(lasting=lasting), tuple(facts))


def _lasts(lasting: Lasting, now: Moment, rules: Rules) -> bool:
    return now.s - lasting.since.s >= rules.bears_s(lasting.kind)


def _begun(card: CardHealth, lasting: Lasting, now: Moment, rules: Rules) -> Fact:
    return _lasting_fact(card, lasting, lasting.message, now, rules)


def _ended(card: CardHealth, lasting: Lasting, now: Moment, rules: Rules) -> Fact:
    message = f"{lasting.message}; over after {now.s - lasting.since.s:.0f} s"
    return _lasting_fact(card, lasting, message, now, rules)


def _lasting_fact(card: CardHealth, lasting: Lasting, message: str, now: Moment, rules: Rules) -> Fact:
    first_at = min(lasting.since.at, now.at)
    data = DeviceErrorsObserved(kind=lasting.kind, cause="hardware", first_at=first_at, message=message)
    return Fact(card.subject(rules), data, now.at)


def _past(known: tuple[Past, ...], kind: str, now: Moment) -> Past:
    last = next((past for past in reversed(known) if past.kind == kind), None)
    is_repeated = last is not None and now.s - last.last.s < REPEATED_S
    return Past(kind, last.times + 1 if last is not None and is_repeated else 1, now)


def _with_past(card: CardHealth, past: Past) -> CardHealth:
    others = [one for one in card.past if one.kind != past.kind]
    return card._replace(past=(*others, past)[-PAST_MAX:])


def _quiet_s(times: int, rules: Rules) -> float:
    return min(rules.quiet_s * 2.0 ** min(times - 1, DOUBLINGS_MAX), rules.quiet_max_s)
