"""The `rollout` service: renders machine configuration and rolls it out, node by node."""

from collections.abc import Iterator
from datetime import datetime
from typing import Final

from gpuledger.deciders.rollout.decide import Deciding, on_fact
from gpuledger.deciders.rollout.timeouts import on_due, on_ended
from gpuledger.domain.fact import Fact
from gpuledger.domain.machineconfig.decided import record_placement
from gpuledger.domain.machineconfig.folds import HANDLERS
from gpuledger.domain.machineconfig.rows import SPECS
from gpuledger.domain.machineconfig.state import CONTROLLER, Rollout
from gpuledger.events.envelope import with_payload
from gpuledger.events.machine_config import MachineConfigWaitEnded, RolloutControllerPlaced
from gpuledger.projection.definition import Decision, Decisions, Observed
from gpuledger.projection.timed_decider import TimedDecider, TimedDecisions

NOWHERE: Final = ""
"""The place of a service that runs on no node."""


class RolloutProjection(TimedDecider):
    """Folds definitions, Nodes, agents' reports and outcomes of maintenance, and decides which node gets what when.

    The end of a wait, and where the service runs, take effect where they stand in the log.
    """

    name = "rollout"
    version = 1
    specs = SPECS
    handlers = HANDLERS
    state_class = Rollout
    observed_types = frozenset({RolloutControllerPlaced.TYPE})
    decisions = TimedDecisions(on_fact, on_due, MachineConfigWaitEnded, on_ended)

    def __init__(self, runs_on: str | None = None) -> None:
        """`runs_on` is the node of this process (`NOWHERE`: none); None: it does not say, as tools do not."""
        self._runs_on = runs_on

    def observed(self, state: Rollout, observed: Observed) -> Decisions:
        """The decisions that follow from the end of a wait or from the service's place, where it stands in the log."""
        if observed.event.type != RolloutControllerPlaced.TYPE:
            return super().observed(state, observed)
        event = with_payload(observed.event)
        assert isinstance(event.data, RolloutControllerPlaced), "the type says what the data is"
        return _placed(state, Fact(event, observed.sequence, observed.recorded_ns), event.data)

    def due(self, state: Rollout, now: datetime) -> Iterator[Decision]:
        """Record that waits are over, and where the service runs."""
        row = state.controller.get(CONTROLLER)
        place = (row and row.node) or NOWHERE
        if self._runs_on is not None and self._runs_on != place:
            data = RolloutControllerPlaced(node=self._runs_on or None)
            cause = f"placed/{self._runs_on}/{'' if row is None else row.event}"
            yield Decision(cause, None, CONTROLLER, now, data)
        yield from on_due(state, now)


def _placed(state: Rollout, fact: Fact, data: RolloutControllerPlaced) -> Iterator[Decision]:
    record_placement(state, fact, data)
    yield from Deciding(state, fact).touched()
