"""How the simulated nodes are prepared: their components come up one after the other, then monitoring's heart beats.

Pure; it notes what happens on the plan's agenda. As a real agent does, a node's tells the first heartbeats in a row and
is silent from then on, until somebody counts anew.
"""

from collections.abc import Mapping, Set
from typing import Any, Final, NamedTuple

from gpuledger.events.settings import HEARTBEATS_MAX
from gpuledger.tools.simulation.agenda import Agenda
from gpuledger.tools.simulation.components import COMPONENTS, EXPORTER, Component


class Prepared(NamedTuple):
    """How far a node was prepared when it was found: its components that are ready, and the heartbeats told."""

    ready: Set[str] = frozenset()
    heartbeats: int = 0


NEW: Final = Prepared()


class ComponentsStarted(NamedTuple):
    """The DaemonSets create their pods for a node."""

    at_s: float
    node: str


class ComponentReady(NamedTuple):
    """A component's pod on a node becomes ready."""

    at_s: float
    node: str
    component: Component


class HeartBeat(NamedTuple):
    """A node's agent looks at the exporter, whose metrics moved on."""

    at_s: float
    node: str


PreparationHappening = ComponentsStarted | ComponentReady | HeartBeat


class Preparation:
    """Prepares nodes, each from where it stands; their agents look at the exporter every `period_s`."""

    def __init__(self, agenda: Agenda[Any], period_s: float) -> None:
        self._agenda = agenda
        self._period_s = period_s
        self._left: dict[str, int] = {}
        """Heartbeats of a node that are still told; a node is here once its exporter is ready."""

    def begin(self, nodes: Mapping[str, Prepared]) -> None:
        """Bring the nodes up."""
        for node, prepared in nodes.items():
            missing = [one for one in COMPONENTS if one.app not in prepared.ready]
            if missing:
                self._agenda.note(0.0, self._start, node)
            for component in missing:
                self._agenda.note(component.ready_after_s, self._ready, (node, component))
            if EXPORTER not in missing:
                self._count(node, HEARTBEATS_MAX - prepared.heartbeats)

    def count_anew(self, node: str) -> None:
        """Somebody counts heartbeats from now on."""
        if node in self._left:
            self._count(node, HEARTBEATS_MAX)

    def _start(self, node: str) -> list[PreparationHappening]:
        return [ComponentsStarted(self._agenda.now_s, node)]

    def _ready(self, of: tuple[str, Component]) -> list[PreparationHappening]:
        node, component = of
        if component is EXPORTER:
            self._count(node, HEARTBEATS_MAX)
        return [ComponentReady(self._agenda.now_s, node, component)]

    def _count(self, node: str, heartbeats: int) -> None:
        waits = self._left.get(node, 0) > 0
        self._left[node] = max(0, heartbeats)
        if heartbeats > 0 and not waits:
            self._agenda.note(self._period_s, self._beat, node)

    def _beat(self, node: str) -> list[PreparationHappening]:
        self._left[node] -= 1
        if self._left[node]:
            self._agenda.note(self._period_s, self._beat, node)
        return [HeartBeat(self._agenda.now_s, node)]
