"""The coordinator of gangs in the service `preflight`: only its leader writes ConfigMaps, and Events about checks."""

import asyncio
from typing import NamedTuple

from gpuledger.db.locks import PREFLIGHT_LOCK
from gpuledger.edge.effects.service import EffectService
from gpuledger.edge.kube.work_queue import WorkQueue
from gpuledger.edge.preflight.coordinator import metrics
from gpuledger.edge.preflight.coordinator.check_events import CheckEvents
from gpuledger.edge.preflight.coordinator.coordinator import GangCoordinator
from gpuledger.edge.preflight.coordinator.settings import CoordinatorSettings
from gpuledger.edge.preflight.coordinator.sizes import CoordinatorTools
from gpuledger.edge.preflight.coordinator.state import Gangs, GangsProjection
from gpuledger.events.position import Offset
from gpuledger.events.publishing import SourceKind
from gpuledger.runtime.tasks import Work


class CoordinatorHealth(NamedTuple):
    """`state` is standing-by, log-changed, folding, writing or stopped; `reason` is what keeps it from writing.

    `gangs` counts those that are not dissolved, `failing` those of them that are tried again later.
    """

    state: str
    position: Offset
    gangs: int
    failing: int
    reason: str | None


class GangEffects:
    """Keeps the ConfigMaps of gangs, and writes Events, as the facts of a state say."""

    def __init__(self, tools: CoordinatorTools) -> None:
        self.state = Gangs()
        self._settings = tools.settings
        self._coordinator = GangCoordinator(self.state, WorkQueue[str](asyncio.get_running_loop().time), tools)
        self._events = CheckEvents(tools)

    def resume(self) -> None:
        """Queue all gangs: the state is folded to the head of the log."""
        self.state.take_touched()
        metrics.GANGS.labels("forming").set(0)
        metrics.GANGS.labels("complete").set(0)
        self._coordinator.enqueue(self.state.ids())
        self._events.add(self.state.take_failures())

    def advance(self) -> None:
        """Queue the gangs about which something was recorded since the last call."""
        self._coordinator.enqueue(self.state.take_touched())
        self._events.add(self.state.take_failures())

    def work(self) -> list[Work]:
        """The workers, which run side by side until one fails."""
        return [*(self._coordinator.run() for _ in range(self._settings.gangs_at_once_max)), self._events.run()]

    def health(self, state: str, position: Offset, reason: str | None) -> CoordinatorHealth:
        """The present state."""
        return CoordinatorHealth(state, position, len(self.state.gang), self._coordinator.failing, reason)


class PreflightCoordinator(EffectService[CoordinatorSettings, GangEffects]):
    """Waits for leadership and coordinates gangs while it lasts."""

    source = SourceKind.PREFLIGHT
    lock = PREFLIGHT_LOCK
    projection = GangsProjection
    active = metrics.ACTIVE

    def new_effects(self, tools: CoordinatorTools) -> GangEffects:
        """The executors of a leader."""
        return GangEffects(tools)

    def health(self) -> CoordinatorHealth:
        """The present state."""
        state, position, reason, effects = self.standing()
        if effects is None:
            return CoordinatorHealth(state, position, 0, 0, reason)
        return effects.health(state, position, reason)
