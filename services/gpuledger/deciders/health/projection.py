"""The `health` service: what health monitors report of nodes, and which nodes are set aside because of it."""

from datetime import datetime

from gpuledger.deciders.health.decide import on_assessed, on_due, on_fact
from gpuledger.domain.fact import Fact
from gpuledger.domain.quarantine.folds import HANDLERS
from gpuledger.domain.quarantine.rows import SPECS
from gpuledger.domain.quarantine.state import Quarantine
from gpuledger.events.envelope import with_payload
from gpuledger.events.quarantine import NodeFaultAssessed
from gpuledger.projection.definition import Decisions, Observed, Projection


class HealthProjection(Projection):
    """Folds rules, reports and Nodes, and decides which nodes to request maintenance of.

    It observes the log for its own assessments: they take effect where they stand in the log.
    """

    name = "health"
    version = 4
    specs = SPECS
    handlers = HANDLERS
    state_class = Quarantine
    decides = True
    observes = True
    observed_types = frozenset({NodeFaultAssessed.TYPE})

    def decide(self, state: Quarantine, fact: Fact) -> Decisions:
        """The decisions that follow from a fact."""
        return on_fact(state, fact)

    def observed(self, state: Quarantine, observed: Observed) -> Decisions:
        """The decisions that follow from an assessment, at its place in the log."""
        event = with_payload(observed.event)
        assert isinstance(event.data, NodeFaultAssessed), "the type says what the data is"
        return on_assessed(state, Fact(event, observed.sequence, observed.recorded_ns), event.data)

    def due(self, state: Quarantine, now: datetime) -> Decisions:
        """Record that the service has come to the faults that wait for it."""
        return on_due(state, now)
