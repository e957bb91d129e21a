"""The `pools` service: which device belongs to which pool, and what pools offer, from what people and agents say."""

from gpuledger.deciders.pools.decide import on_fact
from gpuledger.domain.fact import Fact
from gpuledger.domain.pools.folds import HANDLERS
from gpuledger.domain.pools.rows import SPECS
from gpuledger.domain.pools.state import PoolFacts
from gpuledger.projection.definition import Decisions, Projection


class PoolsProjection(Projection):
    """Folds what was said of pools, devices and pods, and decides the assignments and capacities that follow."""

    name = "pools"
    version = 3
    specs = SPECS
    handlers = HANDLERS
    state_class = PoolFacts
    decides = True

    def decide(self, state: PoolFacts, fact: Fact) -> Decisions:
        """What follows from a fact."""
        return on_fact(state, fact)
