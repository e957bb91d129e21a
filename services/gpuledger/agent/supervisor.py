"""Runs the agent's parts beside each other, with the outbox that publishes what they record.

A slow part delays no other part, and an unavailable ledger delays none. A part that raises ends the agent: whoever runs
the agent restarts it, and it must never go on with a hole in its state.
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import Final, Protocol

import structlog

from gpuledger.agent.outbox.outbox import Connect
from gpuledger.agent.part import Part, Recorder
from gpuledger.runtime.tasks import end
from gpuledger.runtime.telemetry_http import Health

STOP_TIMEOUT_S: Final = 5.0
"""How long the end waits for the ledger to take pending events; the rest stays on disk for the next start."""

log = structlog.get_logger("gpuledger.agent")


class PublishingOutbox(Protocol):
    """What the supervisor needs of the outbox."""

    @property
    def record(self) -> Recorder:
        """Takes the facts of the parts."""
        ...

    async def run(self, connect: Connect) -> None:
        """Publish for ever."""
        ...

    async def drained(self) -> None:
        """Return when nothing is pending."""
        ...

    def describe(self) -> dict[str, object]:
        """Its state, as JSON values."""
        ...


class Supervisor:
    """Runs the agent of one node."""

    def __init__(self, node: str, parts: Sequence[Part], outbox: PublishingOutbox) -> None:
        self._node = node
        self._parts = tuple(parts)
        self._outbox = outbox
        self._now: Callable[[], float] | None = None
        self._started_at = 0.0

    async def run(self, connect: Connect) -> None:
        """Run the parts and publish until cancelled, or until one of them fails.

        Raises:
            LedgerError: the ledger responds and can never take the events; an unavailable one is waited for.
        """
        self._now = asyncio.get_running_loop().time
        self._started_at = self._now()
        publishing = asyncio.create_task(self._outbox.run(connect), name="outbox")
        parts = [asyncio.create_task(part.run(self._outbox.record), name=part.name) for part in self._parts]
        log.info("the agent works", node=self._node, parts=[part.name for part in self._parts])
        try:
            # Unlike `gather`, this cancels nothing: the outbox has to outlive the parts.
            done, _ = await asyncio.wait((publishing, *parts), return_when=asyncio.FIRST_COMPLETED)
            await done.pop()
        finally:
            await end(parts)
            await self._finish(publishing)

    def health(self) -> Health:
        """Healthy while every part makes progress; an unavailable ledger, driver or kubelet is only reported."""
        stuck = [part.name for part in self._parts if self._idle_s(part) > part.stuck_after_s]
        document = {
            "status": "failing" if stuck else "ok",
            "reason": f"No progress lately in: {', '.join(stuck)}." if stuck else None,
            "node": self._node,
            "troubles": {part.name: part.trouble for part in self._parts if part.trouble},
            **self._outbox.describe(),
        }
        return Health(not stuck, document)

    def _idle_s(self, part: Part) -> float:
        """How long the part has made no progress."""
        return 0.0 if self._now is None else self._now() - (part.alive_at or self._started_at)

    async def _finish(self, publishing: "asyncio.Task[None]") -> None:
        drained = asyncio.create_task(self._outbox.drained())
        try:
            await asyncio.wait((drained, publishing), timeout=STOP_TIMEOUT_S, return_when=asyncio.FIRST_COMPLETED)
        finally:
            await end([drained, publishing])
