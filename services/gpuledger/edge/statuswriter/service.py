"""The `statuswriter` service: keeps GPUDevices, GPUNodeStates and other objects equal to what the ledger says.

One instance is the leader and writes; the others wait for its lock. The leader sees to it that the cluster belongs to
its ledger, and folds the ledger to its head, from its last snapshot on, before it writes anything, because history
never acts; then it follows ledger and API server. If another ledger takes the cluster over, it stops writing, and so it
does while the log is not the one that the projections' rows follow.
"""

import asyncio
from collections.abc import Coroutine, Iterable
from functools import partial
from typing import Any, Final, NamedTuple

import structlog
from prometheus_client.registry import Collector

from gpuledger.db.engine import DATABASE_TRANSIENT
from gpuledger.db.locks import STATUSWRITER_LOCK
from gpuledger.edge.kube.circuit_breaker import CircuitBreaker, RateLimiter
from gpuledger.edge.kube.client import KubeClient
from gpuledger.edge.kube.crds import component_daemon_sets, node_feature_rule
from gpuledger.edge.kube.errors import ForeignClusterError
from gpuledger.edge.kube.ownership import owner
from gpuledger.edge.kube.work_queue import WorkQueue
from gpuledger.edge.leadership import Election, RestartPolicy, Restarts
from gpuledger.edge.statuswriter.cache.informer import Informer
from gpuledger.edge.statuswriter.desired.components import Components
from gpuledger.edge.statuswriter.desired.coverage import CoverageChecks
from gpuledger.edge.statuswriter.desired.fold import DesiredProjection
from gpuledger.edge.statuswriter.desired.state import DesiredState
from gpuledger.edge.statuswriter.desired.unpooled import UnpooledNodes
from gpuledger.edge.statuswriter.events.recorder import EventRecorder
from gpuledger.edge.statuswriter.events.series import Occurrence, is_fresh
from gpuledger.edge.statuswriter.metrics.claimed_cards import ClaimedCards
from gpuledger.edge.statuswriter.metrics.gpu import GpuMetrics
from gpuledger.edge.statuswriter.metrics.slices import SliceMetrics
from gpuledger.edge.statuswriter.metrics.writer import ACTIVE, BOOTSTRAP_ERRORS, HANDLER_ERRORS, registered
from gpuledger.edge.statuswriter.objects import Key, Kind
from gpuledger.edge.statuswriter.ownership import Ownership
from gpuledger.edge.statuswriter.reconcile.coverage_starter import CoverageStarter
from gpuledger.edge.statuswriter.reconcile.periodic import PeriodicContext
from gpuledger.edge.statuswriter.reconcile.planner import Planner
from gpuledger.edge.statuswriter.reconcile.scaler import Scaler
from gpuledger.edge.statuswriter.reconcile.writer import ObjectWriter
from gpuledger.edge.statuswriter.settings import StatusWriterSettings, WriteContext
from gpuledger.events.position import Offset
from gpuledger.ledger.api import Ledger, Message
from gpuledger.ledger.errors import LedgerUnavailableError, LogChangedError
from gpuledger.projection.errors import ProjectionError
from gpuledger.projection.fold import Fold
from gpuledger.projection.followed_log import FollowedLog
from gpuledger.projection.kept_fold import KeptFold
from gpuledger.runtime.backoff import Jitter, system_jitter
from gpuledger.runtime.clock import Clock, system_clock
from gpuledger.runtime.garbage import seldom_collected
from gpuledger.runtime.tasks import run_until_one_fails

POOL_CHECKS_PER_GRACE: Final = 6
POOL_CHECK_FIRST_S: Final = 0.01
TRANSIENT: Final = (LedgerUnavailableError, LogChangedError, *DATABASE_TRANSIENT)
"""Errors after which the status writer starts anew."""

log = structlog.get_logger("gpuledger.statuswriter")


class StatusWriterHealth(NamedTuple):
    """`state` is standing-by, log-changed, claiming, foreign-cluster, folding, writing, disabled or stopped.

    While the log changed (it is not the one that the rows follow), while it is claiming (it asks which ledger the
    cluster belongs to), foreign-cluster (to another one) or stopped, it writes nothing, and there is a `reason`.

    `waiting` counts objects that are queued for now or after a short pause, `failing` those that could not be written
    and are retried later, `left` those that gpuledger leaves as somebody else has them; `unlisted` names the kinds that
    the API server has not listed yet.
    """

    state: str
    position: Offset
    waiting: int
    failing: int
    left: int
    unlisted: tuple[str, ...]
    reason: str | None


class StatusWriter:
    """Waits for leadership and writes while it lasts, recovering from servers that go away."""

    def __init__(
        self,
        ledger: Ledger,
        database_url: str,
        client: KubeClient,
        followed: FollowedLog,
        *,
        settings: StatusWriterSettings | None = None,
        clock: Clock = system_clock,
        jitter: Jitter = system_jitter,
        cluster: str | None = None,
    ) -> None:
        self._ledger = ledger
        self._database_url = database_url
        self._client = client
        self._followed = followed
        self._settings = settings or StatusWriterSettings()
        self._clock = clock
        self._jitter = jitter
        self._leader: _Leader | None = None
        bounds = self._settings
        policy = RestartPolicy(bounds.restart_backoff, bounds.stopped_retry_s, TRANSIENT, (ProjectionError,))
        self._restarts = Restarts("statuswriter", policy, jitter)
        self._ownership = Ownership(
            client,
            lambda: owner(ledger.identity.ledger_id, clock()),
            cluster or client.url,
            self._settings,
            jitter,
        )

    def health(self) -> StatusWriterHealth:
        """The present state."""
        if self._restarts.is_stopped or self._leader is None:
            stopped = self._restarts.problem if self._restarts.is_stopped else None
            reason = self._followed.problem or stopped or self._ownership.problem
            return StatusWriterHealth(self._idle_state(), 0, 0, 0, 0, (), reason)
        return self._leader.health()

    def _idle_state(self) -> str:
        if self._followed.problem is not None:
            return "log-changed"
        if self._restarts.is_stopped:
            return "stopped"
        if self._ownership.problem is not None:
            return "foreign-cluster" if self._ownership.is_foreign else "claiming"
        return "standing-by"

    async def run(self) -> None:
        """Run until cancelled.

        An event that does not fold stops the writing: it is logged, and folded again after a while, because an operator
        may skip that position.
        """
        election = Election("statuswriter", self._database_url, STATUSWRITER_LOCK, self._settings.lock_check)
        await self._restarts.run(partial(election.lead, self._followed, self._lead), self._ended)

    def _ended(self) -> None:
        self._leader = None
        ACTIVE.set(0)
        if self._restarts.is_stopped:
            HANDLER_ERRORS.labels("ledger").inc()

    async def _lead(self) -> None:
        while True:
            await self._ownership.acquire()
            try:
                await self._write()
            except ForeignClusterError:
                self._leader = None

    async def _write(self) -> None:
        ACTIVE.set(1)
        now = asyncio.get_running_loop().time
        context = WriteContext(self._client, self._settings, self._clock, now, self._jitter)
        kept = KeptFold(
            DesiredProjection(self._settings.sharing), self._ledger, self._database_url, self._settings.snapshots
        )
        self._leader = _Leader(self._ledger, kept, context, self._restarts)
        try:
            await run_until_one_fails([self._fold_and_work(self._leader), kept.run(), self._ownership.keep()])
        finally:
            ACTIVE.set(0)

    async def _fold_and_work(self, leader: "_Leader") -> None:
        await leader.fold_to_head()
        self._restarts.recovered()
        with registered(leader.collectors()):
            await run_until_one_fails(leader.work())


class _Leader:
    """Folds, plans and writes from getting the lock to losing it."""

    def __init__(self, ledger: Ledger, kept: KeptFold, context: WriteContext, restarts: Restarts) -> None:
        settings = context.settings
        self._ledger = ledger
        self._kept = kept
        self._context = context
        self._restarts = restarts
        components = Components(settings.components, component_daemon_sets())
        self._desired = DesiredState(settings.sharing, labels_nodes=components.label_nodes)
        self._fold = Fold(DesiredProjection(settings.sharing), ledger.generations, state=self._desired)
        self._was_enabled = False
        self._settings_before = self._desired.settings_in_force()
        self._is_folded = False
        self._queue = WorkQueue[Key](context.now)
        self._kinds = [kind for kind in Kind if kind is not Kind.COMPONENT or components.are_kept]
        self._planner = Planner(self._desired, node_feature_rule(), components)
        self._recorder = EventRecorder(context, _breaker(context, settings.events_per_s, settings.events_burst))
        breaker = _breaker(context, settings.writes_per_s, settings.writes_burst)
        self._writer = ObjectWriter(context, self._planner, self._queue, breaker, self._recorder)
        periodic = PeriodicContext(context, self._desired, breaker, self._writer.announce)
        self._coverage = CoverageStarter(periodic._replace(announce=lambda one: self._announce([one])))
        self._scaler = Scaler(periodic, self._writer.enqueue)

    def collectors(self) -> list[Collector]:
        """Metrics that are computed from the fold and the queue."""
        slices = SliceMetrics(lambda: self._desired, self._depth, self._writer.lag.seconds)
        return [GpuMetrics(lambda: self._desired), ClaimedCards(lambda: self._desired), slices]

    def _depth(self, kind: Kind) -> int:
        return self._queue.depth(lambda key: key.kind is kind)

    def health(self) -> StatusWriterHealth:
        """The present state."""
        state = "folding" if not self._is_folded else "writing" if self._desired.enabled else "disabled"
        cache = self._planner.cache
        unlisted = tuple(str(kind) for kind in self._kinds if not cache.kinds[kind].is_listed)
        waiting, failing, left = self._queue.active, 0, 0
        for one in cache.states():
            waiting += one.is_paced
            failing += one.failures > 0
            left += one.drift is not None and one.drift.is_left
        return StatusWriterHealth(state, self._fold.sequence, waiting, failing, left, unlisted, None)

    async def fold_to_head(self) -> None:
        """Fold what came since the last snapshot, up to the head; young occurrences still become Events."""
        self._fold = await self._kept.load(self._desired)
        with seldom_collected():
            async for messages in self._ledger.history(after=self._fold.sequence, until=await self._ledger.head()):
                self._fold.apply_all(messages)
                self._kept.folded(self._fold)
            recent = self._desired.take_occurrences()
            self._desired.take_changed()
        self._was_enabled = self._desired.enabled
        self._settings_before = self._desired.settings_in_force()
        self._is_folded = True
        if self._was_enabled:
            self._announce(recent)

    def _is_fresh(self, occurrence: Occurrence) -> bool:
        return is_fresh(occurrence, self._context.clock(), self._context.settings.event_age_max_s)

    def work(self) -> list[Coroutine[Any, Any, None]]:
        """Everything that runs side by side."""
        writers = [self._writer.run() for _ in range(self._context.settings.writes_at_once_max)]
        informers = [Informer(kind, self._context, self._planner, self._writer).run() for kind in self._kinds]
        others = [self._recorder.run(), self._check_pools(), self._scaler.run()]
        if (namespace := self._context.settings.coverage_namespace) is not None:
            others.append(self._coverage.run(namespace))
        return [self._follow_ledger(), *others, *informers, *writers]

    async def _check_pools(self) -> None:
        """From time to time, announce nodes without a pool, and those whose inventory stays incomplete."""
        grace_s, after_s = self._context.settings.without_pool_grace_s, self._context.settings.coverage_after_s
        unpooled = UnpooledNodes(self._desired, self._context.clock, grace_s)
        coverage = CoverageChecks(self._desired.coverage, node_feature_rule(), self._context.clock, after_s)
        while True:
            await asyncio.sleep(max(grace_s / POOL_CHECKS_PER_GRACE, POOL_CHECK_FIRST_S))
            if self._desired.enabled:
                self._announce([*unpooled.take_occurrences(), *coverage.take_occurrences()])

    async def _follow_ledger(self) -> None:
        async with self._ledger.read(self._fold.sequence, anchor=self._kept.anchor(self._fold)) as reader:
            self._restarts.followed()
            while True:
                self._apply(await reader.next_batch(self._context.settings.messages_per_batch))

    def _apply(self, messages: list[Message]) -> None:
        self._fold.apply_all(messages)
        self._kept.folded(self._fold)
        changed, occurrences = self._desired.take_changed(), self._desired.take_occurrences()
        self._planner.desired_changed(changed)
        was_enabled, self._was_enabled = self._was_enabled, self._desired.enabled
        if self._was_enabled:
            for key in changed if was_enabled else self._planner.keys():
                self._writer.enqueue(key, messages[0].recorded_ns)
        elif was_enabled:
            self._disable()
        self._settings_applied(messages)
        if self._was_enabled:
            self._announce(occurrences)

    def _settings_applied(self, messages: list[Message]) -> None:
        """Components and the numbers of pods follow from the settings alone."""
        settings = self._desired.settings_in_force()
        if settings != self._settings_before:
            self._settings_before = settings
            self._scaler.settings_changed()
            for key in self._planner.components.every_key():
                self._writer.enqueue(key, messages[0].recorded_ns)

    def _announce(self, occurrences: Iterable[Occurrence]) -> None:
        for one in filter(self._is_fresh, occurrences):
            self._writer.announce(one)

    def _disable(self) -> None:
        self._writer.clear()
        HANDLER_ERRORS.clear()
        BOOTSTRAP_ERRORS.clear()
        log.info("statuswriter.disabled")


def _breaker(context: WriteContext, per_s: float, burst: int) -> CircuitBreaker:
    limiter = RateLimiter(per_s, burst, context.now)
    return CircuitBreaker(limiter, context.settings.backoff, context.jitter, context.now)
