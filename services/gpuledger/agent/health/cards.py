"""The health of all cards of a node, and which card in a survey is which of them. Pure."""

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from gpuledger.agent.hardware.api import CardFacts, Survey
from gpuledger.agent.health.card import CardHealth, Rules
from gpuledger.agent.health.decide import HealthDecision, mark_absent, on_time
from gpuledger.agent.part import AgentFact
from gpuledger.events.node import CARDS_PER_NODE_MAX
from gpuledger.runtime.clock import Instant

DRIVER_MISSING: Final = "DriverMissing"
NOT_LOOKED_AT: Final = "NotLookedAt"
"""Why cards without a fault of their own cannot be used."""

ABSENT_MAX: Final = CARDS_PER_NODE_MAX
"""How many cards that left the node unfit are remembered, so that they are reported fit when they return healthy."""


class NodeCards(NamedTuple):
    """The health of the cards that are present, by address, and of those that left."""

    here: Mapping[str, CardHealth] = {}
    gone: tuple[CardHealth, ...] = ()

    def unfit(self, *, driver_missing: bool = False) -> dict[str, str]:
        """Why each present card that cannot be used is so, by address; a card that was never polled cannot be used."""
        otherwise = DRIVER_MISSING if driver_missing else NOT_LOOKED_AT
        return {
            address: card.faults[0].kind if card.faults else otherwise
            for address, card in self.here.items()
            if card.faults or driver_missing or not card.is_reported
        }


def with_survey(cards: NodeCards, survey: Survey) -> NodeCards:
    """The cards of a survey are present now. Health follows a card's UUID; without one it stays in its slot."""
    before = [*cards.gone, *cards.here.values()]
    by_uuid = {card.uuid: card for card in before if card.uuid is not None}
    here: dict[str, CardHealth] = {}
    left = {id(card): card for card in before}
    for facts in survey.cards[:CARDS_PER_NODE_MAX]:
        found = (by_uuid.get(facts.uuid) if facts.uuid else None) or _at_place(before, facts)
        if found is not None and left.pop(id(found), None) is None:
            found = None  # two cards claim the same UUID
        card = found or CardHealth(facts.address)
        here[facts.address] = card._replace(address=facts.address, uuid=facts.uuid or card.uuid)
    gone = (mark_absent(card)._replace(is_reported=False) for card in left.values() if _is_remembered(card))
    return NodeCards(here, tuple(gone)[-ABSENT_MAX:])


def with_decision(cards: NodeCards, decision: HealthDecision) -> NodeCards:
    """The cards after a decision about a present one."""
    return cards._replace(here={**cards.here, decision.card.address: decision.card})


def on_time_all(cards: NodeCards, now: Instant, rules: Rules) -> tuple[NodeCards, tuple[AgentFact, ...]]:
    """Apply the passing of time to all cards."""
    here = {address: on_time(card, now, rules) for address, card in cards.here.items()}
    gone = [on_time(card, now, rules) for card in cards.gone]
    facts = _facts((*here.values(), *gone))
    if not facts and all(one.card is cards.here[address] for address, one in here.items()):
        return cards, ()
    left = tuple(one.card for one in gone if _is_remembered(one.card))
    return NodeCards({address: one.card for address, one in here.items()}, left), facts


def _is_remembered(card: CardHealth) -> bool:
    return card.unfit_subject is not None or bool(card.windows)


def _facts(decisions: Iterable[HealthDecision]) -> tuple[AgentFact, ...]:
    return tuple(fact for decision in decisions for fact in decision.facts)


def _at_place(before: list[CardHealth], facts: CardFacts) -> CardHealth | None:
    """The card last seen at the address, unless it certainly was another one."""
    at_place = (card for card in reversed(before) if card.address == facts.address)
    return next((card for card in at_place if facts.uuid is None or card.uuid is None), None)
