"""The `bootstrap` service: decides how far nodes and their GPUs are prepared."""

from gpuledger.deciders.bootstrap.decide import on_fact, on_timeout
from gpuledger.deciders.bootstrap.timeouts import on_due
from gpuledger.domain.bootstrap import facts as bootstrap_facts
from gpuledger.domain.bootstrap import folds as bootstrap_folds
from gpuledger.events.node import NodeBootstrapWaited
from gpuledger.projection.timed_decider import TimedDecider, TimedDecisions


class BootstrapProjection(TimedDecider):
    """Folds facts about nodes, components and cards, and decides phases, conditions and states.

    The timeout of a wait that lasted too long takes effect where it stands in the log.
    """

    name = "bootstrap"
    version = 7
    same_rows_as = (6,)
    specs = bootstrap_facts.SPECS
    handlers = bootstrap_folds.HANDLERS
    state_class = bootstrap_facts.BootstrapFacts
    decisions = TimedDecisions(on_fact, on_due, NodeBootstrapWaited, on_timeout)
