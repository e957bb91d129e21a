"""The `remediation` service: which nodes that are set aside get which remedy, and where a person has to look."""

from datetime import datetime

from gpuledger.deciders.remediation.decide import on_assessed, on_due, on_fact
from gpuledger.domain.fact import Fact
from gpuledger.domain.remediation.folds import HANDLERS
from gpuledger.domain.remediation.rows import SPECS
from gpuledger.domain.remediation.state import Remediations
from gpuledger.events.envelope import with_payload
from gpuledger.events.remediation import RemediationAssessed
from gpuledger.projection.definition import Decisions, Observed, Projection


class RemediationProjection(Projection):
    """Folds remedies, faults, and how far nodes are set aside, and decides what is done about it.

    It observes the log for its own assessments: they take effect where they stand in the log.
    """

    name = "remediation"
    version = 2
    specs = SPECS
    handlers = HANDLERS
    state_class = Remediations
    decides = True
    observes = True
    observed_types = frozenset({RemediationAssessed.TYPE})

    def decide(self, state: Remediations, fact: Fact) -> Decisions:
        """The decisions that follow from a fact."""
        return on_fact(state, fact)

    def observed(self, state: Remediations, observed: Observed) -> Decisions:
        """The decisions that follow from an assessment, at its place in the log."""
        event = with_payload(observed.event)
        assert isinstance(event.data, RemediationAssessed), "the type says what the data is"
        return on_assessed(state, Fact(event, observed.sequence, observed.recorded_ns), event.data)

    def due(self, state: Remediations, now: datetime) -> Decisions:
        """Record that the service has come to the nodes that are ready for a remedy."""
        return on_due(state, now)
