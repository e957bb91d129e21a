"""A node's agent: its observers, each at its own pace, and the recorder that brings what they find into the ledger.

An observer that is slow delays no other, and a ledger that is away delays none of them. At the end what was found and
still matters is recorded, where that is possible soon.
"""

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from datetime import datetime
from typing import Final

import structlog

from gpuledger.agent.observing import Observer, Sleep
from gpuledger.agent.recorder import Connect, Recorder
from gpuledger.clock import Clock
from gpuledger.tasks import end
from gpuledger.telemetry_http import Health

STOP_TIMEOUT_S: Final = 5.0
"""How long the end waits for the ledger to take what still waits."""

LOOKS_MISSED_MAX: Final = 4
"""An observer that has not looked for so many of its periods is stuck."""

log = structlog.get_logger("gpuledger.agent")


class Agent:
    """The agent of a node; `epoch` is new with every process."""

    def __init__(
        self, node: str, observers: Sequence[Observer], *, epoch: str, clock: Clock, sleep: Sleep = asyncio.sleep
    ) -> None:
        self._node = node
        self._observers = tuple(observers)
        self._recorder = Recorder(node, epoch, sleep=sleep)
        self._clock = clock
        self._sleep = sleep
        self._looked_at: dict[str, datetime] = {}

    async def run(self, connect: Connect) -> None:
        """Observe and record until cancelled.

        Raises:
            LedgerError: the ledger is there and cannot take it; while it is away it is waited for.
        """
        self._looked_at = {observer.name: self._clock() for observer in self._observers}
        recording = asyncio.create_task(self._recorder.run(connect))
        observing = [asyncio.create_task(self._observe(observer)) for observer in self._observers]
        log.info("the agent looks", node=self._node, at=[observer.name for observer in self._observers])
        try:
            await asyncio.gather(recording, *observing)
        finally:
            await end(observing)
            await self._finish(recording)

    def health(self) -> Health:
        """Whether every observer still looks; a ledger that is away is told, and is not the agent's illness."""
        now = self._clock()
        stuck = [
            observer.name
            for observer in self._observers
            if (now - self._looked_at.get(observer.name, now)).total_seconds() > LOOKS_MISSED_MAX * observer.period_s
        ]
        document = {
            "status": "failing" if stuck else "ok",
            "reason": f"Nothing has been looked at lately by: {', '.join(stuck)}." if stuck else None,
            "node": self._node,
            "recorded": self._recorder.recorded,
            "waiting": self._recorder.waiting,
            "ledger": self._recorder.trouble or "ok",
        }
        return Health(not stuck, document)

    async def _observe(self, observer: Observer) -> None:
        while True:
            self._recorder.add(observer, await observer.look())
            self._looked_at[observer.name] = self._clock()
            await self._sleep(observer.period_s)

    async def _finish(self, recording: "asyncio.Task[None]") -> None:
        drained = asyncio.create_task(self._recorder.drained())
        with suppress(TimeoutError):
            async with asyncio.timeout(STOP_TIMEOUT_S):
                await asyncio.wait((drained, recording), return_when=asyncio.FIRST_COMPLETED)
        await end([drained, recording])
