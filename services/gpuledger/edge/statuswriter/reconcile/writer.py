"""Writes objects to the API server, one step after another, until each is as desired.

`decide.py` decides on every step anew before each request. gpuledger reverts changes made by others and records an
Event; whoever keeps changing an object gets their way for a while, which is another Event. This module must never have
more than one request for an object under way, and never send what the server already has.
"""

import asyncio
from collections.abc import Iterable
from contextlib import nullcontext

import structlog

from gpuledger.api.kinds import ASSIGNMENT_FIELD_MANAGER
from gpuledger.edge.kube.circuit_breaker import SERVER_TROUBLE, CircuitBreaker, is_for_all
from gpuledger.edge.kube.errors import ConflictError, KubeError, NotFoundError, RefusedError, SchemaError
from gpuledger.edge.kube.work_queue import WorkQueue
from gpuledger.edge.statuswriter.cache.objects import Drift, KindCache
from gpuledger.edge.statuswriter.events.recorder import EventRecorder
from gpuledger.edge.statuswriter.events.series import Occurrence, drift_corrected, drift_left
from gpuledger.edge.statuswriter.fields import body, digest, observe
from gpuledger.edge.statuswriter.metrics.slices import note_sync
from gpuledger.edge.statuswriter.metrics.writer import (
    CONFLICTS,
    DRIFT_CORRECTED,
    QUEUE_DEPTH,
    counted_write,
    errors_of,
)
from gpuledger.edge.statuswriter.objects import OWNED_KINDS, Document, Key, Kind, ObservedObject
from gpuledger.edge.statuswriter.reconcile.decide import Action
from gpuledger.edge.statuswriter.reconcile.planner import PlannedStep, Planner
from gpuledger.edge.statuswriter.reconcile.responses import SOMEBODY, extra_of, observed_after, owners_of, uid_of
from gpuledger.edge.statuswriter.settings import WriteContext
from gpuledger.edge.statuswriter.throttle.drift_limit import correction_allowed_at_s, note_correction
from gpuledger.edge.statuswriter.throttle.lag import Lag
from gpuledger.edge.statuswriter.throttle.write_interval import Pacing, WriteInterval

STEPS_MAX = 6
"""Requests for one object in a row; an object that needs more waits as after a failure."""

log = structlog.get_logger("gpuledger.statuswriter")


class ObjectWriter:
    """Works off the queue."""

    def __init__(
        self,
        context: WriteContext,
        planner: Planner,
        queue: WorkQueue[Key],
        breaker: CircuitBreaker,
        recorder: EventRecorder,
    ) -> None:
        self._context = context
        self._client = context.client
        self._names = context.settings.sharing
        self._planner = planner
        self._cache = planner.cache
        self._queue = queue
        self._breaker = breaker
        self._recorder = recorder
        limits = context.settings
        pacing = Pacing(limits.slice_status_pause_s, limits.slice_writes_per_s, limits.slice_writes_burst)
        self._interval = WriteInterval(pacing, self._cache, context.now)
        self.lag = Lag(self._cache, context.clock)

    def enqueue(self, key: Key, recorded_ns: int | None = None) -> None:
        """Queue an object; `recorded_ns` is when the ledger recorded what may change it."""
        if self._kind(key).is_listed:
            if recorded_ns is not None:
                self.lag.note(key, recorded_ns)
            self._queue.add(key)

    def enqueue_all(self, keys: Iterable[Key]) -> None:
        """Queue many objects behind those that changed."""
        for key in keys:
            if self._kind(key).is_listed:
                self._queue.add_background(key)

    def announce(self, occurrence: Occurrence) -> None:
        """Record an Event once the object shows what happened; a ModuleConfig may never show it."""
        if occurrence.key.kind is Kind.MODULE:
            self._recorder.record(occurrence, None)
            return
        self._recorder.hold(occurrence)
        self.enqueue(occurrence.key)

    def drifted(self, key: Key, by: str | None) -> None:
        """Somebody else changed an object that was as desired."""
        self._note_drift(key, by or SOMEBODY)
        self.enqueue(key)

    def deleted(self, key: Key) -> None:
        """Somebody else deleted an object that was as desired. One with an owner may have gone with that."""
        self._note_drift(key, "somebody who deleted it")
        grace_s = self._context.settings.orphan_grace_s if key.kind in OWNED_KINDS else 0.0
        self._queue.add(key, self._context.now() + grace_s)

    def clear(self) -> None:
        """Forget all pending writes and Events."""
        self._queue.clear()
        self._recorder.clear()
        for state in self._cache.states():
            state.stop_work()

    async def run(self) -> None:
        """Write for ever."""
        while True:
            key = await self._queue.take()
            try:
                await self._reconcile(key)
            finally:
                self._queue.done(key)
                self._kind(key).forget_idle(key.id, self._context.now())
                QUEUE_DEPTH.set(len(self._queue))
            await asyncio.sleep(0)

    def _kind(self, key: Key) -> KindCache:
        return self._cache.kinds[key.kind]

    def _written(self, key: Key, seen: ObservedObject) -> None:
        self._kind(key).written(key.id, seen)

    def _note_drift(self, key: Key, by: str) -> None:
        """Note who changed an object; the first one counts until it is corrected."""
        state = self._cache.state(key)
        state.drift = state.drift or Drift(by)

    async def _reconcile(self, key: Key) -> None:
        self._cache.state(key).is_paced = False
        try:
            if await self._take_steps(key):
                self._cache.state(key).failures = 0
        except KubeError as error:
            self._failed(key, error)

    async def _take_steps(self, key: Key) -> bool:
        """Take steps until nothing is left to do, or not yet; False where none may be taken, or they do not end."""
        for taken in range(STEPS_MAX):
            step = self._planner.step(key)
            is_too_soon = self._is_too_soon(key, step)
            if step.action is Action.NOTHING or (is_too_soon and taken):
                self._settled(key, step, has_written=taken > 0)
                return True
            if is_too_soon or not self._may_correct(key, step):
                return False
            async with self._breaker.request():
                await self._execute(key, self._planner.step(key))
        if drift := self._cache.state(key).drift:
            drift.is_correcting = False
        self._retry_later(key)
        return False

    def _is_too_soon(self, key: Key, step: PlannedStep) -> bool:
        """Whether the object was written a moment ago; it is queued for when it may be written again."""
        at_s = self._interval.writable_at_s(key, step.action)
        if at_s <= self._context.now():
            return False
        self._cache.state(key).is_paced = True
        self._queue.add(key, at_s)
        return True

    def _may_correct(self, key: Key, step: PlannedStep) -> bool:
        """Whether a write may happen now; how often drift is corrected is limited."""
        state = self._cache.state(key)
        drift = state.drift
        if drift is None or drift.is_correcting or step.action is Action.DELETE:
            return True
        now_s, per_hour_max = self._context.now(), self._context.settings.corrections_per_hour_max
        allowed_at_s = correction_allowed_at_s(state, per_hour_max, now_s)
        if allowed_at_s <= now_s:
            note_correction(state, per_hour_max, now_s)
            drift.is_correcting, drift.is_left = True, False
            return True
        if not drift.is_left:
            drift.is_left = True
            self._leave(key, drift)
        self._queue.add(key, allowed_at_s)
        return False

    async def _execute(self, key: Key, step: PlannedStep) -> None:
        match step.action:
            case Action.CREATE | Action.MAIN:
                await self._apply(key, step, is_status=False)
            case Action.STATUS:
                await self._apply(key, step, is_status=True)
            case Action.APPROVE:
                await self._approve(key, step)
            case Action.DELETE:
                await self._delete(key, step)

    async def _apply(self, key: Key, step: PlannedStep, *, is_status: bool) -> None:
        assert step.desired is not None
        part = {"status": step.desired.status} if is_status else step.desired.main
        catching_up = self.lag.catching_up(key) if is_status else nullcontext()
        drift = self._cache.state(key).drift
        is_correcting = drift is not None and drift.is_correcting
        subresource = "status" if is_status else None
        try:
            with self._interval.timed(key, step.action), counted_write(key, step.action), catching_up:
                obj = await self._client.apply(
                    self._context.resource(key.kind),
                    body(key, part, uid_of(key, step)),
                    subresource=subresource,
                    force=is_correcting,
                )
        except NotFoundError:
            if not is_status:
                raise
            self._kind(key).gone(key.id)
            return
        except ConflictError as error:
            if is_correcting:
                raise
            self._cache.state(key).drift = Drift(owners_of(error))
            return
        except SchemaError as error:
            if key.kind is not Kind.MODULE:
                raise
            self._leave_out(key, step, error)
            return
        if (extra := extra_of(key, part, obj, self._names)) and is_correcting:
            obj = await self._strip(key, obj, extra, subresource)
        elif extra and drift is None:
            self._cache.state(key).drift = Drift(observe(key.kind, obj, self._names).changed_by or SOMEBODY)
        self._written(key, observed_after(key, step, obj, None if extra else is_status, self._names))

    def _leave_out(self, key: Key, step: PlannedStep, error: SchemaError) -> None:
        """ModuleConfig is Deckhouse's kind and may have no conditions; then only Events show them."""
        assert step.desired is not None
        assert step.observed is not None
        log.info("module.shows-no-conditions", name=key.id, reason=str(error))
        self._written(key, step.observed._replace(sent_status=digest(step.desired.status)))

    async def _approve(self, key: Key, step: PlannedStep) -> None:
        """Set or remove the annotation of a pool that approves automatically; a person's annotation stays."""
        assert step.desired is not None
        assert step.observed is not None
        approved = step.desired.approved or {}
        part = body(key, {"annotations": approved}, step.observed.uid)
        try:
            with counted_write(key, step.action):
                obj = await self._client.apply(
                    self._context.resource(key.kind), part, field_manager=ASSIGNMENT_FIELD_MANAGER
                )
        except ConflictError:
            self._cache.state(key).drift = None
            self._written(key, step.observed._replace(sent_approved=digest(approved)))
        else:
            self._written(key, observed_after(key, step, obj, None, self._names))

    async def _strip(self, key: Key, obj: Document, extra: list[Document], subresource: str | None) -> Document:
        """Remove fields that somebody else added and that an apply leaves."""
        test = {"op": "test", "path": "/metadata/resourceVersion", "value": obj["metadata"]["resourceVersion"]}
        with counted_write(key, Action.STATUS if subresource else Action.MAIN):
            return await self._client.json_patch(
                self._context.resource(key.kind),
                key.name,
                [test, *extra],
                key.namespace or None,
                subresource=subresource,
            )

    async def _delete(self, key: Key, step: PlannedStep) -> None:
        assert step.observed is not None
        try:
            with counted_write(key, step.action):
                await self._client.delete(
                    self._context.resource(key.kind), key.name, key.namespace or None, uid=step.observed.uid
                )
        except NotFoundError:
            self._kind(key).gone(key.id)
        else:
            self._written(key, step.observed._replace(deleting=True))

    def _settled(self, key: Key, step: PlannedStep, *, has_written: bool) -> None:
        note_sync(key.kind, "written" if has_written else "unchanged")
        if step.action is Action.NOTHING:
            self.lag.settled(key, has_written=has_written)
        state = self._cache.state(key)
        if state.observed is None and step.desired is None and self._planner.is_shown(key.kind):
            self._planner.state.forget_withdrawal(key)
        uid = state.observed.uid if state.observed else None
        self._recorder.release(key, uid)
        drift, state.drift = state.drift, None
        if drift is not None and drift.is_correcting and has_written:
            DRIFT_CORRECTED.labels(key.kind).inc()
            log.warning("status.restored", kind=str(key.kind), name=key.id, changed_by=drift.by)
            self._recorder.record(drift_corrected(key, drift.by, self._context.clock()), uid)

    def _leave(self, key: Key, drift: Drift) -> None:
        CONFLICTS.labels(key.kind).inc()
        log.warning("status.conflict", kind=str(key.kind), name=key.id, changed_by=drift.by)
        observed = self._planner.observed(key)
        occurrence = drift_left(key, drift.by, self._context.settings.corrections_per_hour_max, self._context.clock())
        self._recorder.record(occurrence, observed.uid if observed else None)

    def _failed(self, key: Key, error: KubeError) -> None:
        errors_of(key.kind).labels(self._context.resource(key.kind).plural).inc()
        note_sync(key.kind, "failed")
        self.lag.note(key)
        if not is_for_all(error) and not self._cache.state(key).failures:
            log.warning("write.failed", kind=str(key.kind), name=key.id, reason=str(error))
        self._retry_later(key, is_refused=isinstance(error, RefusedError) and not isinstance(error, SERVER_TROUBLE))

    def _retry_later(self, key: Key, *, is_refused: bool = True) -> None:
        state = self._cache.state(key)
        state.failures += 1
        backoff = self._context.settings.refused_backoff if is_refused else self._context.settings.backoff
        self._queue.add(key, self._context.now() + backoff.pause_s(state.failures, self._context.jitter()))
