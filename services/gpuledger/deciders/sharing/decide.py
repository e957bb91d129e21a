"""Decides which devices nodes offer for sharing. Pure.

The decider works out the offers of the nodes that a fact touched, and decides only those that differ from the last.
"""

from collections.abc import Iterator

from gpuledger.deciders.sharing.offers import offer_of
from gpuledger.domain.fact import Fact
from gpuledger.domain.sharing.offered_folds import offer_text
from gpuledger.domain.sharing.offered_state import Offering
from gpuledger.projection.definition import Causation, Decision


def on_fact(state: Offering, fact: Fact) -> Iterator[Decision]:
    """The decisions that follow from a fact that was just folded."""
    causation = Causation(fact)
    for node in state.take_touched():
        offer, current = offer_of(state, node), state.offer.get(node)
        if offer is not None and (current is None or current.offer != offer_text(offer)):
            yield causation.decision(node, offer, current and current.changed_at)
