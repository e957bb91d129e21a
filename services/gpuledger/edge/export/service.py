"""The `export` service: sends selected events to an HTTP endpoint, in the order of the log, each at least once.

One instance exports at a time; the others wait for its lock. Its cursor names the ledger and the last event that was
exported or passed over. Where the log is another one, or lacks that event, the export stops, as every other reader
does. It only reads the ledger.
"""

import asyncio
from collections.abc import Sequence
from contextlib import aclosing
from datetime import datetime, timedelta
from typing import Final, NamedTuple

import psycopg
import structlog

from gpuledger.db.engine import DATABASE_TRANSIENT, connect
from gpuledger.db.errors import DatabaseError
from gpuledger.db.locks import EXPORT_LOCK, HeldLock, stand_by
from gpuledger.edge.export import metrics
from gpuledger.edge.export.bounds import ExportBounds
from gpuledger.edge.export.cursor import Cursor, CursorStore
from gpuledger.edge.export.decide import event_of, is_selected
from gpuledger.edge.export.delivery import Delivery
from gpuledger.edge.export.errors import ExportError, ExportStoppedError
from gpuledger.edge.export.format import Parcel, Place, document_of, encoded, grouped
from gpuledger.edge.export.sender import Sender
from gpuledger.edge.leadership import RestartPolicy, Restarts
from gpuledger.events.errors import EventError
from gpuledger.events.position import (
    ORIGIN,
    Offset,
    Position,
    back,
    is_after,
    is_at_or_after,
    is_same,
    lag,
    parse_typed,
)
from gpuledger.ledger.api import Ledger, Message
from gpuledger.ledger.errors import LedgerError, LedgerUnavailableError
from gpuledger.ledger.identity import anchor_of
from gpuledger.projection.continuity import check_generation, check_ledger_id
from gpuledger.projection.replay import sequence_at
from gpuledger.runtime.backoff import Jitter, system_jitter
from gpuledger.runtime.clock import Clock, system_clock
from gpuledger.runtime.export_settings import HEAD, START, ExportSettings, begin_time
from gpuledger.runtime.tasks import run_until_one_ends

TRANSIENT: Final = (LedgerUnavailableError, *DATABASE_TRANSIENT)
"""Errors after which the export goes on by itself."""

STOPPING: Final = (LedgerError, ExportError, DatabaseError, psycopg.Error)
"""All others that it may meet."""

log = structlog.get_logger("gpuledger.export")

FOLLOWS = "the cursor of the export follows"
"""The beginning of the sentence about a log that is another one."""


class ExportHealth(NamedTuple):
    """`state` is waiting (for the lock or a server), exporting, retrying (the endpoint takes nothing) or stopped.

    `lag_events` is None where it could not be measured.
    """

    state: str
    position: str | None
    lag_events: int | None
    reason: str | None


class Exporter:
    """The export of one process; `run` it, and ask for its `health`."""

    def __init__(
        self,
        ledger: Ledger,
        database_url: str,
        settings: ExportSettings,
        bounds: ExportBounds | None = None,
        *,
        clock: Clock = system_clock,
        jitter: Jitter = system_jitter,
    ) -> None:
        self.ledger = ledger
        self._database_url = database_url
        self._settings = settings
        self._bounds = bounds or ExportBounds()
        self._clock = clock
        self._jitter = jitter
        self._delivery: Delivery | None = None
        self._at: Position | None = None
        self._first: Message | None = None
        self._lag_events: int | None = None
        self._behind_since: datetime | None = None
        bounds = self._bounds
        self._restarts = Restarts(
            "export", RestartPolicy(bounds.interruptions, bounds.stopped_retry_s, TRANSIENT, STOPPING), jitter
        )

    def health(self) -> ExportHealth:
        """How far the export is, and what is wrong if anything is."""
        state, reason = "waiting", self._restarts.problem
        if self._restarts.is_stopped:
            state = "stopped"
        elif self._delivery is not None:
            state, reason = ("retrying", self._delivery.trouble) if self._delivery.trouble else ("exporting", None)
        return ExportHealth(state, None if self._at is None else str(self._at), self._lag_events, reason)

    async def run(self) -> None:
        """Export until cancelled, recovering from servers that go away."""
        await self._restarts.run(self._stand_by_and_lead, self._ended)

    def _ended(self) -> None:
        if self._restarts.is_stopped:
            metrics.stopped(is_stopped=True)

    async def _stand_by_and_lead(self) -> None:
        async with connect(self._database_url, application_name="gpuledger export") as connection:
            held = await stand_by(connection, EXPORT_LOCK, self._bounds.lock_check, jitter=self._jitter)
            try:
                await self._lead(CursorStore(connection), held)
            finally:
                self._delivery = self._first = self._lag_events = self._behind_since = None
                metrics.active(is_active=False)
                metrics.unmeasured()

    async def _lead(self, store: CursorStore, held: HeldLock) -> None:
        settings, bounds = self._settings, self._bounds
        cursor = await store.read() or await self._begin(store)
        check_ledger_id(FOLLOWS, self.ledger, cursor.ledger_id)
        check_generation(FOLLOWS, self.ledger, cursor.at)
        await self.ledger.confirm(cursor.anchor)
        self._at = cursor.at
        async with aclosing(Sender(settings, bounds, self._clock)) as sender:
            delivery = Delivery(sender, store, held, settings, bounds, self._jitter, self._moved)
            await delivery.begin()
            self._delivery = delivery
            self._restarts.recovered()
            metrics.active(is_active=True)
            metrics.stopped(is_stopped=False)
            log.info("export.leading", endpoint=settings.endpoint, position=str(cursor.at))
            await run_until_one_ends(self._follow(cursor, delivery, held), self._measure())

    async def _begin(self, store: CursorStore) -> Cursor:
        """The first cursor, where the settings say."""
        after = await self._beginning(self._settings.begin)
        anchor = await self.ledger.anchor_at(after)
        cursor = Cursor(self.ledger.identity.ledger_id, self.ledger.generations.position(after), anchor)
        await store.begin(cursor)
        log.info("export.begun", begin=self._settings.begin, position=str(cursor.at))
        return cursor

    async def _beginning(self, text: str) -> Offset:
        """The place behind which to begin."""
        if text in {HEAD, START}:
            return ORIGIN if text == START else await self.ledger.head()
        time = begin_time(text)
        if time is not None:
            return await sequence_at(self.ledger, time - timedelta(microseconds=1))
        generation, sequence = parse_typed(text)
        head = await self.ledger.head()
        is_there = generation is None or self.ledger.generations.has(Position(generation, sequence))
        if not is_there or is_after(back(sequence, 1), head):
            ends = self.ledger.generations.position(head)
            raise ExportStoppedError(f"The export is to begin at {text}, and the log ends at {ends}. Correct begin.")
        return back(sequence, 1)

    async def _follow(self, cursor: Cursor, delivery: Delivery, held: HeldLock) -> None:
        async with self.ledger.read(cursor.sequence, anchor=cursor.anchor) as reader:
            while True:
                messages = await reader.next_batch(self._bounds.messages_per_batch, self._bounds.tick_s)
                if messages:
                    await self._take(messages, delivery)
                else:
                    await held.beat()

    async def _take(self, messages: Sequence[Message], delivery: Delivery) -> None:
        """Deliver what is selected of a batch, and pass over the rest."""
        self._first = messages[0]
        parcels = [parcel for one in messages if (parcel := self._parcel(one)) is not None]
        for group in grouped(parcels, self._settings.batch_events, self._bounds.body_bytes_max):
            await delivery.deliver(group)
            self._first = next((one for one in messages if is_after(one.sequence, group[-1].at.sequence)), None)
        last = messages[-1]
        if not parcels or not is_same(parcels[-1].at.sequence, last.sequence):
            await delivery.move(self._position(last), anchor_of(last.sequence, last.subject, last.data))
        self._first = None

    def _parcel(self, message: Message) -> Parcel | None:
        """What to send of a message; None where it is passed over."""
        try:
            event = event_of(message)
            if not is_selected(event, self._settings.select):
                metrics.took("not-selected")
                return None
            at = self._position(message)
            place = Place(self.ledger.identity.ledger_id, at, message.recorded_ns)
            document = encoded(document_of(event, place, self._settings))
        except EventError as error:
            metrics.took("rejected")
            log.warning("export.rejected", position=str(self._position(message)), reason=str(error))
            return None
        anchor = anchor_of(message.sequence, message.subject, message.data)
        return Parcel(document, at, anchor, event.id, event.type, event.subject)

    def _position(self, message: Message) -> Position:
        return self.ledger.generations.position(message.sequence)

    def _moved(self, at: Position) -> None:
        self._at, self._behind_since = at, None

    async def _measure(self) -> None:
        """Measure the lag until cancelled; nothing is shown that could not be measured."""
        while True:
            try:
                head = await self.ledger.head()
            except LedgerError as error:
                self._lag_events = None
                metrics.unmeasured()
                log.warning("export.not-measured", reason=str(error))
            else:
                self._show_lag(head, self._clock())
            await asyncio.sleep(self._bounds.measure_s)

    def _show_lag(self, head: Offset, now: datetime) -> None:
        assert self._at is not None, "it leads"
        if not is_at_or_after(head, self._at.sequence):
            self._lag_events = None  # the log has become shorter, and the reader is about to say so
            metrics.unmeasured()
            return
        self._lag_events = lag(self._at.sequence, head)
        self._behind_since = (self._behind_since or now) if self._lag_events else None
        waiting_s = 0.0 if self._behind_since is None else (now - self._behind_since).total_seconds()
        if self._lag_events and self._first is not None:
            waiting_s = max(waiting_s, now.timestamp() - self._first.recorded_ns / 1e9)
        metrics.measured(self._lag_events, max(0.0, waiting_s))
