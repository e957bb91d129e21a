"""The recorded pools, folded so that a supposed world hears the same facts: each once, and no decision of our own."""

from collections.abc import Callable

from gpuledger.deciders.pools.projection import PoolsProjection
from gpuledger.domain.fact import Fact
from gpuledger.domain.pools.state import PoolFacts
from gpuledger.projection.definition import Decisions


def _nobody(_fact: Fact, _recorded: PoolFacts) -> None:
    """Nobody hears."""


class HeardPools(PoolsProjection):
    """Folds and decides as the service does; `hear` is told of every fact before it is decided upon."""

    def __init__(self) -> None:
        self.hear: Callable[[Fact, PoolFacts], None] = _nobody

    def decide(self, state: PoolFacts, fact: Fact) -> Decisions:
        """What follows from a fact."""
        self.hear(fact, state)
        return super().decide(state, fact)
