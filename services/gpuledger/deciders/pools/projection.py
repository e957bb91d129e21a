"""The `pools` service: decides which device belongs to which pool, and what pools offer."""

from gpuledger.deciders.pools.decide import on_fact
from gpuledger.domain.fact import Fact
from gpuledger.domain.pools.folds import HANDLERS
from gpuledger.domain.pools.rows import SPECS
from gpuledger.domain.pools.state import PoolFacts
from gpuledger.projection.definition import Decisions, Projection


class PoolsProjection(Projection):
    """Folds facts about pools, devices and pods, and decides the assignments and capacities that follow."""

    name = "pools"
    version = 9
    specs = SPECS
    handlers = HANDLERS
    state_class = PoolFacts
    decides = True

    def decide(self, state: PoolFacts, fact: Fact) -> Decisions:
        """The decisions that follow from a fact."""
        return on_fact(state, fact)
