"""The `maintenance` service: the one decider for everybody who wants a node set aside."""

from datetime import datetime

from gpuledger.deciders.maintenance.decide import on_due, on_expired, on_fact
from gpuledger.domain.fact import Fact
from gpuledger.domain.maintenance.folds import HANDLERS
from gpuledger.domain.maintenance.rows import SPECS
from gpuledger.domain.maintenance.state import Maintenance
from gpuledger.events.envelope import with_payload
from gpuledger.events.maintenance import NodeMaintenanceExpired
from gpuledger.projection.definition import Decisions, Observed, Projection


class MaintenanceProjection(Projection):
    """Folds requests, Nodes and outcomes, and decides the isolation of nodes.

    It observes the log for its own recorded expiries: an expiry takes effect where it stands in the log.
    """

    name = "maintenance"
    version = 4
    specs = SPECS
    handlers = HANDLERS
    state_class = Maintenance
    decides = True
    observes = True
    observed_types = frozenset({NodeMaintenanceExpired.TYPE})

    def decide(self, state: Maintenance, fact: Fact) -> Decisions:
        """The decisions that follow from a fact."""
        return on_fact(state, fact)

    def observed(self, state: Maintenance, observed: Observed) -> Decisions:
        """The decisions that follow from a recorded expiry, at its place in the log."""
        event = with_payload(observed.event)
        assert isinstance(event.data, NodeMaintenanceExpired), "the type says what the data is"
        return on_expired(state, Fact(event, observed.sequence, observed.recorded_ns), event.data)

    def due(self, state: Maintenance, now: datetime) -> Decisions:
        """Record the expiry of requests whose end has passed."""
        return on_due(state, now)
