"""A node's agent: its parts, each at its own pace, and the outbox that brings what they tell into the ledger.

A part that is slow delays no other, and a ledger that is away delays none of them. A part that fails in a way that it
does not know ends the agent: whoever runs it starts it again, and nothing goes on with a hole in it.
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import Final, Protocol

import structlog

from gpuledger.agent.outbox.outbox import Connect
from gpuledger.agent.part import Part, Tell
from gpuledger.runtime.tasks import end
from gpuledger.runtime.telemetry_http import Health

STOP_TIMEOUT_S: Final = 5.0
"""How long the end waits for the ledger to take what still waits; the rest stays on disk for the next start."""

log = structlog.get_logger("gpuledger.agent")


class Recording(Protocol):
    """What the agent needs of its outbox."""

    @property
    def tell(self) -> Tell:
        """Takes what parts find."""
        ...

    async def run(self, connect: Connect) -> None:
        """Bring it into the ledger, for ever."""
        ...

    async def drained(self) -> None:
        """Return when nothing waits any more."""
        ...

    def describe(self) -> dict[str, object]:
        """How it stands, as JSON values."""
        ...


class Agent:
    """The agent of a node."""

    def __init__(self, node: str, parts: Sequence[Part], outbox: Recording) -> None:
        self._node = node
        self._parts = tuple(parts)
        self._outbox = outbox
        self._now: Callable[[], float] | None = None
        self._begun_at = 0.0

    async def run(self, connect: Connect) -> None:
        """Observe and record until cancelled.

        Raises:
            LedgerError: the ledger is there and cannot take it; while it is away it is waited for.
        """
        self._now = asyncio.get_running_loop().time
        self._begun_at = self._now()
        recording = asyncio.create_task(self._outbox.run(connect), name="outbox")
        parts = [asyncio.create_task(part.run(self._outbox.tell), name=part.name) for part in self._parts]
        log.info("the agent works", node=self._node, parts=[part.name for part in self._parts])
        try:
            # Unlike `gather`, this cancels nothing: the outbox has to outlive the parts.
            done, _ = await asyncio.wait((recording, *parts), return_when=asyncio.FIRST_COMPLETED)
            await done.pop()
        finally:
            await end(parts)
            await self._finish(recording)

    def health(self) -> Health:
        """Whether every part still works; a ledger, driver or kubelet that does not is told, and is not its illness."""
        stuck = [part.name for part in self._parts if self._idle_s(part) > part.stuck_after_s]
        document = {
            "status": "failing" if stuck else "ok",
            "reason": f"Nothing has been done lately by: {', '.join(stuck)}." if stuck else None,
            "node": self._node,
            "troubles": {part.name: part.trouble for part in self._parts if part.trouble},
            **self._outbox.describe(),
        }
        return Health(not stuck, document)

    def _idle_s(self, part: Part) -> float:
        """For how long the part has not done its work."""
        return 0.0 if self._now is None else self._now() - (part.alive_at or self._begun_at)

    async def _finish(self, recording: "asyncio.Task[None]") -> None:
        drained = asyncio.create_task(self._outbox.drained())
        try:
            await asyncio.wait((drained, recording), timeout=STOP_TIMEOUT_S, return_when=asyncio.FIRST_COMPLETED)
        finally:
            await end([drained, recording])
