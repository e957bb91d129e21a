"""NIC discovery: the part that looks for network cards with RDMA and records what changed.

Sharing gives pods cards and NICs that are near each other. A node that never had a NIC records nothing.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

import structlog

from gpuledger.agent.discovery import WARNINGS_MAX, refresh_of
from gpuledger.agent.hardware.api import NicFacts
from gpuledger.agent.part import AgentFact, BasePart, Recorder
from gpuledger.agent.survey_event import nics_event
from gpuledger.runtime.clock import Clock, Sleep

POLL_PERIOD_S: Final = 30.0
STUCK_AFTER_S: Final = 300.0

log = structlog.get_logger("gpuledger.agent")


class NicDiscovery(BasePart):
    """Finds the NICs of a node; see `gpuledger.agent.part.Part`."""

    name = "nic-discovery"
    stuck_after_s = STUCK_AFTER_S

    def __init__(
        self,
        node: str,
        read: Callable[[], Awaitable[tuple[NicFacts, ...]]],
        *,
        clock: Clock,
        monotonic: Callable[[], float],
        sleep: Sleep = asyncio.sleep,
    ) -> None:
        self._node = node
        self._read = read
        self._clock = clock
        self._monotonic = monotonic
        self._warned: set[str] = set()
        self._sleep = sleep
        self._recorded: tuple[NicFacts, ...] = ()
        self._refresh: int | None = None

    async def run(self, record: Recorder) -> None:
        """Look and record until cancelled."""
        while True:
            await self._poll(record)
            self.alive_at = self._monotonic()
            await self._sleep(POLL_PERIOD_S)

    async def _poll(self, record: Recorder) -> None:
        """Record the NICs where something changed, or where the periodic refresh is due."""
        nics, refresh = await self._read(), refresh_of(self._node, self._monotonic())
        is_due = bool(nics) and refresh != self._refresh
        if nics == self._recorded and not is_due:
            return
        await record([AgentFact(self._node, nics_event(nics, self._warn_once), self._clock())])
        self._recorded, self._refresh = nics, refresh

    def _warn_once(self, sentence: str) -> None:
        if sentence not in self._warned:
            self._warned = {*self._warned, sentence} if len(self._warned) < WARNINGS_MAX else {sentence}
            log.warning("sysfs has an odd value", node=self._node, reason=sentence)
