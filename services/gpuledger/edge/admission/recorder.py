"""Records uses of the break-glass group in the ledger, behind the answer that lets them go on.

A write must not wait for the ledger, because the group is for when things are broken. So uses wait here, in memory and
within a bound, until the ledger takes them. One that is never recorded is counted and logged; nothing is lost silently
but what this process takes along when it is killed.
"""

import asyncio
from collections import OrderedDict, deque
from contextlib import suppress
from datetime import datetime
from typing import Final

import structlog

from gpuledger.edge.admission.metrics import BREAK_GLASS, BREAK_GLASS_UNRECORDED, BREAK_GLASS_WAITING
from gpuledger.edge.admission.settings import AdmissionSettings
from gpuledger.events.break_glass import BreakGlassUse
from gpuledger.events.envelope import Decoded, Event, encode, nats_subject_of
from gpuledger.events.errors import EventError
from gpuledger.events.ids import derived_id
from gpuledger.events.publishing import SourceKind
from gpuledger.ledger.api import Ledger, Outgoing
from gpuledger.ledger.errors import EventRefusedError, LedgerError
from gpuledger.ledger.own import publish_own
from gpuledger.runtime.backoff import Jitter, Retries
from gpuledger.runtime.clock import Clock, NewId, random_id
from gpuledger.runtime.tasks import within

SOURCE: Final = f"/services/{SourceKind.ADMISSION}"

log = structlog.get_logger("gpuledger.admission")


class UseRecorder:
    """The uses that wait to be recorded, each once however often its request comes.

    The instances of admission answer side by side, so each numbers its events in an epoch of its own.
    """

    def __init__(
        self, ledger: Ledger, settings: AdmissionSettings, clock: Clock, jitter: Jitter, new_id: NewId = random_id
    ) -> None:
        self._ledger = ledger
        self._settings = settings
        self._clock = clock
        self._retries = Retries(settings.backoff, jitter)
        self._new_id = new_id
        self._epoch = new_id()
        self._number = 0
        self._waiting: deque[Outgoing] = deque()
        self._arrived = asyncio.Event()
        self._met: OrderedDict[str, None] = OrderedDict()
        self._minute = _Minute(settings.uses_per_minute_max)

    def add(self, request_uid: str, resource: str, name: str, use: BreakGlassUse) -> None:
        """Count a use and have it recorded, unless its request was here before."""
        event_id = derived_id(request_uid, use.TYPE, name)
        if not self._is_new(event_id):
            return
        BREAK_GLASS.labels(resource, use.operation).inc()
        shown = use.model_dump(mode="json", exclude_none=True)
        log.warning("admission.break-glass-used", resource=resource, name=name, **shown)
        now = self._clock()
        if len(self._waiting) >= self._settings.uses_waiting_max:
            _unrecorded("waiting-too-many", resource=resource, name=name, **shown)
        elif not self._minute.has_room(now):
            _unrecorded("rate", resource=resource, name=name, **shown)
        else:
            self._enqueue(self._event(event_id, name, now, use))

    async def run(self) -> None:
        """Record what waits, as it comes, until cancelled."""
        while True:
            await self._arrived.wait()
            self._arrived.clear()
            while self._waiting:
                await self._record_first()

    async def drain(self) -> None:
        """Record what is left, within a bound; what stays behind is counted and logged."""
        try:
            with suppress(TimeoutError):
                await within(self._settings.drain_timeout_s, self._record_rest())
        finally:
            for one in self._waiting:
                _unrecorded("shutdown", document=one.data.decode())
            self._waiting.clear()
            BREAK_GLASS_WAITING.set(0)

    async def _record_rest(self) -> None:
        while self._waiting:
            await self._record_first()

    async def _record_first(self) -> None:
        """Record the use that waits longest, or pause: the order of the numbers is that of the log."""
        first = self._waiting[0]
        try:
            await publish_own(self._ledger, [first])
        except EventRefusedError as error:
            _unrecorded("refused", document=first.data.decode(), error=str(error))
        except LedgerError as error:
            pause_s = self._retries.pause_s()
            log.warning("admission.break-glass-waits", reason=str(error), retry_s=round(pause_s, 3))
            await asyncio.sleep(pause_s)
            return
        self._retries.reset()
        self._waiting.popleft()
        BREAK_GLASS_WAITING.set(len(self._waiting))

    def _enqueue(self, event: Decoded) -> None:
        try:
            message = Outgoing(nats_subject_of(event), self._new_id(), encode(event))
        except EventError as error:
            _unrecorded("unnamed", name=event.subject, error=str(error))
            return
        self._number = event.number
        self._waiting.append(message)
        BREAK_GLASS_WAITING.set(len(self._waiting))
        self._arrived.set()

    def _event(self, event_id: str, name: str, now: datetime, use: BreakGlassUse) -> Decoded:
        return Event(event_id, SOURCE, use.TYPE, name, now, use, self._epoch, self._number + 1)

    def _is_new(self, event_id: str) -> bool:
        if event_id in self._met:
            return False
        self._met[event_id] = None
        if len(self._met) > self._settings.uses_remembered_max:
            self._met.popitem(last=False)
        return True


class _Minute:
    """Counts the uses within a minute of the clock."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._minute: datetime | None = None
        self._count = 0

    def has_room(self, now: datetime) -> bool:
        """Count one more; whether it is within the limit."""
        minute = now.replace(second=0, microsecond=0)
        if minute != self._minute:
            self._minute, self._count = minute, 0
        self._count += 1
        return self._count <= self._limit


def _unrecorded(reason: str, **shown: object) -> None:
    BREAK_GLASS_UNRECORDED.labels(reason).inc()
    log.error("admission.break-glass-unrecorded", reason=reason, **shown)
