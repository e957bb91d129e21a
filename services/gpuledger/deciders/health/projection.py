"""The `health` service: what health monitors report of nodes, and which nodes are set aside because of it."""

from gpuledger.deciders.health.decide import on_assessed, on_due, on_fact
from gpuledger.domain.quarantine.folds import HANDLERS
from gpuledger.domain.quarantine.rows import SPECS
from gpuledger.domain.quarantine.state import Quarantine
from gpuledger.events.quarantine import NodeFaultAssessed
from gpuledger.projection.timed_decider import TimedDecider, TimedDecisions


class HealthProjection(TimedDecider):
    """Folds rules, reports and Nodes, and decides which nodes to request maintenance of.

    The assessment of a fault takes effect where it stands in the log.
    """

    name = "health"
    version = 5
    specs = SPECS
    handlers = HANDLERS
    state_class = Quarantine
    decisions = TimedDecisions(on_fact, on_due, NodeFaultAssessed, on_assessed)
