"""The status writer's life: wait for the lock, fold the ledger to its head, then follow ledger and API server.

Nothing is written before the fold has reached the head that the ledger had at the start, because history never acts.
"""

import asyncio
from collections.abc import Coroutine, Iterable
from typing import Any, NamedTuple

import psycopg
import structlog
from prometheus_client.registry import Collector

from gpuledger.db.errors import DatabaseUnavailableError
from gpuledger.db.locks import while_locked
from gpuledger.edge.kube.client import KubeClient
from gpuledger.edge.kube.crds import component_daemon_sets, node_feature_rule
from gpuledger.edge.statuswriter.cache.informer import Following
from gpuledger.edge.statuswriter.cache.objects import View
from gpuledger.edge.statuswriter.desired.components import Components
from gpuledger.edge.statuswriter.desired.fold import WantedProjection
from gpuledger.edge.statuswriter.desired.objects import News, Wanted
from gpuledger.edge.statuswriter.desired.unpooled import Unpooled
from gpuledger.edge.statuswriter.events.messages import is_fresh
from gpuledger.edge.statuswriter.events.recorder import Announcer
from gpuledger.edge.statuswriter.metrics.gpu import GpuMetrics
from gpuledger.edge.statuswriter.metrics.slices import SliceMetrics
from gpuledger.edge.statuswriter.metrics.writer import ACTIVE, BOOTSTRAP_ERRORS, HANDLER_ERRORS, registered
from gpuledger.edge.statuswriter.reconcile.decide import Kind
from gpuledger.edge.statuswriter.reconcile.work_queue import Queue
from gpuledger.edge.statuswriter.reconcile.writer import Writer
from gpuledger.edge.statuswriter.settings import StatusWriterSettings
from gpuledger.edge.statuswriter.throttle.rate_limiter import Bucket, Gate
from gpuledger.ledger.api import Ledger, Message
from gpuledger.ledger.errors import LedgerUnavailableError
from gpuledger.projection.errors import ProjectionError
from gpuledger.projection.fold import Fold
from gpuledger.projection.skips import skipped_positions
from gpuledger.runtime.backoff import Jitter, Retries, system_jitter
from gpuledger.runtime.clock import Clock, system_clock
from gpuledger.runtime.garbage import seldom_collected
from gpuledger.runtime.tasks import run_until_one_fails

LOCK = "statuswriter"
"""Who holds this lock may write."""

INSTANCE = "gpuledger-statuswriter"
LOOKS_PER_GRACE = 6
LOOK_FIRST_S = 0.01
TRANSIENT = (LedgerUnavailableError, DatabaseUnavailableError, psycopg.OperationalError)
"""What the status writer recovers from by starting anew."""

log = structlog.get_logger("gpuledger.statuswriter")


class StatusWriterHealth(NamedTuple):
    """`state` is standing-by, folding, writing, disabled or stopped, which has a `reason`.

    `waiting` counts objects that are to be looked at now or after a short pause, `failing` those that could not be
    written and are tried again later, `left` those that are left as somebody else has them; `unlisted` names the kinds
    that the API server has not shown yet.
    """

    state: str
    position: int
    waiting: int
    failing: int
    left: int
    unlisted: tuple[str, ...]
    reason: str | None


class StatusWriter:
    """Keeps the API server's objects equal to what follows from the ledger."""

    def __init__(
        self,
        ledger: Ledger,
        database_url: str,
        client: KubeClient,
        *,
        settings: StatusWriterSettings | None = None,
        clock: Clock = system_clock,
        jitter: Jitter = system_jitter,
    ) -> None:
        self._ledger = ledger
        self._database_url = database_url
        self._client = client
        self._settings = settings or StatusWriterSettings()
        self._clock = clock
        self._jitter = jitter
        self._round: _Round | None = None
        self._stopped: str | None = None

    def health(self) -> StatusWriterHealth:
        """How it stands."""
        if self._stopped is not None or self._round is None:
            return StatusWriterHealth("stopped" if self._stopped else "standing-by", 0, 0, 0, 0, (), self._stopped)
        return self._round.health()

    async def run(self) -> None:
        """Run until cancelled, recovering from servers that go away.

        An event that does not fold stops the writing: it is said in the log, and tried again after a while, because
        an operator may skip that position.
        """
        retries = Retries(self._settings.restart_backoff, self._jitter)
        while True:
            try:
                await self._stand()
            except TRANSIENT as error:
                if self._round is not None and self._round.has_followed:
                    retries.reset()
                pause_s = retries.pause_s()
                log.warning("statuswriter.interrupted", reason=str(error).strip(), retry_s=pause_s)
            except ProjectionError as error:
                self._stopped = str(error)
                pause_s = self._settings.stopped_retry_s
                HANDLER_ERRORS.labels("ledger").inc()
                log.error("statuswriter.stopped", reason=self._stopped, retry_s=pause_s)
            self._round = None
            ACTIVE.set(0)
            await asyncio.sleep(pause_s)

    async def _stand(self) -> None:
        await while_locked(
            self._database_url,
            LOCK,
            self._lead,
            application_name="gpuledger statuswriter",
            check=self._settings.lock_check,
        )

    async def _lead(self) -> None:
        ACTIVE.set(1)
        self._round = _Round(self._ledger, self._client, self._settings, self._clock, self._jitter)
        try:
            await self._round.fold_to_head()
            self._stopped = None
            with registered(self._round.collectors()):
                await run_until_one_fails(self._round.work())
        finally:
            ACTIVE.set(0)


class _Round:
    """From getting the lock to losing it."""

    def __init__(
        self, ledger: Ledger, client: KubeClient, settings: StatusWriterSettings, clock: Clock, jitter: Jitter
    ) -> None:
        now = asyncio.get_running_loop().time
        self._ledger = ledger
        self._client = client
        self._settings = settings
        self._clock = clock
        self._jitter = jitter
        self._now = now
        self._wanted = Wanted()
        self._fold = Fold(WantedProjection(), ledger.generation, state=self._wanted)
        self._was_enabled = False
        self._settings_before = self._wanted.settings_in_force()
        self._is_folded = False
        self.has_followed = False
        self._queue = Queue(now)
        components = Components(settings.components, component_daemon_sets())
        self._kinds = [kind for kind in Kind if kind is not Kind.COMPONENT or components.are_kept]
        self._view = View(self._wanted, node_feature_rule(), components)
        self._announcer = Announcer(
            client, self._gate(settings.events_per_s, settings.events_burst), settings, clock, INSTANCE
        )
        self._writer = Writer(
            client, self._view, self._queue, self._gate(settings.writes_per_s, settings.writes_burst),
            self._announcer, settings, clock=clock, now=now, jitter=jitter,
        )  # fmt: skip

    def _gate(self, per_s: float, burst: int) -> Gate:
        return Gate(Bucket(per_s, burst, self._now), self._settings.backoff, self._jitter, self._now)

    def collectors(self) -> list[Collector]:
        """What metrics follow from the fold and the queue."""
        slices = SliceMetrics(lambda: self._wanted, self._queue.depth, self._writer.behind.seconds)
        return [GpuMetrics(lambda: self._wanted), slices]

    def health(self) -> StatusWriterHealth:
        """How it stands."""
        state = "folding" if not self._is_folded else "writing" if self._wanted.enabled else "disabled"
        unlisted = tuple(str(kind) for kind in self._kinds if not self._view.known[kind].is_listed)
        waiting = self._queue.waiting + self._writer.paused
        failing, left = self._writer.failing, self._writer.left
        return StatusWriterHealth(state, self._fold.sequence, waiting, failing, left, unlisted, None)

    async def fold_to_head(self) -> None:
        """Fold all that there is; what is young in it is still news."""
        head = await self._ledger.head()
        skipped = await skipped_positions(self._ledger)
        self._fold = Fold(WantedProjection(), self._ledger.generation, state=self._wanted, skipped=skipped)
        news = []
        with seldom_collected():
            async for messages in self._ledger.history(until=head):
                self._fold.apply_all(messages)
                news += [one for one in self._wanted.take_news() if self._is_fresh(one.recorded_ns)]
        self._wanted.take_changed()
        self._was_enabled = self._wanted.enabled
        self._settings_before = self._wanted.settings_in_force()
        self._is_folded = True
        if self._was_enabled:
            self._tell(news)

    def _is_fresh(self, recorded_ns: int) -> bool:
        return recorded_ns / 1e9 >= self._clock().timestamp() - self._settings.news_age_max_s

    def work(self) -> list[Coroutine[Any, Any, None]]:
        """What has to run side by side."""
        writers = [self._writer.work() for _ in range(self._settings.writes_at_once_max)]
        following = [
            Following(
                kind, self._client, self._view, self._writer, self._settings, now=self._now, jitter=self._jitter
            ).run()
            for kind in self._kinds
        ]
        return [self._follow_ledger(), self._announcer.run(), self._look_for_pools(), *following, *writers]

    async def _look_for_pools(self) -> None:
        """Now and then, tell of nodes that have no pool."""
        grace_s = self._settings.without_pool_grace_s
        unpooled = Unpooled(self._wanted, self._clock, grace_s)
        while True:
            await asyncio.sleep(max(grace_s / LOOKS_PER_GRACE, LOOK_FIRST_S))
            self._tell(unpooled.take_news() if self._wanted.enabled else ())

    async def _follow_ledger(self) -> None:
        async with self._ledger.read(after=self._fold.sequence) as reader:
            self.has_followed = True
            while True:
                self._take(await reader.next_batch(self._settings.messages_per_batch))

    def _take(self, messages: list[Message]) -> None:
        self._fold.apply_all(messages)
        changed, news = self._wanted.take_changed(), self._wanted.take_news()
        self._view.changed(changed)
        is_enabled, was_enabled = self._wanted.enabled, self._was_enabled
        self._was_enabled = is_enabled
        if not is_enabled:
            if was_enabled:
                self._disable()
            self._look_at_components(messages)
            return
        for key in changed if was_enabled else self._view.keys():
            self._writer.look(key, messages[0].recorded_ns)
        self._look_at_components(messages)
        self._tell(news)

    def _look_at_components(self, messages: list[Message]) -> None:
        """They follow from the settings alone."""
        settings = self._wanted.settings_in_force()
        if settings != self._settings_before:
            self._settings_before = settings
            for key in self._view.components.every():
                self._writer.look(key, messages[0].recorded_ns)

    def _tell(self, news: Iterable[News]) -> None:
        for one in news:
            if is_fresh(one, self._clock(), self._settings.news_age_max_s):
                self._writer.tell(one)

    def _disable(self) -> None:
        self._writer.forget()
        HANDLER_ERRORS.clear()
        BOOTSTRAP_ERRORS.clear()
        log.info("statuswriter.disabled")
