"""The `remediator` service: creates the objects that the decider of remediation requests, and records what they become.

What an object has done, somebody else's controller does: this service creates it, reads it, and deletes it when its
retention is over, and touches nothing else.
"""

import asyncio
from typing import NamedTuple

from gpuledger.db.locks import REMEDIATOR_LOCK
from gpuledger.edge.effects.service import EffectService
from gpuledger.edge.kube.work_queue import WorkQueue
from gpuledger.edge.remediator import metrics
from gpuledger.edge.remediator.executor import RemediatorTools, RemedyExecutor
from gpuledger.edge.remediator.intents import RemedyIntents, RemedyIntentsProjection
from gpuledger.edge.remediator.settings import RemediatorSettings
from gpuledger.events.position import Offset
from gpuledger.events.publishing import SourceKind
from gpuledger.runtime.tasks import Work


class RemediatorHealth(NamedTuple):
    """`state` is standing-by, log-changed, folding, writing or stopped; `reason` is what keeps it from writing.

    `open` counts remediations for which something is left to do, `failing` those of them that are tried again later.
    """

    state: str
    position: Offset
    open: int
    failing: int
    reason: str | None


class RemedyEffects:
    """Creates and watches the objects of remediations, as the intents of a state say."""

    def __init__(self, tools: RemediatorTools) -> None:
        self.state = RemedyIntents()
        self._settings = tools.settings
        self._executor = RemedyExecutor(self.state, WorkQueue[str](asyncio.get_running_loop().time), tools)

    def resume(self) -> None:
        """Queue all remediations: the state is folded to the head of the log."""
        self.state.take_touched()
        self._executor.enqueue(self.state.ids())

    def advance(self) -> None:
        """Queue the remediations about which something was recorded since the last call."""
        self._executor.enqueue(self.state.take_touched())

    def work(self) -> list[Work]:
        """The workers, which run side by side until one fails."""
        return [self._executor.run() for _ in range(self._settings.objects_at_once_max)]

    def health(self, state: str, position: Offset, reason: str | None) -> RemediatorHealth:
        """The present state."""
        return RemediatorHealth(state, position, len(self.state.ids()), self._executor.failing, reason)


class Remediator(EffectService[RemediatorSettings, RemedyEffects]):
    """Waits for leadership and creates objects while it lasts."""

    source = SourceKind.REMEDIATOR
    lock = REMEDIATOR_LOCK
    projection = RemedyIntentsProjection
    active = metrics.ACTIVE

    def new_effects(self, tools: RemediatorTools) -> RemedyEffects:
        """The executors of a leader."""
        return RemedyEffects(tools)

    def health(self) -> RemediatorHealth:
        """The present state."""
        state, position, reason, effects = self.standing()
        if effects is None:
            return RemediatorHealth(state, position, 0, 0, reason)
        return effects.health(state, position, reason)
