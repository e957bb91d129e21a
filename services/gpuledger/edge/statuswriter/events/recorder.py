"""Event recorder: tells people what happened, as Kubernetes Events, repeated ones as a series and none twice.

Events are a courtesy. Where there are too many, or the server does not take one, it is dropped and counted; nothing
else may ever wait for them.
"""

from contextlib import suppress
from typing import Final

import structlog

from gpuledger.api.kinds import EVENTS
from gpuledger.edge.kube.circuit_breaker import SERVER_TROUBLE, CircuitBreaker
from gpuledger.edge.kube.errors import AlreadyExistsError, KubeError, NotFoundError
from gpuledger.edge.kube.events import PendingQueue
from gpuledger.edge.statuswriter.events.series import (
    EventSeries,
    Occurrence,
    RecentSeries,
    count_of,
    counted,
    event_of,
    is_fresh,
    namespace_of,
)
from gpuledger.edge.statuswriter.metrics.writer import EVENTS as OUTCOMES
from gpuledger.edge.statuswriter.metrics.writer import HANDLER_ERRORS
from gpuledger.edge.statuswriter.objects import Document, Key
from gpuledger.edge.statuswriter.settings import WriteContext

HANDLER: Final = "events"
INSTANCE: Final = "gpuledger-statuswriter"

HELD_PER_OBJECT_MAX: Final = 16
"""Occurrences of an object that wait until it shows them; the oldest are dropped first."""

log = structlog.get_logger("gpuledger.statuswriter")


class EventRecorder:
    """Records Kubernetes Events, some of them only once their object shows what they are about."""

    def __init__(self, context: WriteContext, breaker: CircuitBreaker) -> None:
        self._context = context
        self._breaker = breaker
        self._held: dict[Key, list[Occurrence]] = {}
        self._recent = RecentSeries(context.settings.series_period_s)
        self._pending = PendingQueue(context.settings.events_waiting_max)
        self._tries: dict[str, int] = {}

    def hold(self, occurrence: Occurrence) -> None:
        """Keep an occurrence until its object shows it; where too many wait, the oldest are dropped."""
        held = self._held.setdefault(occurrence.key, [])
        held.append(occurrence)
        del held[:-HELD_PER_OBJECT_MAX]
        if len(self._held) > self._context.settings.events_waiting_max:
            del self._held[next(iter(self._held))]
            OUTCOMES.labels("dropped").inc()

    def release(self, key: Key, uid: str | None) -> None:
        """Record what was kept for an object: it shows everything now."""
        for occurrence in self._held.pop(key, ()):
            self.record(occurrence, uid)

    def record(self, occurrence: Occurrence, uid: str | None) -> None:
        """Record an occurrence, unless it is old."""
        if not is_fresh(occurrence, self._context.clock(), self._context.settings.event_age_max_s):
            OUTCOMES.labels("stale").inc()
            return
        if dropped := self._pending.add(self._recent.add(occurrence, uid, self._context.clock())):
            OUTCOMES.labels("dropped").inc()
            self._recent.drop(dropped)
            self._tries.pop(dropped, None)

    def clear(self) -> None:
        """Record nothing of what waits."""
        self._held.clear()
        self._pending.clear()
        self._tries.clear()

    async def run(self) -> None:
        """Write Events for ever."""
        age_max_s = self._context.settings.event_age_max_s + self._context.settings.series_period_s
        while True:
            series = self._recent.get(await self._pending.take())
            if series is not None and is_fresh(series.first, self._context.clock(), age_max_s):
                await self._try(series)

    async def _try(self, series: EventSeries) -> None:
        try:
            async with self._breaker.request():
                outcome = await self._write(self._recent.get(series.name) or series)
        except KubeError as error:
            self._failed(series, error)
        else:
            self._tries.pop(series.name, None)
            OUTCOMES.labels(outcome).inc()

    async def _write(self, series: EventSeries) -> str:
        found = await self._read(series)
        if found is None:
            with suppress(AlreadyExistsError):
                await self._context.client.create(EVENTS, event_of(series, INSTANCE, self._context.settings.sharing))
                return "recorded"
            found = await self._context.client.get(EVENTS, series.name, namespace_of(series.first))
        if count_of(found) >= series.times:
            return "known"
        await self._context.client.merge_patch(EVENTS, series.name, counted(series), namespace_of(series.first))
        return "counted"

    async def _read(self, series: EventSeries) -> Document | None:
        """The Event as the server has it. Reading is cheaper than writing, and nothing may be written twice."""
        try:
            return await self._context.client.get(EVENTS, series.name, namespace_of(series.first))
        except NotFoundError:
            return None

    def _failed(self, series: EventSeries, error: KubeError) -> None:
        HANDLER_ERRORS.labels(HANDLER).inc()
        tries = self._tries[series.name] = self._tries.get(series.name, 0) + 1
        if isinstance(error, SERVER_TROUBLE) and tries < self._context.settings.events_tried_max:
            self._pending.add(series.name)
            return
        del self._tries[series.name]
        OUTCOMES.labels("failed").inc()
        log.warning("event.failed", name=series.name, reason=str(error))
