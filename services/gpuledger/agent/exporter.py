"""The part that looks at the node's monitoring: scrapes the exporter, and tells whether its heart beats."""

import asyncio
import time
from collections.abc import Callable
from typing import Final

import structlog

from gpuledger.agent.errors import MonitoringError
from gpuledger.agent.monitoring import Monitoring, newest_update
from gpuledger.agent.observing import Fact, Tell
from gpuledger.agent.scrape import Scrape
from gpuledger.events.node import NodeMonitoringObserved
from gpuledger.runtime.clock import Clock, Sleep

SCRAPE_PERIOD_S: Final = 15.0
LOOKS_MISSED_MAX: Final = 4
"""For so many periods nothing may have been looked at."""

log = structlog.get_logger("gpuledger.agent")


class ExporterWatch:
    """Looks at the exporter of a node."""

    name = "monitoring"
    stuck_after_s = LOOKS_MISSED_MAX * SCRAPE_PERIOD_S

    def __init__(
        self,
        node: str,
        scrape: Scrape,
        *,
        clock: Clock,
        monotonic: Callable[[], float] = time.monotonic,
        sleep: Sleep = asyncio.sleep,
    ) -> None:
        self._node = node
        self._scrape = scrape
        self._clock = clock
        self._monotonic = monotonic
        self._sleep = sleep
        self._monitoring = Monitoring()
        self.trouble: str | None = None
        self.alive_at: float | None = None

    async def run(self, tell: Tell) -> None:
        """See `gpuledger.agent.observing.Part.run`."""
        while True:
            told = await self.look()
            if told is not None:
                await tell([Fact(self._node, told, self._clock())])
            self.alive_at = asyncio.get_running_loop().time()
            await self._sleep(SCRAPE_PERIOD_S)

    def begin_anew(self) -> None:
        """Tell the next looks again, because somebody counts them from now on."""
        self._monitoring.begin_anew()

    async def look(self) -> NodeMonitoringObserved | None:
        """Look once; what is to be told of it, or None."""
        try:
            updated_at = newest_update(await self._scrape())
        except MonitoringError as error:
            self._note(str(error))
            return self._monitoring.missed()
        told = self._monitoring.seen(updated_at, self._clock(), self._monotonic())
        if told is not None:
            self._note(
                None
                if told.fresh
                else "The exporter answers, but by its clock or ours it has long not renewed its metrics."
            )
        return told

    def _note(self, trouble: str | None) -> None:
        """Log what is new, once."""
        if trouble == self.trouble:
            return
        self.trouble = trouble
        if trouble is None:
            log.info("monitoring is alive again", node=self._node)
        else:
            log.warning("monitoring is not alive", node=self._node, reason=trouble)
