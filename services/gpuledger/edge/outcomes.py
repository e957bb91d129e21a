"""Records outcomes in the ledger, one after the other in an epoch of this process, until the ledger has each.

An outcome's id follows from its intent's, so one that is recorded again after a crash is the same event.
"""

import asyncio
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Protocol

import structlog

from gpuledger.events.envelope import Event, encode, nats_subject_of
from gpuledger.events.ids import derived_id
from gpuledger.events.payload import Payload
from gpuledger.events.publishing import SourceKind
from gpuledger.ledger.api import Ledger, Outgoing
from gpuledger.ledger.errors import EventRefusedError, LedgerUnavailableError, PublishError
from gpuledger.ledger.own import publish_own
from gpuledger.projection.subject_form import SubjectForm
from gpuledger.runtime.backoff import Backoff, Jitter, Retries
from gpuledger.runtime.clock import Clock, NewId, random_id


class RecordedIntent(Protocol):
    """An intent about a node, or whatever else an outcome follows from."""

    @property
    def node(self) -> str:
        """What the outcome is about: the node of an intent."""

    @property
    def intent(self) -> str:
        """The id of its event."""

    @property
    def time(self) -> datetime:
        """When it was decided."""

    @property
    def correlation(self) -> str:
        """The first event of its chain."""


class OutcomeRecorder:
    """Publishes outcomes in the order of their numbers: one alone at once, and those that wait meanwhile together."""

    def __init__(
        self,
        service: SourceKind,
        ledger: Ledger,
        backoff: Backoff,
        clock: Clock,
        jitter: Jitter,
        new_id: NewId = random_id,
    ) -> None:
        self._service = service
        self._log = structlog.get_logger(f"gpuledger.{service}")
        self._ledger = ledger
        self._form = SubjectForm(ledger)
        self._clock = clock
        self._retries = Retries(backoff, jitter)
        self._new_id = new_id
        self._epoch = new_id()
        self._number = 0
        self._publishing = asyncio.Lock()
        self._waiting: dict[Outgoing, None] = {}

    async def record(self, intent: RecordedIntent, outcome: Payload, part: str = "") -> None:
        """Return once the ledger has the outcome, or that part of what is recorded of an intent: each has one id.

        Raises:
            EventRefusedError: the ledger will never take it.
        """
        await self._record([self._message(intent, outcome, part)])

    async def record_all(self, outcomes: Iterable[tuple[RecordedIntent, Payload]]) -> None:
        """Return once the ledger has all of them, each of another intent, in this order; raises as `record`."""
        await self._record([self._message(intent, outcome, "") for intent, outcome in outcomes])

    async def record_first(self, subject: str, fact: Payload, event_id: str) -> None:
        """Return once the ledger has an event that follows from no other, under the caller's id; raises as `record`."""
        await self.record_together([(subject, fact, event_id)])

    async def record_together(
        self, facts: Iterable[tuple[str, Payload, str]], not_before: datetime | None = None
    ) -> None:
        """As `record_first`, of several events, which are published together in this order; whatever the clock says."""
        now = self._clock() if not_before is None else max(self._clock(), not_before)
        await self._record([self._outgoing(event_id, subject, now, fact) for subject, fact, event_id in facts])

    async def _record(self, messages: Sequence[Outgoing]) -> None:
        self._waiting |= dict.fromkeys(messages)
        async with self._publishing:
            if any(message in self._waiting for message in messages):
                waiting, self._waiting = list(self._waiting), {}
                await self._publish(waiting)

    def _message(self, intent: RecordedIntent, outcome: Payload, part: str) -> Outgoing:
        subject = f"{intent.node}/{part}" if part else intent.node
        event_id = derived_id(intent.intent, outcome.TYPE, subject)
        time = max(self._clock(), intent.time)
        return self._outgoing(event_id, intent.node, time, outcome, intent.intent, intent.correlation)

    def _outgoing(
        self,
        event_id: str,
        subject: str,
        time: datetime,
        data: Payload,
        cause: str | None = None,
        correlation: str | None = None,
    ) -> Outgoing:
        self._number += 1
        source = f"/services/{self._service}"
        event = Event(event_id, source, data.TYPE, subject, time, data, self._epoch, self._number, cause, correlation)
        return Outgoing(nats_subject_of(event), self._new_id(), encode(event))

    async def _publish(self, messages: list[Outgoing]) -> None:
        while True:
            try:
                messages = await self._form.of(messages)
                await publish_own(self._ledger, messages)
            except EventRefusedError:
                raise
            except (LedgerUnavailableError, PublishError) as error:
                pause_s = self._retries.pause_s()
                self._log.warning(f"{self._service}.outcome-waits", reason=str(error), retry_s=round(pause_s, 3))
                await asyncio.sleep(pause_s)
            else:
                self._retries.reset()
                return
