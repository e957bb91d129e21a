"""How things stand with the node's devices at a moment, and what is to be known of one of them. Pure."""

from collections.abc import Mapping
from typing import Final, NamedTuple

from gpuledger.agent.board import BoardState
from gpuledger.agent.hardware.api import WHOLE_CARD, CardFacts, Survey
from gpuledger.agent.setup.offers import Used, used_of, uuids_used
from gpuledger.agent.setup.state import HeldDevice, SetupState
from gpuledger.agent.setup.timing import FailedAttempt, RetryConditions, conditions_of, ready_at
from gpuledger.domain.mig.plan import MigState
from gpuledger.events.node import WantedDevice

SETTLE_S: Final = 25.0
"""Units may be given away for so long after they were withdrawn: until the kubelet was told, and asked again.

It is told within some seconds, and asked every ten, for ten at most (`gpuledger.agent.kubelet.pod_resources`).
"""


class Situation(NamedTuple):
    """All that a decision depends on.

    `survey` is a look at the cards of just now; None: there is the board's alone, which may be out of date. `blind` is
    why such a look was tried in vain. `busy` are the instances that processes use at the moment, of the cards that were
    asked for it; None: nobody can tell. `withdrawn_at` is when units were withdrawn, `quiet_at` when what is wanted has
    not changed for long enough; both by the event loop's clock, like `now`.
    """

    board: BoardState
    memory: SetupState
    retries: Mapping[str, FailedAttempt]
    withdrawn_at: Mapping[str, float]
    now: float
    quiet_at: float
    survey: Survey | None = None
    blind: str | None = None
    busy: Mapping[str, frozenset[str] | None] = {}

    def settled_at(self, device: str) -> float:
        """From when on nobody gets a unit of the device any more; in the past where none was offered."""
        return self.withdrawn_at.get(device, self.now - SETTLE_S) + SETTLE_S

    def ready_at(self, device: str, wish: WantedDevice | None) -> float:
        """When to try again what did not work out for the device."""
        return ready_at(self.retries.get(device), wish, self.mark(device, wish))

    def mark(self, device: str, wish: WantedDevice | None) -> RetryConditions:
        """What an attempt depends on, as the board shows it."""
        held = self.memory.held.get(device)
        shown = self._replace(survey=None, blind=None)
        card = card_of(shown, wish, held)
        return conditions_of(card, used(shown, card, held))


def card_of(it: Situation, wish: WantedDevice | None, held: HeldDevice | None) -> CardFacts | None:
    """The card that a wish names, else the one that is held; None where it is not there or does not answer."""
    uuid, address = (wish.uuid, address_of(wish)) if wish else (held.card if held else None, None)
    if it.blind is not None:
        return None
    for card in cards(it):
        named = card.uuid == uuid if uuid is not None else card.address == address
        if responds(card) and named:
            return card
    return None


def responds(card: CardFacts) -> bool:
    """Whether a card answers. One that fell silent stands on the board as who it was, and with no mode of MIG."""
    return card.uuid is not None and (card.mig_enabled is not None or not card.profiles)


def is_gone(it: Situation, wish: WantedDevice | None, held: HeldDevice | None) -> bool:
    """Whether the card is certainly not in this node: a driver answers, and nothing silent is in its place."""
    survey = it.survey or it.board.survey
    if it.blind is not None or survey is None or survey.driver_missing or card_of(it, wish, held) is not None:
        return False
    address = held.address if held is not None else address_of(wish) if wish is not None else None
    silent = [card.address for card in survey.cards if not responds(card)]
    return address not in silent if address is not None else not silent


def is_replaced(it: Situation, held: HeldDevice) -> bool:
    """Whether another card answers where the one that is held was, which is nowhere else."""
    there = {card.uuid: card.address for card in cards(it) if card.uuid is not None}
    return held.card not in there and held.address in there.values()


def cards(it: Situation) -> tuple[CardFacts, ...]:
    """All cards as they were seen last."""
    survey = it.survey or it.board.survey
    return survey.cards if survey is not None else ()


def address_of(wish: WantedDevice) -> str | None:
    """A PCI address as the hardware has it: lower case, with a domain of four digits where that holds it."""
    if wish.pci_address is None:
        return None
    domain, _, rest = wish.pci_address.lower().partition(":")
    return f"{int(domain, 16):04x}:{rest}"


def used(it: Situation, card: CardFacts | None, held: HeldDevice | None) -> Used | None:
    """The units of a card that containers have; None where the kubelet has not said."""
    if it.board.in_use is None:
        return None
    return used_of(it.board.in_use, _uuids(card, held))


def state_of(it: Situation, card: CardFacts) -> MigState:
    """How the card is divided, and what of it containers and, as far as that was asked for, processes use."""
    containers = uuids_used(used(it, card, None) or frozenset(), _uuids(card, None))
    busy = {WHOLE_CARD if uuid == card.uuid else uuid for uuid in containers} | (it.busy.get(card.address) or set())
    return MigState(card.mig_enabled, card.mig_pending, card.profiles, card.instances, frozenset(busy))


def _uuids(card: CardFacts | None, held: HeldDevice | None) -> frozenset[str]:
    seen = [card.uuid, *(each.uuid for each in card.instances)] if card is not None else []
    kept = [held.card, *held.uuids] if held is not None else []
    return frozenset(uuid for uuid in [*seen, *kept] if uuid is not None)
