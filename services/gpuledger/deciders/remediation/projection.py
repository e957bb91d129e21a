"""The `remediation` service: which nodes that are set aside get which remedy, and where a person has to look."""

from gpuledger.deciders.remediation.decide import on_assessed, on_due, on_fact
from gpuledger.domain.remediation.folds import HANDLERS
from gpuledger.domain.remediation.rows import SPECS
from gpuledger.domain.remediation.state import Remediations
from gpuledger.events.remediation import RemediationAssessed
from gpuledger.projection.timed_decider import TimedDecider, TimedDecisions


class RemediationProjection(TimedDecider):
    """Folds remedies, faults, and how far nodes are set aside, and decides what is done about it.

    The assessment of a node that is ready for a remedy takes effect where it stands in the log.
    """

    name = "remediation"
    version = 3
    specs = SPECS
    handlers = HANDLERS
    state_class = Remediations
    decisions = TimedDecisions(on_fact, on_due, RemediationAssessed, on_assessed)
