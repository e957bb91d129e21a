"""Records the reports of health monitors, coalesced, and returns once they are on disk.

One transaction holds the facts and the windows, so that a crash neither loses a report that was acknowledged, nor a
count, nor records twice what a monitor sends again. A request is never left half taken, even if its sender is gone.
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import Final

import structlog

from gpuledger.agent.gateway.stored import STATE_KEY, ReportStateError, dump, load
from gpuledger.agent.part import AgentFact, DurableStore
from gpuledger.healthreports.coalescing import Coalesced, ReportResult, Windows, add_report, close_windows, flush
from gpuledger.healthreports.errors import NotDurableError, SpoolFullError
from gpuledger.healthreports.translate import HealthReport
from gpuledger.runtime.clock import Clock, Instant

ENVELOPE_BYTES: Final = 1024
"""What an event has beside its payload, at most."""

AT_ONCE_MAX: Final = 32
"""After so many reports of a request other parts have their turn."""

log = structlog.get_logger("gpuledger.agent")


class ReportRecorder:
    """The windows of a node's reports, and the store behind them."""

    def __init__(self, node: str, store: DurableStore, *, clock: Clock, monotonic: Callable[[], float]) -> None:
        self._node = node
        self._store = store
        self._clock = clock
        self._monotonic = monotonic
        self._windows: Windows = {}
        self._turn = asyncio.Lock()
        self._running: set[asyncio.Task[list[ReportResult]]] = set()

    async def restore(self) -> None:
        """Continue with the stored windows, and record what they had counted."""
        value = self._store.get(STATE_KEY)
        if value is None:
            return
        try:
            self._windows = load(value, self._now())
        except ReportStateError as error:
            log.warning("what waited of health reports is lost", reason=str(error))
            return
        await self.flush()

    async def take(self, reports: Sequence[HealthReport]) -> list[ReportResult]:
        """Take the reports of a request, and return what became of each once all are on disk.

        Raises:
            SpoolFullError: they would leave other events too little room; none was taken.
            NotDurableError: the disk takes no writes; to send them again later does no harm.
        """
        task = asyncio.create_task(self._take(reports))
        self._running.add(task)
        task.add_done_callback(self._running.discard)
        return await asyncio.shield(task)

    async def close_due(self) -> None:
        """Record what ended windows counted."""
        async with self._turn:
            now = self._now()
            closed = close_windows(self._windows, now)
            if closed.windows is not self._windows:
                await self._record(closed, now)

    async def flush(self) -> None:
        """Record all that was counted, without waiting for windows to end."""
        async with self._turn:
            flushed = flush(self._windows)
            if flushed.events:
                await self._record(flushed, self._now())

    async def _take(self, reports: Sequence[HealthReport]) -> list[ReportResult]:
        async with self._turn:
            self._check_durable()  # what nobody acknowledges must not pile up in memory
            now = self._now()
            steps = [close_windows(self._windows, now)]
            for number, report in enumerate(reports):
                steps.append(add_report(steps[-1].windows, report, now))
                if number % AT_ONCE_MAX == 0:
                    await asyncio.sleep(0)  # a large request must not keep other parts from their work
            await self._store_steps(steps, now)
            self._check_durable()
            return [step.result for step in steps[1:]]

    def _check_durable(self) -> None:
        if not self._store.is_durable:
            raise NotDurableError(
                "The disk of the node takes no writes, so that the report could be lost; send it again later."
            )

    async def _store_steps(self, steps: Sequence[Coalesced], now: Instant) -> None:
        """Store the result of the steps, if there is room for it; nothing where they change nothing."""
        events = [event for step in steps for event in step.events]
        size = sum(len(data.model_dump_json().encode()) + ENVELOPE_BYTES for data, _ in events)
        if events and not self._store.has_room(len(events), size):
            raise SpoolFullError(
                "The agent has no room for the report until the ledger takes what waits; send it again later."
            )
        if steps[-1].windows is not self._windows:
            await self._record(Coalesced(steps[-1].windows, tuple(events)), now)

    async def _record(self, coalesced: Coalesced, now: Instant) -> None:
        facts = [AgentFact(self._node, data, at) for data, at in coalesced.events]
        await self._store.record_with(facts, STATE_KEY, dump(coalesced.windows, now))
        self._windows = coalesced.windows

    def _now(self) -> Instant:
        return Instant(self._monotonic(), self._clock())
