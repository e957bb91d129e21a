"""Everything that a decision of setup depends on, and the questions that decisions ask of it. Pure."""

from collections.abc import Mapping
from typing import Final, NamedTuple

from gpuledger.agent.board import BoardState
from gpuledger.agent.hardware.api import WHOLE_CARD, CardFacts, Survey
from gpuledger.agent.setup.offers import Used, used_of, uuids_used
from gpuledger.agent.setup.state import HeldDevice, SetupState
from gpuledger.agent.setup.timing import FailedAttempt, RetryConditions, conditions_of, due_at
from gpuledger.domain.mig.plan import MigState
from gpuledger.events.node import WantedDevice

SETTLE_S: Final = 25.0
"""How long after a withdrawal the kubelet may still allocate the units: until it has the new list, and was polled
again.

It gets the list within seconds, and is polled every ten, for ten at most (`gpuledger.agent.kubelet.pod_resources`)."""


class Situation(NamedTuple):
    """The input of a decision.

    `survey` is a fresh survey of the cards, None where only the board's is known, which may be out of date;
    `survey_error` is why a fresh one failed. `processes` are the instances that processes use, of the cards that were
    queried; None: unknown. Units were withdrawn at `withdrawn_at`, and the desired devices count from `debounced_at`
    on; both by the event loop's clock, like `now`.
    """

    board: BoardState
    state: SetupState
    retries: Mapping[str, FailedAttempt]
    withdrawn_at: Mapping[str, float]
    now: float
    debounced_at: float
    survey: Survey | None = None
    survey_error: str | None = None
    processes: Mapping[str, frozenset[str] | None] = {}

    def settled_at(self, device: str) -> float:
        """From when on no container gets a unit of the device; now where none was withdrawn."""
        withdrawn_at = self.withdrawn_at.get(device)
        return self.now if withdrawn_at is None else withdrawn_at + SETTLE_S

    def due_at(self, device: str, desired: WantedDevice | None) -> float:
        """When the next attempt with the device is due."""
        return due_at(self.retries.get(device), desired, self.conditions(device, desired))

    def conditions(self, device: str, desired: WantedDevice | None) -> RetryConditions:
        """The conditions of an attempt, as the board shows them."""
        held = self.state.held.get(device)
        shown = self._replace(survey=None, survey_error=None)
        card = card_of(shown, desired, held)
        return conditions_of(card, used(shown, card, held))


def card_of(situation: Situation, desired: WantedDevice | None, held: HeldDevice | None) -> CardFacts | None:
    """The card that is desired, else the one that is held; None where it is missing or silent."""
    uuid, address = (desired.uuid, address_of(desired)) if desired else (held.card if held else None, None)
    if situation.survey_error is not None:
        return None
    for card in cards(situation):
        named = card.uuid == uuid if uuid is not None else card.address == address
        if responds(card) and named:
            return card
    return None


def responds(card: CardFacts) -> bool:
    """Whether a card answers; one that fell silent has its identity on the board, but no MIG mode."""
    return card.uuid is not None and (card.mig_enabled is not None or not card.profiles)


def is_card_gone(situation: Situation, desired: WantedDevice | None, held: HeldDevice | None) -> bool:
    """Whether the card is certainly not in this node: a driver answers, and no silent card is in its place."""
    survey = situation.survey or situation.board.survey
    if (
        situation.survey_error is not None
        or survey is None
        or survey.driver_missing
        or card_of(situation, desired, held) is not None
    ):
        return False
    address = held.address if held is not None else address_of(desired) if desired is not None else None
    silent = [card.address for card in survey.cards if not responds(card)]
    return address not in silent if address is not None else not silent


def is_card_replaced(situation: Situation, held: HeldDevice) -> bool:
    """Whether another card answers in the place of the held one, which is nowhere else."""
    there = {card.uuid: card.address for card in cards(situation) if card.uuid is not None}
    return held.card not in there and held.address in there.values()


def cards(situation: Situation) -> tuple[CardFacts, ...]:
    """All cards of the latest survey."""
    survey = situation.survey or situation.board.survey
    return survey.cards if survey is not None else ()


def address_of(desired: WantedDevice) -> str | None:
    """The PCI address in the hardware's form: lower case, with a domain of four digits where that suffices."""
    if desired.pci_address is None:
        return None
    domain, _, rest = desired.pci_address.lower().partition(":")
    return f"{int(domain, 16):04x}:{rest}"


def used(situation: Situation, card: CardFacts | None, held: HeldDevice | None) -> Used | None:
    """The units of a card that containers hold; None where the kubelet has not listed them."""
    if situation.board.in_use is None:
        return None
    return used_of(situation.board.in_use, _uuids(card, held))


def state_of(situation: Situation, card: CardFacts) -> MigState:
    """How the card is partitioned, and which parts containers and, where that was queried, processes use."""
    containers = uuids_used(used(situation, card, None) or frozenset(), _uuids(card, None))
    processes = {WHOLE_CARD if uuid == card.uuid else uuid for uuid in containers} | (
        situation.processes.get(card.address) or set()
    )
    return MigState(card.mig_enabled, card.mig_pending, card.profiles, card.instances, frozenset(processes))


def _uuids(card: CardFacts | None, held: HeldDevice | None) -> frozenset[str]:
    present = [card.uuid, *(each.uuid for each in card.instances)] if card is not None else []
    stored = [held.card, *held.uuids] if held is not None else []
    return frozenset(uuid for uuid in [*present, *stored] if uuid is not None)
