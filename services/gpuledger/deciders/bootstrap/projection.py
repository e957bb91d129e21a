"""The `bootstrap` service: how far nodes and their GPUs are prepared, from what watchers, agents and inventory tell."""

from datetime import datetime

from gpuledger.deciders.bootstrap.decide import on_fact, on_waited
from gpuledger.deciders.bootstrap.timeouts import on_due
from gpuledger.domain.bootstrap import facts as bootstrap_facts
from gpuledger.domain.bootstrap import folds as bootstrap_folds
from gpuledger.domain.fact import Fact
from gpuledger.events.envelope import with_payload
from gpuledger.events.node import NodeBootstrapWaited
from gpuledger.projection.definition import Decisions, Observed, Projection


class BootstrapProjection(Projection):
    """Folds what was said of nodes, components and cards, and decides phases, conditions and states.

    It observes the log for its own records of waits: what was decided by the clock counts from where it stands there.
    """

    name = "bootstrap"
    version = 3
    specs = bootstrap_facts.SPECS
    handlers = bootstrap_folds.HANDLERS
    decides = True
    observes = True

    def new_state(self) -> bootstrap_facts.BootstrapFacts:
        """An empty state."""
        return bootstrap_facts.BootstrapFacts()

    def decide(self, state: bootstrap_facts.BootstrapFacts, fact: Fact) -> Decisions:
        """What follows from a fact."""
        return on_fact(state, fact)

    def observed(self, state: bootstrap_facts.BootstrapFacts, observed: Observed) -> Decisions:
        """What follows from a wait that was over, at the place where the log says so."""
        if observed.event.type != NodeBootstrapWaited.TYPE:
            return ()
        event = with_payload(observed.event)
        assert isinstance(event.data, NodeBootstrapWaited), "the type says what the data is"
        return on_waited(state, Fact(event, observed.position.sequence, observed.recorded_ns), event.data)

    def due(self, state: bootstrap_facts.BootstrapFacts, now: datetime) -> Decisions:
        """Record the waits that are over."""
        return on_due(state, now)
