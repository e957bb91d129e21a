"""How a device is taken back from a pool: withdrawn, waited for, cleared, forgotten and told. Pure."""

from gpuledger.agent.hardware.api import CardFacts
from gpuledger.agent.setup import actions
from gpuledger.agent.setup.actions import Action, Wait
from gpuledger.agent.setup.situation import Situation, card_of, is_gone, state_of, used
from gpuledger.agent.setup.state import Outcome
from gpuledger.domain.mig.plan import Refusal, plan
from gpuledger.events.node import WantedDevice

Choice = Action | Wait


def decide(it: Situation, device: str, wish: WantedDevice | None) -> Choice:
    """The next step with a device that a pool gives back, or (`wish` None) that nobody wants any more."""
    held = it.memory.held.get(device)
    if held is not None and held.offered:
        return actions.Withdraw(device, wish)
    if held is None and wish is not None and it.memory.told.get(device) == _released(wish):
        return Wait()
    later = max(it.settled_at(device), it.ready_at(device, wish))
    if it.now < later:
        return Wait(later)
    return _taken_back(it, device, wish)


def _taken_back(it: Situation, device: str, wish: WantedDevice | None) -> Choice:
    held = it.memory.held.get(device)
    by = None if held is not None else wish
    card = card_of(it, by, held)
    gone = is_gone(it, by, held)
    if card is None and not gone:
        return Wait()
    if gone or (card is not None and _is_anothers(it, device, card)):
        return _release(it, device, wish) if used(it, None, held) == frozenset() else Wait()
    assert card is not None, "a card that is not gone and not silent is there"
    return _cleared(it, device, wish, card) if used(it, card, held) == frozenset() else Wait()


def _cleared(it: Situation, device: str, wish: WantedDevice | None, card: CardFacts) -> Choice:
    if card.address not in it.busy:
        return actions.Look(device, card.address)
    if it.busy[card.address] != frozenset():
        return actions.Postpone(device, wish, "Processes use the card, or nobody can tell.")
    found = plan(state_of(it, card), None)
    if isinstance(found, Refusal):
        return actions.Postpone(device, wish, found.message)
    if found.steps:
        return actions.Clear(device, wish, card.address, card.uuid or "", state_of(it, card), found.steps)
    return _release(it, device, wish)


def _release(it: Situation, device: str, wish: WantedDevice | None) -> Choice:
    held = it.memory.held.get(device)
    asked = wish or (held.wish if held is not None and held.wish.releasing else None)
    return actions.Release(device, _released(asked) if asked is not None else None)


def _released(wish: WantedDevice) -> Outcome:
    return Outcome(wish.pool, wish.asked_at, "released")


def _is_anothers(it: Situation, device: str, card: CardFacts) -> bool:
    return any(held.card == card.uuid for other, held in it.memory.held.items() if other != device)
