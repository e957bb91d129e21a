"""Tells people of nodes whose GPUs are ready and which no pool has any of, once it has lasted for a while.

A pool takes what it is given in a moment, so that only what lasts is news. It is told once, until it has changed.
"""

from collections.abc import Iterator
from datetime import timedelta

from gpuledger.api.reasons import EventReason
from gpuledger.edge.statuswriter.desired.objects import News, Since, Wanted
from gpuledger.edge.statuswriter.reconcile.decide import Key, Kind
from gpuledger.runtime.clock import Clock

NOTE = "Its GPUs are ready, and none belongs to a pool: annotate a GPUDevice with its pool, or let a pool take it."


class Unpooled:
    """The nodes that people were told of."""

    def __init__(self, wanted: Wanted, clock: Clock, grace_s: float) -> None:
        self._wanted = wanted
        self._clock = clock
        self._grace = timedelta(seconds=grace_s)
        self._told: dict[str, Since] = {}

    def take_news(self) -> Iterator[News]:
        """What is new since the last call."""
        found = self._wanted.without_pool
        self._told = {node: since for node, since in self._told.items() if found.get(node) == since}
        latest = self._clock() - self._grace
        for node, since in list(found.items()):
            if node not in self._told and since.at <= latest:
                self._told[node] = since
                key = Key(Kind.NODE, node)
                yield News(key, EventReason.NODE_WITHOUT_POOL, "", NOTE, True, since.at, since.recorded_ns)
