"""The observer of the node's monitoring: scrapes the exporter, and says whether its heart beats."""

from collections.abc import Sequence
from itertools import takewhile
from typing import Final

import structlog

from gpuledger.agent.errors import MonitoringError
from gpuledger.agent.monitoring import HEARTBEATS_TOLD, Monitoring, newest_update
from gpuledger.agent.observing import Fact
from gpuledger.agent.scrape import Scrape
from gpuledger.clock import Clock
from gpuledger.events.node import NodeMonitoringObserved

SCRAPE_PERIOD_S: Final = 15.0

log = structlog.get_logger("gpuledger.agent")


class ExporterObserver:
    """Looks at the exporter of a node."""

    name = "monitoring"
    period_s = SCRAPE_PERIOD_S

    def __init__(self, node: str, scrape: Scrape, *, clock: Clock) -> None:
        self._node = node
        self._scrape = scrape
        self._clock = clock
        self._monitoring = Monitoring()
        self._trouble: str | None = None

    async def look(self) -> list[Fact]:
        """See `gpuledger.agent.observing.Observer.look`."""
        told = await self._look()
        return [] if told is None else [Fact(self._node, told, self._clock())]

    def mattering(self, waiting: Sequence[Fact]) -> list[Fact]:
        """The last looks that agree, and of those before them the last, which says that it was otherwise."""
        if not waiting:
            return []
        last = _fresh(waiting[-1])
        run = len(list(takewhile(lambda fact: _fresh(fact) == last, reversed(waiting))))
        before = waiting[: len(waiting) - run][-1:]
        return [*before, *waiting[-min(run, HEARTBEATS_TOLD) :]]

    async def _look(self) -> NodeMonitoringObserved | None:
        try:
            updated_at = newest_update(await self._scrape())
        except MonitoringError as error:
            self._note(str(error))
            return self._monitoring.missed()
        told = self._monitoring.seen(updated_at, self._clock())
        if told is not None:
            self._note(
                None
                if told.fresh
                else "The exporter answers, but by its clock or ours it has long not renewed its metrics."
            )
        return told

    def _note(self, trouble: str | None) -> None:
        """Log what is new, once."""
        if trouble == self._trouble:
            return
        self._trouble = trouble
        if trouble is None:
            log.info("monitoring is alive again", node=self._node)
        else:
            log.warning("monitoring is not alive", node=self._node, reason=trouble)


def _fresh(fact: Fact) -> bool:
    assert isinstance(fact.data, NodeMonitoringObserved)
    return fact.data.fresh
