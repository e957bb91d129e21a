"""Decides the next step that takes a device back from its pool: withdraw, wait, clear, forget and report. Pure."""

from gpuledger.agent.hardware.api import CardFacts
from gpuledger.agent.setup import actions
from gpuledger.agent.setup.actions import SetupDecision, Wait
from gpuledger.agent.setup.situation import Situation, card_of, is_card_gone, state_of, used
from gpuledger.agent.setup.state import Outcome
from gpuledger.domain.mig.plan import Refusal, plan
from gpuledger.events.node import WantedDevice


def decide(situation: Situation, device: str, desired: WantedDevice | None) -> SetupDecision:
    """The next step with a device that a pool releases, or (`desired` None) that no pool desires any more."""
    held = situation.state.held.get(device)
    if held is not None and held.offered:
        return actions.Withdraw(device, desired)
    if held is None and desired is not None and situation.state.outcomes.get(device) == _released(desired):
        return Wait()
    later = max(situation.settled_at(device), situation.due_at(device, desired))
    if situation.now < later:
        return Wait(later)
    return _take_back(situation, device, desired)


def _take_back(situation: Situation, device: str, desired: WantedDevice | None) -> SetupDecision:
    held = situation.state.held.get(device)
    by = None if held is not None else desired
    card = card_of(situation, by, held)
    gone = is_card_gone(situation, by, held)
    if card is None and not gone:
        return Wait()
    if gone or (card is not None and _is_held_by_other(situation, device, card)):
        return _release(situation, device, desired) if used(situation, None, held) == frozenset() else Wait()
    assert card is not None, "a card that is neither gone nor silent is present"
    return _clear(situation, device, desired, card) if used(situation, card, held) == frozenset() else Wait()


def _clear(situation: Situation, device: str, desired: WantedDevice | None, card: CardFacts) -> SetupDecision:
    if card.address not in situation.processes:
        return actions.QueryUsers(device, card.address)
    if situation.processes[card.address] != frozenset():
        return actions.Postpone(device, desired, "Processes use the card, or it is unknown whether any do.")
    found = plan(state_of(situation, card), None)
    if isinstance(found, Refusal):
        return actions.Postpone(device, desired, found.message)
    if found.steps:
        return actions.Clear(device, desired, card.address, card.uuid or "", state_of(situation, card), found.steps)
    return _release(situation, device, desired)


def _release(situation: Situation, device: str, desired: WantedDevice | None) -> SetupDecision:
    held = situation.state.held.get(device)
    request = desired or (held.desired if held is not None and held.desired.releasing else None)
    return actions.Release(device, _released(request) if request is not None else None)


def _released(desired: WantedDevice) -> Outcome:
    return Outcome(desired.pool, desired.asked_at, "released")


def _is_held_by_other(situation: Situation, device: str, card: CardFacts) -> bool:
    return any(held.card == card.uuid for other, held in situation.state.held.items() if other != device)
