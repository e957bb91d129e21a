"""The `maintenance` service: the one decider for everybody who wants a node set aside."""

from gpuledger.deciders.maintenance.decide import on_due, on_expired, on_fact
from gpuledger.domain.maintenance.folds import HANDLERS
from gpuledger.domain.maintenance.rows import SPECS
from gpuledger.domain.maintenance.state import Maintenance
from gpuledger.events.maintenance import NodeMaintenanceExpired
from gpuledger.projection.timed_decider import TimedDecider, TimedDecisions


class MaintenanceProjection(TimedDecider):
    """Folds requests, Nodes and outcomes, and decides the isolation of nodes.

    The expiry of a request takes effect where it stands in the log.
    """

    name = "maintenance"
    version = 4
    specs = SPECS
    handlers = HANDLERS
    state_class = Maintenance
    decisions = TimedDecisions(on_fact, on_due, NodeMaintenanceExpired, on_expired)
