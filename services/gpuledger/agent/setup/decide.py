"""Decides the next step that brings the node's devices to what pools desire. Pure: it reads and waits for nothing.

Each decision is one step, and the next one starts from what is so afterwards, so that none depends on what an earlier
step was expected to do. No step may clear or repartition a card while anything on it is in use.
"""

from collections.abc import Callable, Iterator
from typing import Final

from gpuledger.agent.hardware.api import CardFacts
from gpuledger.agent.setup import actions, release
from gpuledger.agent.setup.actions import SetupDecision, Wait
from gpuledger.agent.setup.offers import ids_of, partitions, profile_of, unit_uuids
from gpuledger.agent.setup.situation import Situation, card_of, cards, is_card_replaced, responds, state_of, used
from gpuledger.agent.setup.state import HeldDevice, Outcome
from gpuledger.domain.mig.plan import IN_USE, Create, Destroy, Plan, Refusal, plan
from gpuledger.events.node import WantedDevice

CARD_MISSING: Final = "CardMissing"
CARD_TAKEN: Final = "CardTaken"
DRIVER_MISSING: Final = "DriverMissing"
USE_UNKNOWN: Final = "UseUnknown"

KUBELET_SILENT_S: Final = 120.0
"""How long the kubelet may list no pods before that is reported; it never does in its first moments."""


def decide(situation: Situation) -> SetupDecision:
    """The next step: first withdraw what has to leave, then correct the offers, then change devices."""
    until: list[float] = []
    for step in (_due_withdrawals, _due_refreshes, _due_changes):
        for decision in step(situation):
            if not isinstance(decision, Wait):
                return decision
            until += [decision.until] if decision.until is not None else []
    return Wait(min(until, default=None))


def _due_withdrawals(situation: Situation) -> Iterator[SetupDecision]:
    for desired in situation.board.desired or ():
        held = situation.state.held.get(desired.device)
        if desired.releasing and held is not None and held.offered:
            yield actions.Withdraw(desired.device, desired)
    for device, held in sorted(situation.state.held.items()):
        if held.offered and is_card_replaced(situation, held):
            yield actions.Withdraw(device, None)


def _due_refreshes(situation: Situation) -> Iterator[SetupDecision]:
    for device, held in sorted(situation.state.held.items()):
        card = card_of(situation, None, held)
        if held.offered and card is not None:
            uuids = unit_uuids(card, held.desired)
            if (card.address, uuids) != (held.address, held.uuids):
                yield actions.Refresh(device, card.address, uuids)


def _due_changes(situation: Situation) -> Iterator[SetupDecision]:
    every = situation.board.desired
    if every is None or (situation.board.survey is None and situation.survey is None):
        return
    if situation.now < situation.debounced_at:
        yield Wait(situation.debounced_at)
        return
    for device in sorted(situation.state.held.keys() - {desired.device for desired in every}):
        yield release.decide(situation, device, None)
    for desired in every:
        decide_one = release.decide if desired.releasing else _decide_desired
        yield decide_one(situation, desired.device, desired)


def _decide_desired(situation: Situation, device: str, desired: WantedDevice) -> SetupDecision:
    held = situation.state.held.get(device)
    if held is None or not held.offered:
        return _when_due(situation, desired, lambda: _set_up(situation, desired, held))
    card = card_of(situation, desired, held)
    if card is None:
        outcome = situation.state.outcomes.get(device)
        is_reported = outcome is not None and outcome.asked_at == desired.asked_at
        return Wait() if is_reported else _card_missing(situation, desired)
    if not _is_same_setup(held, desired, card):
        return actions.Withdraw(device, desired)
    return _decide_offered(situation, desired, held, card)


def _decide_offered(situation: Situation, desired: WantedDevice, held: HeldDevice, card: CardFacts) -> SetupDecision:
    """A device that is offered as its pool desires mostly needs nothing, else to be repartitioned."""
    found = plan(state_of(situation, card), profile_of(desired))
    if isinstance(found, Plan) and not found.steps:
        return _applied(situation, desired, held) or Wait()
    decision = _repair(situation, desired, held, card)
    if isinstance(decision, actions.Divide | actions.QueryUsers | actions.Withdraw):
        return decision
    outcome = situation.state.outcomes.get(desired.device)
    if held.uuids or (outcome is not None and (outcome.kind, outcome.asked_at) == ("applied", desired.asked_at)):
        return _applied(situation, desired, held) or decision
    return decision


def _repair(situation: Situation, desired: WantedDevice, held: HeldDevice, card: CardFacts) -> SetupDecision:
    """Repartition a card that somebody else partitioned, around what is in use on it."""
    settled_at = situation.settled_at(desired.device)
    if not held.uuids and situation.now < settled_at:
        return Wait(settled_at)
    if situation.board.in_use is None:
        return Wait()
    return _when_due(situation, desired, lambda: _repair_around_use(situation, desired, held, card))


def _repair_around_use(situation: Situation, desired: WantedDevice, held: HeldDevice, card: CardFacts) -> SetupDecision:
    found = _plan_around_use(situation, desired, card)
    if isinstance(found, actions.QueryUsers):
        return found
    if isinstance(found, Refusal):
        return actions.Postpone(desired.device, desired, found.message) if held.uuids else _refused(desired, found)
    if not found.steps:
        return actions.Postpone(desired.device, desired, "The rest of the card is in use.")
    if held.uuids and not _keeps_offers(found, held):
        if used(situation, card, held) or situation.processes.get(card.address):
            return actions.Postpone(desired.device, desired, "The card is repartitioned once nothing on it is in use.")
        return actions.Withdraw(desired.device, desired)
    return _divide(situation, desired, card, found)


def _set_up(situation: Situation, desired: WantedDevice, held: HeldDevice | None) -> SetupDecision:
    card = card_of(situation, desired, held)
    if card is None:
        return _card_missing(situation, desired)
    constraint = _constraint(situation, desired, held, card)
    if constraint is not None:
        return constraint
    found = plan(state_of(situation, card), profile_of(desired))
    if isinstance(found, Refusal):
        return _refused(desired, found)
    if situation.board.in_use is None:
        return _kubelet_silent(situation, desired)
    if not found.steps and (held is None or _is_same_setup(held, desired, card)):
        return _adopt(desired, card)
    settled_at = situation.settled_at(desired.device)
    return Wait(settled_at) if situation.now < settled_at else _carry_out(situation, desired, card, found)


def _kubelet_silent(situation: Situation, desired: WantedDevice) -> SetupDecision:
    silent_at = situation.debounced_at + KUBELET_SILENT_S
    text = "The kubelet does not list which containers hold units of the card; look at it, and at its pod-resources."
    return Wait(silent_at) if situation.now < silent_at else _refused(desired, Refusal(USE_UNKNOWN, text))


def _carry_out(situation: Situation, desired: WantedDevice, card: CardFacts, found: Plan) -> SetupDecision:
    """Follow a plan once the hardware was queried for what is in use, too."""
    checked = _plan_around_use(situation, desired, card) if found.steps else found
    if isinstance(checked, Refusal):
        return _refused(desired, checked)
    if not isinstance(checked, Plan):
        return checked
    return _divide(situation, desired, card, checked) if checked.steps else _adopt(desired, card)


def _adopt(desired: WantedDevice, card: CardFacts) -> SetupDecision:
    assert card.uuid is not None, "a card that answers has a UUID"
    return actions.Adopt(desired.device, desired, card.address, card.uuid, unit_uuids(card, desired))


def _plan_around_use(
    situation: Situation, desired: WantedDevice, card: CardFacts
) -> Plan | Refusal | actions.QueryUsers:
    """The plan that spares what containers and processes use."""
    if card.address not in situation.processes:
        return actions.QueryUsers(desired.device, card.address)
    if situation.processes[card.address] is None:
        return Refusal(USE_UNKNOWN, "It is unknown which processes use the card; look at the node's driver.")
    return plan(state_of(situation, card), profile_of(desired))


def _divide(situation: Situation, desired: WantedDevice, card: CardFacts, found: Plan) -> SetupDecision:
    assert card.uuid is not None, "a card that answers has a UUID"
    return actions.Divide(desired.device, desired, card.address, card.uuid, state_of(situation, card), found.steps)


def _when_due(situation: Situation, desired: WantedDevice, then: Callable[[], SetupDecision]) -> SetupDecision:
    due_at = situation.due_at(desired.device, desired)
    return Wait(due_at) if situation.now < due_at else then()


def _applied(situation: Situation, desired: WantedDevice, held: HeldDevice) -> SetupDecision | None:
    outcome = Outcome(desired.pool, desired.asked_at, "applied", partitions(desired, held.uuids))
    is_reported = situation.state.outcomes.get(desired.device) == outcome
    return None if is_reported else actions.ReportOutcome(desired.device, desired, outcome)


def _refused(desired: WantedDevice, refusal: Refusal) -> SetupDecision:
    outcome = Outcome(desired.pool, desired.asked_at, "refused", reason=refusal.reason)
    return actions.ReportOutcome(desired.device, desired, outcome, refusal.message, failed=True)


def _card_missing(situation: Situation, desired: WantedDevice) -> SetupDecision:
    if situation.survey_error is not None:
        return _refused(desired, Refusal(CARD_MISSING, f"The driver does not answer: {situation.survey_error}"))
    survey = situation.survey or situation.board.survey
    if survey is not None and survey.driver_missing:
        text = "No driver answers; install it, or look into the kernel's log."
        return _refused(desired, Refusal(DRIVER_MISSING, text))
    named = desired.uuid or desired.pci_address or "without a name"
    silent = any(not responds(card) for card in cards(situation))
    text = "is not there, or does not answer" if silent else "is not in this node"
    return _refused(desired, Refusal(CARD_MISSING, f"The card {named} {text}; look at the node's driver and slots."))


def _constraint(
    situation: Situation, desired: WantedDevice, held: HeldDevice | None, card: CardFacts
) -> SetupDecision | None:
    """What keeps the card from this pool: another device holds it, or containers hold units of it by another name."""
    other = _other_holder(situation, desired, card)
    if other is not None:
        return _card_taken(situation, desired, other)
    text = "Containers hold units of the card that the pool, as it is now, would not offer; wait until they end."
    return _refused(desired, Refusal(IN_USE, text)) if _is_used_by_others(situation, desired, held, card) else None


def _card_taken(situation: Situation, desired: WantedDevice, other: str) -> SetupDecision:
    stays = any(each.device == other and not each.releasing for each in situation.board.desired or ())
    text = f"The card belongs to {other}, which a pool desires too; take one of the two out of its pool."
    return _refused(desired, Refusal(CARD_TAKEN, text)) if stays else Wait()


def _other_holder(situation: Situation, desired: WantedDevice, card: CardFacts) -> str | None:
    holders = (device for device, held in situation.state.held.items() if held.card == card.uuid)
    return next((device for device in holders if device != desired.device), None)


def _is_used_by_others(situation: Situation, desired: WantedDevice, held: HeldDevice | None, card: CardFacts) -> bool:
    """Whether containers hold units of the card that this pool would not offer."""
    ids = {each for uuid in unit_uuids(card, desired) for each in ids_of(uuid, desired.slices_per_unit)}
    return not (used(situation, card, held) or frozenset()) <= {(desired.resource, each) for each in ids}


def _is_same_setup(held: HeldDevice, desired: WantedDevice, card: CardFacts) -> bool:
    """Whether the present or former offer is what the pool desires."""
    return held.card == card.uuid and _terms(held.desired) == _terms(desired)


def _terms(desired: WantedDevice) -> tuple[object, ...]:
    return desired.pool, desired.resource, desired.unit, desired.mig_profile, desired.slices_per_unit


def _keeps_offers(found: Plan, held: HeldDevice) -> bool:
    """Whether a plan spares everything that is offered."""
    return all(
        isinstance(step, Create) or (isinstance(step, Destroy) and step.uuid not in held.uuids) for step in found.steps
    )
