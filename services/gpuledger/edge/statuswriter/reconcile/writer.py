"""Brings objects of the API server to what is wanted, one step after another.

What to do is decided elsewhere, anew before every request. A change by somebody else is undone, and people are told;
who keeps changing an object gets their way for a while, and people are told of that. This module must never write
more than one request for an object at a time, and never send what the server already has.
"""

import asyncio
from collections.abc import Callable, Iterable
from contextlib import nullcontext
from dataclasses import dataclass

import structlog

from gpuledger.api.kinds import ASSIGNMENT_FIELD_MANAGER
from gpuledger.edge.kube.client import KubeClient
from gpuledger.edge.kube.errors import ConflictError, KubeError, NotFoundError, RefusedError, SchemaError
from gpuledger.edge.statuswriter.cache.objects import Step, View
from gpuledger.edge.statuswriter.desired.objects import News
from gpuledger.edge.statuswriter.events import drift
from gpuledger.edge.statuswriter.events.recorder import Announcer
from gpuledger.edge.statuswriter.metrics.slices import note_sync
from gpuledger.edge.statuswriter.metrics.writer import CONFLICTS, EVENTS, QUEUE, UNDONE, counted_write, errors_of
from gpuledger.edge.statuswriter.reconcile.decide import (
    RESOURCES,
    Action,
    Document,
    Key,
    Kind,
    actual_of,
    body,
    digest,
)
from gpuledger.edge.statuswriter.reconcile.responses import SOMEBODY, answered, extra_of, owners_of
from gpuledger.edge.statuswriter.reconcile.work_queue import Queue
from gpuledger.edge.statuswriter.settings import StatusWriterSettings
from gpuledger.edge.statuswriter.throttle.drift import Undos
from gpuledger.edge.statuswriter.throttle.lag import Behind
from gpuledger.edge.statuswriter.throttle.rate_limiter import SERVER_TROUBLE, Gate, is_for_all
from gpuledger.edge.statuswriter.throttle.write_interval import Pace
from gpuledger.runtime.backoff import Jitter
from gpuledger.runtime.clock import Clock

STEPS_MAX = 6
"""Requests for one object in a row; who needs more waits like one that failed."""

NEWS_PER_OBJECT_MAX = 16
"""News of an object that wait until it shows them; the oldest are dropped first."""

log = structlog.get_logger("gpuledger.statuswriter")


@dataclass(slots=True)
class _Disturbance:
    """Somebody else changed an object. `is_noted` once it counts as undone, `is_left` while it is left as it is."""

    by: str
    is_noted: bool = False
    is_left: bool = False


class Writer:
    """Works off the queue."""

    def __init__(
        self,
        client: KubeClient,
        view: View,
        queue: Queue,
        gate: Gate,
        announcer: Announcer,
        settings: StatusWriterSettings,
        *,
        clock: Clock,
        now: Callable[[], float],
        jitter: Jitter,
    ) -> None:
        self._client = client
        self._view = view
        self._queue = queue
        self._gate = gate
        self._announcer = announcer
        self._settings = settings
        self._clock = clock
        self._now = now
        self._jitter = jitter
        self._undos = Undos(settings.undos_per_hour_max)
        self._pace = Pace(settings.slice_status_pause_s, now)
        self._paused: set[Key] = set()
        self._disturbed: dict[Key, _Disturbance] = {}
        self._failures: dict[Key, int] = {}
        self.behind = Behind(clock)
        self._news: dict[Key, list[News]] = {}

    @property
    def left(self) -> int:
        """How many objects are left as somebody else has them."""
        return sum(one.is_left for one in self._disturbed.values())

    @property
    def paused(self) -> int:
        """How many objects are to be written, and were a moment ago."""
        return len(self._paused)

    @property
    def failing(self) -> int:
        """How many objects could not be written, and are tried again later."""
        return len(self._failures)

    def look(self, key: Key, recorded_ns: int | None = None) -> None:
        """Have an object looked at; `recorded_ns` is when the ledger got what may change it."""
        if self._view.known[key.kind].is_listed:
            if recorded_ns is not None:
                self.behind.note(key, recorded_ns)
            self._queue.add(key)

    def look_through(self, keys: Iterable[Key]) -> None:
        """Have many objects looked at, when nothing that changed waits."""
        for key in keys:
            if self._view.known[key.kind].is_listed:
                self._queue.add_patient(key)

    def tell(self, news: News) -> None:
        """Have people told of something, once the object shows it; where too much waits the oldest is dropped."""
        if news.key.kind is Kind.MODULE:
            self._announcer.add(news, None)
            return
        waiting = self._news.setdefault(news.key, [])
        waiting.append(news)
        del waiting[:-NEWS_PER_OBJECT_MAX]
        if len(self._news) > self._settings.events_waiting_max:
            del self._news[next(iter(self._news))]
            EVENTS.labels("dropped").inc()
        self.look(news.key)

    def disturbed(self, key: Key, by: str | None) -> None:
        """Somebody else changed an object that was as wanted."""
        self._disturbed.setdefault(key, _Disturbance(by or SOMEBODY))
        self.look(key)

    def deleted(self, key: Key) -> None:
        """Somebody else deleted an object that was as wanted. One with an owner may have gone with that."""
        self._disturbed.setdefault(key, _Disturbance("somebody who deleted it"))
        grace_s = self._settings.orphan_grace_s if key.kind is Kind.SLICE else 0.0
        self._queue.add(key, self._now() + grace_s)

    def forget(self) -> None:
        """Write and tell nothing of what waits."""
        self._queue.clear()
        self._announcer.clear()
        for kept in (self.behind, self._disturbed, self._failures, self._news, self._paused):
            kept.clear()

    async def work(self) -> None:
        """Write for ever."""
        while True:
            key = await self._queue.take()
            try:
                await self._settle(key)
            finally:
                self._queue.done(key)
                QUEUE.set(len(self._queue))
            await asyncio.sleep(0)

    async def _settle(self, key: Key) -> None:
        self._paused.discard(key)
        try:
            if await self._bring(key):
                self._failures.pop(key, None)
        except KubeError as error:
            self._failed(key, error)

    async def _bring(self, key: Key) -> bool:
        """Take steps until nothing is to be done, or not yet; False where none may be taken, or they do not end."""
        for taken in range(STEPS_MAX):
            step = self._view.step(key)
            is_too_soon = self._is_too_soon(key, step)
            if step.action is Action.NOTHING or (is_too_soon and taken):
                self._settled(key, step, has_written=taken > 0)
                return True
            if is_too_soon or not self._may_undo(key, step):
                return False
            async with self._gate.passing():
                await self._do(key, self._view.step(key))
        if disturbance := self._disturbed.get(key):
            disturbance.is_noted = False
        self._later(key)
        return False

    def _is_too_soon(self, key: Key, step: Step) -> bool:
        """Whether the object was written a moment ago; it is looked at again when it may be written."""
        at_s = self._pace.free_at_s(key, step.action)
        if at_s <= self._now():
            return False
        self._paused.add(key)
        self._queue.add(key, at_s)
        return True

    def _may_undo(self, key: Key, step: Step) -> bool:
        """Whether a write may happen now; undoing what others do is bounded."""
        disturbance = self._disturbed.get(key)
        if disturbance is None or disturbance.is_noted or step.action is Action.DELETE:
            return True
        now_s = self._now()
        allowed_at_s = self._undos.allowed_at(key, now_s)
        if allowed_at_s <= now_s:
            self._undos.note(key, now_s)
            disturbance.is_noted, disturbance.is_left = True, False
            return True
        if not disturbance.is_left:
            disturbance.is_left = True
            self._leave(key, disturbance)
        self._queue.add(key, allowed_at_s)
        return False

    async def _do(self, key: Key, step: Step) -> None:
        match step.action:
            case Action.CREATE | Action.MAIN:
                await self._apply(key, step, is_status=False)
            case Action.STATUS:
                await self._apply(key, step, is_status=True)
            case Action.APPROVE:
                await self._approve(key, step)
            case Action.DELETE:
                await self._delete(key, step)

    async def _apply(self, key: Key, step: Step, *, is_status: bool) -> None:
        assert step.desired is not None
        part = {"status": step.desired.status} if is_status else step.desired.main
        catching_up = self.behind.catching_up(key) if is_status else nullcontext()
        disturbance = self._disturbed.get(key)
        has_leave = disturbance is not None and disturbance.is_noted
        subresource = "status" if is_status else None
        try:
            with self._pace.noted(key, step.action), counted_write(key, step.action), catching_up:
                obj = await self._client.apply(
                    RESOURCES[key.kind], body(key, part, step.desired.uid), subresource=subresource, force=has_leave
                )
        except NotFoundError:
            if not is_status:
                raise
            self._view.known[key.kind].gone(key.id)
            return
        except ConflictError as error:
            if has_leave:
                raise
            self._disturbed[key] = _Disturbance(owners_of(error))
            return
        except SchemaError as error:
            if key.kind is not Kind.MODULE:
                raise
            self._leave_out(key, step, error)
            return
        if (extra := extra_of(key, part, obj)) and has_leave:
            obj = await self._strip(key, obj, extra, subresource)
        elif extra and disturbance is None:
            self._disturbed[key] = _Disturbance(actual_of(key.kind, obj).changed_by or SOMEBODY)
        self._view.known[key.kind].written(key.id, answered(key, step, obj, None if extra else is_status))

    def _leave_out(self, key: Key, step: Step, error: SchemaError) -> None:
        """A ModuleConfig is Deckhouse's kind, and may have no conditions; then Events alone tell of them."""
        assert step.desired is not None
        assert step.actual is not None
        log.info("module.shows-no-conditions", name=key.id, reason=str(error))
        left = step.actual._replace(sent_status=digest(step.desired.status))
        self._view.known[key.kind].written(key.id, left)

    async def _approve(self, key: Key, step: Step) -> None:
        """Write, or take back, the annotation of a pool that approves by itself; what a person wrote there stays."""
        assert step.desired is not None
        assert step.actual is not None
        approved = step.desired.approved or {}
        part = body(key, {"annotations": approved}, step.actual.uid)
        try:
            with counted_write(key, step.action):
                obj = await self._client.apply(RESOURCES[key.kind], part, field_manager=ASSIGNMENT_FIELD_MANAGER)
        except ConflictError:
            self._disturbed.pop(key, None)
            left = step.actual._replace(sent_approved=digest(approved))
            self._view.known[key.kind].written(key.id, left)
        else:
            self._view.known[key.kind].written(key.id, answered(key, step, obj, None))

    async def _strip(self, key: Key, obj: Document, extra: list[Document], subresource: str | None) -> Document:
        """Remove what somebody else put there, which applying leaves."""
        test = {"op": "test", "path": "/metadata/resourceVersion", "value": obj["metadata"]["resourceVersion"]}
        with counted_write(key, Action.STATUS if subresource else Action.MAIN):
            return await self._client.json_patch(
                RESOURCES[key.kind], key.name, [test, *extra], key.namespace or None, subresource=subresource
            )

    async def _delete(self, key: Key, step: Step) -> None:
        assert step.actual is not None
        known = self._view.known[key.kind]
        try:
            with counted_write(key, step.action):
                await self._client.delete(RESOURCES[key.kind], key.name, key.namespace or None, uid=step.actual.uid)
        except NotFoundError:
            known.gone(key.id)
        else:
            known.written(key.id, step.actual._replace(deleting=True))

    def _settled(self, key: Key, step: Step, *, has_written: bool) -> None:
        note_sync(key.kind, "written" if has_written else "unchanged")
        if step.action is Action.NOTHING:
            self.behind.settled(key, has_written=has_written)
        actual = self._view.actual(key)
        if actual is None and step.desired is None:
            self._view.wanted.withdrawn.pop(key, None)
        uid = actual.uid if actual else None
        for news in self._news.pop(key, ()):
            self._announcer.add(news, uid)
        disturbance = self._disturbed.pop(key, None)
        if disturbance is not None and disturbance.is_noted and has_written:
            UNDONE.labels(key.kind).inc()
            log.warning("status.restored", kind=str(key.kind), name=key.id, changed_by=disturbance.by)
            self._announcer.add(drift.restored(key, disturbance.by, self._clock()), uid)

    def _leave(self, key: Key, disturbance: _Disturbance) -> None:
        CONFLICTS.labels(key.kind).inc()
        log.warning("status.conflict", kind=str(key.kind), name=key.id, changed_by=disturbance.by)
        actual = self._view.actual(key)
        told = drift.left(key, disturbance.by, self._settings.undos_per_hour_max, self._clock())
        self._announcer.add(told, actual.uid if actual else None)

    def _failed(self, key: Key, error: KubeError) -> None:
        errors_of(key.kind).labels(RESOURCES[key.kind].plural).inc()
        note_sync(key.kind, "failed")
        self.behind.note(key)
        if not is_for_all(error) and key not in self._failures:
            log.warning("write.failed", kind=str(key.kind), name=key.id, reason=str(error))
        self._later(key, is_refused=isinstance(error, RefusedError) and not isinstance(error, SERVER_TROUBLE))

    def _later(self, key: Key, *, is_refused: bool = True) -> None:
        failures = self._failures[key] = self._failures.get(key, 0) + 1
        backoff = self._settings.refused_backoff if is_refused else self._settings.backoff
        self._queue.add(key, self._now() + backoff.pause_s(failures, self._jitter()))
