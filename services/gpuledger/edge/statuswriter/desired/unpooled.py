"""Announces nodes whose GPUs are ready while no pool has any of them, once that has lasted for a while. Pure.

A pool takes its devices within moments, so only what lasts is worth an Event. Each node is announced once, until it
changes.
"""

from collections.abc import Iterator
from datetime import timedelta

from gpuledger.api.reasons import EventReason
from gpuledger.edge.statuswriter.desired.since import Since
from gpuledger.edge.statuswriter.desired.state import DesiredState
from gpuledger.edge.statuswriter.events.series import Occurrence
from gpuledger.edge.statuswriter.objects import Key, Kind
from gpuledger.runtime.clock import Clock

NOTE = "Its GPUs are ready, and none belongs to a pool: annotate a GPUDevice with its pool, or let a pool take it."


class UnpooledNodes:
    """The nodes that were announced."""

    def __init__(self, desired: DesiredState, clock: Clock, grace_s: float) -> None:
        self._desired = desired
        self._clock = clock
        self._grace = timedelta(seconds=grace_s)
        self._announced: dict[str, Since] = {}

    def take_occurrences(self) -> Iterator[Occurrence]:
        """Nodes that were not announced yet."""
        found = self._desired.without_pool
        self._announced = {node: since for node, since in self._announced.items() if found.get(node) == since}
        latest = self._clock() - self._grace
        for node, since in list(found.rows.items()):
            if node not in self._announced and since.at <= latest:
                self._announced[node] = since
                key = Key(Kind.NODE, node)
                yield Occurrence(key, EventReason.NODE_WITHOUT_POOL, "", NOTE, True, since.at, since.recorded_ns)
