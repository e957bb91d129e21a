"""Simulates the preparation of nodes: their components become ready one after the other, then heartbeats begin. Pure.

Like a real agent, a simulated one reports the first heartbeats in a row and then nothing until the count restarts.
"""

from collections.abc import Mapping, Set
from typing import Any, NamedTuple

from gpuledger.events.settings import HEARTBEATS_MAX
from gpuledger.tools.simulation.components import COMPONENTS, EXPORTER, Daemon
from gpuledger.tools.simulation.schedule import Schedule


class NodeProgress(NamedTuple):
    """How far a node is prepared: its ready components, and how many heartbeats its agent has recorded."""

    ready: Set[str] = frozenset()
    heartbeats: int = 0


class ComponentsStarted(NamedTuple):
    """The DaemonSets create their pods for a node."""

    at_s: float
    node: str


class ComponentReady(NamedTuple):
    """A component's pod on a node becomes ready."""

    at_s: float
    node: str
    component: Daemon


class HeartBeat(NamedTuple):
    """A node's agent sees a heartbeat of the exporter."""

    at_s: float
    node: str


PreparationHappening = ComponentsStarted | ComponentReady | HeartBeat


class Preparation:
    """Prepares nodes, each from its progress; their agents check the exporter every `period_s`."""

    def __init__(self, schedule: Schedule[Any], period_s: float) -> None:
        self._schedule = schedule
        self._period_s = period_s
        self._left: dict[str, int] = {}
        """The heartbeats that a node's agent will still record; a node is here once its exporter is ready."""

    def begin(self, nodes: Mapping[str, NodeProgress]) -> None:
        """Bring the nodes up."""
        for node, prepared in nodes.items():
            missing = [one for one in COMPONENTS if one.app not in prepared.ready]
            if missing:
                self._schedule.add(0.0, self._start, node)
            for component in missing:
                self._schedule.add(component.ready_after_s, self._ready, (node, component))
            if EXPORTER not in missing:
                self._count(node, HEARTBEATS_MAX - prepared.heartbeats)

    def restart_heartbeats(self, node: str) -> None:
        """Restart the count of a node's heartbeats."""
        if node in self._left:
            self._count(node, HEARTBEATS_MAX)

    def _start(self, node: str) -> list[PreparationHappening]:
        return [ComponentsStarted(self._schedule.now_s, node)]

    def _ready(self, of: tuple[str, Daemon]) -> list[PreparationHappening]:
        node, component = of
        if component is EXPORTER:
            self._count(node, HEARTBEATS_MAX)
        return [ComponentReady(self._schedule.now_s, node, component)]

    def _count(self, node: str, heartbeats: int) -> None:
        waits = self._left.get(node, 0) > 0
        self._left[node] = max(0, heartbeats)
        if heartbeats > 0 and not waits:
            self._schedule.add(self._period_s, self._beat, node)

    def _beat(self, node: str) -> list[PreparationHappening]:
        self._left[node] -= 1
        if self._left[node]:
            self._schedule.add(self._period_s, self._beat, node)
        return [HeartBeat(self._schedule.now_s, node)]
