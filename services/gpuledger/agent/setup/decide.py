"""What is to be done next with the node's devices for pools. Pure: it looks at nothing and waits for nothing.

One step at a time, and the next is decided on how things stand after it, so that nothing depends on what an earlier
step was expected to do. Nothing that is in use is ever taken back or divided anew.
"""

from collections.abc import Callable, Iterator
from typing import Final

from gpuledger.agent.hardware.api import CardFacts
from gpuledger.agent.setup import actions, release
from gpuledger.agent.setup.actions import Action, Wait
from gpuledger.agent.setup.offers import ids_of, partitions, profile_of, unit_uuids
from gpuledger.agent.setup.situation import Situation, card_of, cards, is_replaced, responds, state_of, used
from gpuledger.agent.setup.state import HeldDevice, Outcome
from gpuledger.domain.mig.plan import IN_USE, Create, Destroy, Plan, Refusal, plan
from gpuledger.events.node import WantedDevice

CARD_MISSING: Final = "CardMissing"
CARD_TAKEN: Final = "CardTaken"
DRIVER_MISSING: Final = "DriverMissing"
USE_UNKNOWN: Final = "UseUnknown"

KUBELET_SILENT_S: Final = 120.0
"""A kubelet that has not said for so long who has which units is told of; in the first moments it never has."""

Choice = Action | Wait


def decide(it: Situation) -> Choice:
    """The next step: what is to leave is withdrawn at once, then offers become true again, and then comes all else."""
    until: list[float] = []
    for choose in (_withdrawn, _refreshed, _next):
        for choice in choose(it):
            if not isinstance(choice, Wait):
                return choice
            until += [choice.until] if choice.until is not None else []
    return Wait(min(until, default=None))


def _refreshed(it: Situation) -> Iterator[Choice]:
    for device, held in sorted(it.memory.held.items()):
        card = card_of(it, None, held)
        if held.offered and card is not None:
            uuids = unit_uuids(card, held.wish)
            if (card.address, uuids) != (held.address, held.uuids):
                yield actions.Refresh(device, card.address, uuids)


def _withdrawn(it: Situation) -> Iterator[Choice]:
    for wish in it.board.desired or ():
        held = it.memory.held.get(wish.device)
        if wish.releasing and held is not None and held.offered:
            yield actions.Withdraw(wish.device, wish)
    for device, held in sorted(it.memory.held.items()):
        if held.offered and is_replaced(it, held):
            yield actions.Withdraw(device, None)


def _next(it: Situation) -> Iterator[Choice]:
    if it.board.desired is None or (it.board.survey is None and it.survey is None):
        return
    if it.now < it.quiet_at:
        yield Wait(it.quiet_at)
        return
    wanted = {wish.device: wish for wish in it.board.desired}
    for device in sorted(it.memory.held.keys() - wanted.keys()):
        yield release.decide(it, device, None)
    for wish in it.board.desired:
        yield release.decide(it, wish.device, wish) if wish.releasing else _of_wanted(it, wish)


def _of_wanted(it: Situation, wish: WantedDevice) -> Choice:
    held = it.memory.held.get(wish.device)
    if held is None or not held.offered:
        return _set_up(it, wish, held)
    card = card_of(it, wish, held)
    if card is None:
        told = it.memory.told.get(wish.device)
        return Wait() if told is not None and told.asked_at == wish.asked_at else _missing(it, wish)
    if not _goes_on(held, wish, card):
        return actions.Withdraw(wish.device, wish)
    return _kept(it, wish, held, card)


def _kept(it: Situation, wish: WantedDevice, held: HeldDevice, card: CardFacts) -> Choice:
    """What a device needs that is offered as its pool wants it: mostly nothing, else to be divided again."""
    found = plan(state_of(it, card), profile_of(wish))
    if isinstance(found, Plan) and not found.steps:
        return _applied(it, wish, held) or Wait()
    choice = _repaired(it, wish, held, card)
    if isinstance(choice, actions.Divide | actions.Look | actions.Withdraw):
        return choice
    told = it.memory.told.get(wish.device)
    if held.uuids or (told is not None and (told.word, told.asked_at) == ("applied", wish.asked_at)):
        return _applied(it, wish, held) or choice
    return choice


def _repaired(it: Situation, wish: WantedDevice, held: HeldDevice, card: CardFacts) -> Choice:
    """How a card that somebody else divided is brought back, around what is in use of it."""
    settled_at = it.settled_at(wish.device)
    if not held.uuids and it.now < settled_at:
        return Wait(settled_at)
    return _when_ready(it, wish, lambda: _around(it, wish, held, card)) if _is_known(it) else Wait()


def _around(it: Situation, wish: WantedDevice, held: HeldDevice, card: CardFacts) -> Choice:
    found = _looked(it, wish, card)
    if isinstance(found, actions.Look):
        return found
    if isinstance(found, Refusal):
        return actions.Postpone(wish.device, wish, found.message) if held.uuids else _refused(wish, found)
    if not found.steps:
        return actions.Postpone(wish.device, wish, "The rest of the card is in use.")
    if held.uuids and not _is_gentle(found, held):
        if used(it, card, held) or it.busy.get(card.address):
            return actions.Postpone(wish.device, wish, "The card is to be divided anew once nothing of it is in use.")
        return actions.Withdraw(wish.device, wish)
    return _divide(it, wish, card, found)


def _set_up(it: Situation, wish: WantedDevice, held: HeldDevice | None) -> Choice:
    return _when_ready(it, wish, lambda: _begun(it, wish, held))


def _begun(it: Situation, wish: WantedDevice, held: HeldDevice | None) -> Choice:
    card = card_of(it, wish, held)
    if card is None:
        return _missing(it, wish)
    hindrance = _hindrance(it, wish, held, card)
    if hindrance is not None:
        return hindrance
    found = plan(state_of(it, card), profile_of(wish))
    if isinstance(found, Refusal):
        return _refused(wish, found)
    if not found.steps and _is_known(it) and (held is None or _goes_on(held, wish, card)):
        return _adopted(wish, card)
    if not _is_known(it):
        return _kubelet_silent(it, wish)
    settled_at = it.settled_at(wish.device)
    return Wait(settled_at) if it.now < settled_at else _carried_out(it, wish, card, found)


def _kubelet_silent(it: Situation, wish: WantedDevice) -> Choice:
    silent_at = it.quiet_at + KUBELET_SILENT_S
    text = "The kubelet does not say which containers have units of the card; look at it, and at its pod-resources."
    return Wait(silent_at) if it.now < silent_at else _refused(wish, Refusal(USE_UNKNOWN, text))


def _carried_out(it: Situation, wish: WantedDevice, card: CardFacts, found: Plan) -> Choice:
    """A plan that was made without asking the hardware what is in use, once that was asked too."""
    on_readings = _looked(it, wish, card) if found.steps else found
    if isinstance(on_readings, Refusal):
        return _refused(wish, on_readings)
    if not isinstance(on_readings, Plan):
        return on_readings
    return _divide(it, wish, card, on_readings) if on_readings.steps else _adopted(wish, card)


def _adopted(wish: WantedDevice, card: CardFacts) -> Choice:
    assert card.uuid is not None, "a card that answers has a UUID"
    return actions.Adopt(wish.device, wish, card.address, card.uuid, unit_uuids(card, wish))


def _looked(it: Situation, wish: WantedDevice, card: CardFacts) -> Plan | Refusal | actions.Look:
    """The plan that leaves alone what containers and processes use."""
    if card.address not in it.busy:
        return actions.Look(wish.device, card.address)
    if it.busy[card.address] is None:
        return Refusal(USE_UNKNOWN, "Nobody can tell which processes use the card; look at the node's driver.")
    return plan(state_of(it, card), profile_of(wish))


def _divide(it: Situation, wish: WantedDevice, card: CardFacts, found: Plan) -> Choice:
    assert card.uuid is not None, "a card that answers has a UUID"
    return actions.Divide(wish.device, wish, card.address, card.uuid, state_of(it, card), found.steps)


def _when_ready(it: Situation, wish: WantedDevice, then: Callable[[], Choice]) -> Choice:
    ready_at = it.ready_at(wish.device, wish)
    return Wait(ready_at) if it.now < ready_at else then()


def _applied(it: Situation, wish: WantedDevice, held: HeldDevice) -> Choice | None:
    told = Outcome(wish.pool, wish.asked_at, "applied", partitions(wish, held.uuids))
    return actions.Say(wish.device, wish, told) if it.memory.told.get(wish.device) != told else None


def _refused(wish: WantedDevice, refusal: Refusal) -> Choice:
    told = Outcome(wish.pool, wish.asked_at, "refused", reason=refusal.reason)
    return actions.Say(wish.device, wish, told, refusal.message, failed=True)


def _missing(it: Situation, wish: WantedDevice) -> Choice:
    if it.blind is not None:
        return _refused(wish, Refusal(CARD_MISSING, f"The driver does not answer: {it.blind}"))
    survey = it.survey or it.board.survey
    if survey is not None and survey.driver_missing:
        return _refused(wish, Refusal(DRIVER_MISSING, "No driver answers; install it, or look into the kernel's log."))
    named = wish.uuid or wish.pci_address or "which nobody names"
    silent = any(not responds(card) for card in cards(it))
    text = "is not there, or does not answer" if silent else "is not in this node"
    return _refused(wish, Refusal(CARD_MISSING, f"The card {named} {text}; look at the node's driver and slots."))


def _hindrance(it: Situation, wish: WantedDevice, held: HeldDevice | None, card: CardFacts) -> Choice | None:
    """What keeps the card from this pool: another device has it, or containers have units of it by another name."""
    other = _other_holder(it, wish, card)
    if other is not None:
        return _taken(it, wish, other)
    text = "Containers have units of the card that are none of this pool's, as it is now; wait until they end."
    return _refused(wish, Refusal(IN_USE, text)) if _is_strangers(it, wish, held, card) else None


def _taken(it: Situation, wish: WantedDevice, other: str) -> Choice:
    stays = any(each.device == other and not each.releasing for each in it.board.desired or ())
    text = f"The card is {other}'s, which a pool wants too; take one of the two out of its pool."
    return _refused(wish, Refusal(CARD_TAKEN, text)) if stays else Wait()


def _other_holder(it: Situation, wish: WantedDevice, card: CardFacts) -> str | None:
    holders = (device for device, held in it.memory.held.items() if held.card == card.uuid and device != wish.device)
    return next(holders, None)


def _is_strangers(it: Situation, wish: WantedDevice, held: HeldDevice | None, card: CardFacts) -> bool:
    """Whether containers have units of the card that would not be units of this pool's."""
    mine = {(wish.resource, each) for uuid in unit_uuids(card, wish) for each in ids_of(uuid, wish.slices_per_unit)}
    return not (used(it, card, held) or frozenset()) <= mine


def _goes_on(held: HeldDevice, wish: WantedDevice, card: CardFacts) -> bool:
    """Whether what is offered, or was, is what the pool wants."""
    return held.card == card.uuid and _terms(held.wish) == _terms(wish)


def _terms(wish: WantedDevice) -> tuple[object, ...]:
    return wish.pool, wish.resource, wish.unit, wish.mig_profile, wish.slices_per_unit


def _is_gentle(found: Plan, held: HeldDevice) -> bool:
    """Whether a plan leaves everything alone that is offered."""
    return all(
        isinstance(step, Create) or (isinstance(step, Destroy) and step.uuid not in held.uuids) for step in found.steps
    )


def _is_known(it: Situation) -> bool:
    return it.board.in_use is not None
