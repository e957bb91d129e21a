"""The `sharing` service: decides which devices each node offers for sharing."""

from gpuledger.deciders.sharing.decide import on_fact
from gpuledger.domain.fact import Fact
from gpuledger.domain.sharing.offered_folds import HANDLERS
from gpuledger.domain.sharing.offered_rows import SPECS
from gpuledger.domain.sharing.offered_state import Offering
from gpuledger.projection.definition import Decisions, Projection


class SharingProjection(Projection):
    """Folds labels, hardware and owners of cards, and decides what nodes offer."""

    name = "sharing"
    version = 3
    specs = SPECS
    handlers = HANDLERS
    state_class = Offering
    decides = True

    def decide(self, state: Offering, fact: Fact) -> Decisions:
        """The decisions that follow from a fact."""
        return on_fact(state, fact)
