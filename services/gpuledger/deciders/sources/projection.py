"""The `sources` service: reads everything, follows each source's numbering, and records losses and rejections."""

from collections.abc import Sequence
from datetime import datetime

from gpuledger.deciders.sources.decide import on_due, on_missing_rules, on_observed, on_refused
from gpuledger.domain.sources import fold as sources
from gpuledger.projection.definition import Decisions, Observed, Projection, RefusedEvent
from gpuledger.projection.enforced import EnforcedRule


class SourcesProjection(Projection):
    """The one projection that draws conclusions from gaps, because it reads the whole log."""

    name = "sources"
    version = 7
    same_rows_as = (6,)
    specs = sources.SPECS
    handlers = sources.HANDLERS
    state_class = sources.Sources
    decides = True
    observes = True

    def observed(self, state: sources.Sources, observed: Observed) -> Decisions:
        """Follow the source's numbering."""
        return on_observed(state, observed)

    def refused(self, state: sources.Sources, refusal: RefusedEvent) -> Decisions:
        """Count repeats, and record rejections."""
        return on_refused(state, refusal)

    def enforce(self, missing: Sequence[EnforcedRule], now: datetime) -> Decisions:
        """Have every fold enforce these rules from now on."""
        return on_missing_rules(missing, now)

    def due(self, state: sources.Sources, now: datetime) -> Decisions:
        """Record numbers that stay missing as gaps."""
        return on_due(state, now)
