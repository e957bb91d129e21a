"""The `nodewriter` service: cordons, taints and labels Nodes as the decider of maintenance says, and gives them back.

It also has pods leave the nodes that are drained.

It does not watch Nodes. Who uncordons one by hand has the last word until somebody asks again: a person with the right
to do that is no drift to correct, and the request stays listed.
"""

import asyncio
from typing import NamedTuple

from gpuledger.db.locks import NODEWRITER_LOCK
from gpuledger.edge.effects.service import EffectService
from gpuledger.edge.kube.work_queue import WorkQueue
from gpuledger.edge.nodewriter import metrics
from gpuledger.edge.nodewriter.drainer import Drainer
from gpuledger.edge.nodewriter.executor import Executor, Tools
from gpuledger.edge.nodewriter.intents import Intents, IntentsProjection
from gpuledger.edge.nodewriter.settings import NodeWriterSettings
from gpuledger.events.position import Offset
from gpuledger.events.publishing import SourceKind
from gpuledger.runtime.tasks import Work


class NodeWriterHealth(NamedTuple):
    """`state` is standing-by, log-changed, folding, writing or stopped; `reason` is what keeps it from writing.

    `waiting` counts nodes that are queued or being worked on, and outcomes that are not recorded yet, `failing` nodes
    that are tried again later, `draining` nodes with a drain that is not over.
    """

    state: str
    position: Offset
    waiting: int
    failing: int
    reason: str | None
    draining: int = 0


class NodeEffects:
    """Sets nodes aside and drains them, as the intents of a state say."""

    def __init__(self, tools: Tools) -> None:
        now = asyncio.get_running_loop().time
        self.state = Intents(tools.settings.sharing)
        self._settings = tools.settings
        self._executor = Executor(self.state, WorkQueue[str](now), tools)
        self._drainer = Drainer(self.state, WorkQueue[str](now), tools)

    def resume(self) -> None:
        """Queue all nodes with intents: the state is folded to the head of the log."""
        self.state.isolations.take_touched()
        self.state.drains.take_touched()
        self._executor.enqueue(self.state.isolations.nodes())
        self._drainer.enqueue(self.state.drains.nodes())

    def advance(self) -> None:
        """Queue the nodes about which intents were recorded since the last call."""
        self._executor.forget_returned()
        self._executor.enqueue(self.state.isolations.take_touched())
        self._drainer.forget_returned()
        self._drainer.enqueue(self.state.drains.take_touched())

    def work(self) -> list[Work]:
        """The workers, which run side by side until one fails."""
        writers = [self._executor.run() for _ in range(self._settings.nodes_at_once_max)]
        drainers = [self._drainer.run() for _ in range(self._settings.drains_at_once_max)]
        return [*writers, self._executor.record(), *drainers]

    def health(self, state: str, position: Offset, reason: str | None) -> NodeWriterHealth:
        """The present state."""
        draining = len(self.state.drains.nodes())
        return NodeWriterHealth(state, position, self._executor.waiting, self._executor.failing, reason, draining)


class NodeWriter(EffectService[NodeWriterSettings, NodeEffects]):
    """Waits for leadership and writes to Nodes while it lasts."""

    source = SourceKind.NODEWRITER
    lock = NODEWRITER_LOCK
    projection = IntentsProjection
    active = metrics.ACTIVE

    def new_effects(self, tools: Tools) -> NodeEffects:
        """The executors of a leader."""
        return NodeEffects(tools)

    def health(self) -> NodeWriterHealth:
        """The present state."""
        state, position, reason, effects = self.standing()
        if effects is None:
            return NodeWriterHealth(state, position, 0, 0, reason)
        return effects.health(state, position, reason)
