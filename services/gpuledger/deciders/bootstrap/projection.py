"""The `bootstrap` service: decides how far nodes and their GPUs are prepared."""

from datetime import datetime

from gpuledger.deciders.bootstrap.decide import on_fact, on_timeout
from gpuledger.deciders.bootstrap.timeouts import on_due
from gpuledger.domain.bootstrap import facts as bootstrap_facts
from gpuledger.domain.bootstrap import folds as bootstrap_folds
from gpuledger.domain.fact import Fact
from gpuledger.events.envelope import with_payload
from gpuledger.events.node import NodeBootstrapWaited
from gpuledger.projection.definition import Decisions, Observed, Projection


class BootstrapProjection(Projection):
    """Folds facts about nodes, components and cards, and decides phases, conditions and states.

    It observes the log for its own recorded timeouts: a timeout takes effect where it stands in the log.
    """

    name = "bootstrap"
    version = 7
    same_rows_as = (6,)
    specs = bootstrap_facts.SPECS
    handlers = bootstrap_folds.HANDLERS
    state_class = bootstrap_facts.BootstrapFacts
    decides = True
    observes = True
    observed_types = frozenset({NodeBootstrapWaited.TYPE})

    def decide(self, state: bootstrap_facts.BootstrapFacts, fact: Fact) -> Decisions:
        """The decisions that follow from a fact."""
        return on_fact(state, fact)

    def observed(self, state: bootstrap_facts.BootstrapFacts, observed: Observed) -> Decisions:
        """The decisions that follow from a recorded timeout, at its place in the log."""
        event = with_payload(observed.event)
        assert isinstance(event.data, NodeBootstrapWaited), "the type says what the data is"
        return on_timeout(state, Fact(event, observed.sequence, observed.recorded_ns), event.data)

    def due(self, state: bootstrap_facts.BootstrapFacts, now: datetime) -> Decisions:
        """Record the timeouts of waits that have lasted too long."""
        return on_due(state, now)
