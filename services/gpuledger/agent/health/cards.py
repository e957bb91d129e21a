"""The cards of a node, those that are there and those that left it unfit, and how they are told apart. Pure."""

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from gpuledger.agent.hardware.api import CardFacts, Survey
from gpuledger.agent.health.card import CardHealth, Rules
from gpuledger.agent.health.decide import Decision, away, passed
from gpuledger.agent.part import Fact, Moment
from gpuledger.events.node import CARDS_PER_NODE_MAX

DRIVER_MISSING: Final = "DriverMissing"
NOT_LOOKED_AT: Final = "NotLookedAt"
"""Why cards cannot be used that have no fault of their own."""

AWAY_MAX: Final = CARDS_PER_NODE_MAX
"""Cards that left the node unfit and are remembered, so that they are told to be fit when they come back so."""


class Cards(NamedTuple):
    """What is known of the health of cards: of those that are there by their address, and of others."""

    here: Mapping[str, CardHealth] = {}
    gone: tuple[CardHealth, ...] = ()

    def unfit(self, *, driver_missing: bool = False) -> dict[str, str]:
        """Why each card that is there and cannot be used is so, by address; one that nobody looked at cannot."""
        otherwise = DRIVER_MISSING if driver_missing else NOT_LOOKED_AT
        return {
            address: card.faults[0].kind if card.faults else otherwise
            for address, card in self.here.items()
            if card.faults or driver_missing or not card.is_known
        }


def surveyed(cards: Cards, survey: Survey) -> Cards:
    """These cards are there now. What is known of a card goes with its UUID, wherever it sits; else with its place."""
    known = [*cards.gone, *cards.here.values()]
    by_uuid = {card.uuid: card for card in known if card.uuid is not None}
    here: dict[str, CardHealth] = {}
    left = {id(card): card for card in known}
    for facts in survey.cards[:CARDS_PER_NODE_MAX]:
        found = (by_uuid.get(facts.uuid) if facts.uuid else None) or _at_place(known, facts)
        if found is not None and left.pop(id(found), None) is None:
            found = None  # two cards say that they are the same
        card = found or CardHealth(facts.address)
        here[facts.address] = card._replace(address=facts.address, uuid=facts.uuid or card.uuid)
    gone = (away(card)._replace(is_known=False) for card in left.values() if card.told is not None or card.windows)
    return Cards(here, tuple(gone)[-AWAY_MAX:])


def decided(cards: Cards, decision: Decision) -> Cards:
    """What is known once this was decided about a card that is there."""
    return cards._replace(here={**cards.here, decision.card.address: decision.card})


def time_passed(cards: Cards, now: Moment, rules: Rules) -> tuple[Cards, tuple[Fact, ...]]:
    """Time went on, for all cards."""
    here = {address: passed(card, now, rules) for address, card in cards.here.items()}
    gone = [passed(card, now, rules) for card in cards.gone]
    facts = _facts((*here.values(), *gone))
    if not facts and all(one.card is cards.here[address] for address, one in here.items()):
        return cards, ()
    left = tuple(one.card for one in gone if one.card.told is not None or one.card.windows)
    return Cards({address: one.card for address, one in here.items()}, left), facts


def _facts(decisions: Iterable[Decision]) -> tuple[Fact, ...]:
    return tuple(fact for decision in decisions for fact in decision.facts)


def _at_place(known: list[CardHealth], facts: CardFacts) -> CardHealth | None:
    """Who was last seen at the card's place, unless it was certainly another card."""
    at_place = (card for card in reversed(known) if card.address == facts.address)
    return next((card for card in at_place if facts.uuid is None or card.uuid is None), None)
