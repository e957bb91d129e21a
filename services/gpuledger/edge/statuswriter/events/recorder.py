"""Tells people what happened, as Kubernetes Events: few at a time, repeated ones as a series, none twice.

Events are a courtesy. When there are too many, or the server does not take one, it is dropped and counted; nothing
else may ever wait for them.
"""

from collections.abc import Iterator
from contextlib import contextmanager

import structlog

from gpuledger.api.kinds import EVENTS
from gpuledger.edge.kube.client import KubeClient
from gpuledger.edge.kube.errors import AlreadyExistsError, KubeError, NotFoundError
from gpuledger.edge.statuswriter.cache.pending import Waiting
from gpuledger.edge.statuswriter.desired.objects import News
from gpuledger.edge.statuswriter.events.messages import (
    Series,
    Told,
    count_of,
    counted,
    event_of,
    is_fresh,
    namespace_of,
)
from gpuledger.edge.statuswriter.metrics.writer import EVENTS as OUTCOMES
from gpuledger.edge.statuswriter.metrics.writer import HANDLER_ERRORS
from gpuledger.edge.statuswriter.reconcile.decide import Document
from gpuledger.edge.statuswriter.settings import StatusWriterSettings
from gpuledger.edge.statuswriter.throttle.rate_limiter import SERVER_TROUBLE, Gate
from gpuledger.runtime.clock import Clock

HANDLER = "events"
log = structlog.get_logger("gpuledger.statuswriter")


class Announcer:
    """Records Events about what happened."""

    def __init__(
        self, client: KubeClient, gate: Gate, settings: StatusWriterSettings, clock: Clock, instance: str
    ) -> None:
        self._client = client
        self._gate = gate
        self._settings = settings
        self._clock = clock
        self._instance = instance
        self._told = Told(settings.series_period_s)
        self._waiting = Waiting(settings.events_waiting_max)
        self._tries: dict[str, int] = {}

    def add(self, news: News, uid: str | None) -> None:
        """Have news told, if it is still new."""
        if not is_fresh(news, self._clock(), self._settings.news_age_max_s):
            OUTCOMES.labels("stale").inc()
            return
        if dropped := self._waiting.add(self._told.add(news, uid, self._clock())):
            OUTCOMES.labels("dropped").inc()
            self._told.drop(dropped)
            self._tries.pop(dropped, None)

    def clear(self) -> None:
        """Tell nothing of what waits."""
        self._waiting.clear()
        self._tries.clear()

    async def run(self) -> None:
        """Tell for ever."""
        while True:
            name = await self._waiting.take()
            series = self._told.get(name)
            if series is not None and is_fresh(series.first, self._clock(), self._freshest_s()):
                await self._try(series)

    def _freshest_s(self) -> float:
        return self._settings.news_age_max_s + self._settings.series_period_s

    async def _try(self, series: Series) -> None:
        try:
            async with self._gate.passing():
                outcome = await self._record(self._told.get(series.name) or series)
        except KubeError as error:
            self._failed(series, error)
        else:
            self._tries.pop(series.name, None)
            OUTCOMES.labels(outcome).inc()

    async def _record(self, series: Series) -> str:
        found = await self._found(series)
        if found is None:
            with _unless_there():
                await self._client.create(EVENTS, event_of(series, self._instance))
                return "recorded"
            found = await self._client.get(EVENTS, series.name, namespace_of(series.first))
        if count_of(found) >= series.times:
            return "known"
        await self._client.merge_patch(EVENTS, series.name, counted(series), namespace_of(series.first))
        return "counted"

    async def _found(self, series: Series) -> Document | None:
        """What the server has of it. Looking is cheaper than writing, and nothing may be written twice."""
        try:
            return await self._client.get(EVENTS, series.name, namespace_of(series.first))
        except NotFoundError:
            return None

    def _failed(self, series: Series, error: KubeError) -> None:
        HANDLER_ERRORS.labels(HANDLER).inc()
        tries = self._tries[series.name] = self._tries.get(series.name, 0) + 1
        if isinstance(error, SERVER_TROUBLE) and tries < self._settings.events_tried_max:
            self._waiting.add(series.name)
            return
        del self._tries[series.name]
        OUTCOMES.labels("failed").inc()
        log.warning("event.failed", name=series.name, reason=str(error))


@contextmanager
def _unless_there() -> Iterator[None]:
    try:
        yield
    except AlreadyExistsError:
        return
