"""Delivers events to the endpoint, in their order, until it has them or refuses them for good.

The cursor moves behind each request and never before: who is killed in between sends that request again. Meanwhile the
lock is checked, because a leader that lost it must not go on for long beside the next one.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

import structlog

from gpuledger.db.locks import HeldLock
from gpuledger.edge.export import metrics
from gpuledger.edge.export.bounds import ExportBounds
from gpuledger.edge.export.cursor import CursorStore, DeadLetter
from gpuledger.edge.export.decide import Answer, FailureReason, failure_of
from gpuledger.edge.export.errors import ExportStoppedError, UndeliveredError
from gpuledger.edge.export.format import Parcel, body_of
from gpuledger.edge.export.sender import Sender
from gpuledger.events.position import Position
from gpuledger.ledger.identity import Anchor
from gpuledger.runtime.backoff import Jitter, Retries
from gpuledger.runtime.export_settings import ExportSettings

log = structlog.get_logger("gpuledger.export")

SHOWN_MAX: Final = 200
"""How much of an endpoint's answer is shown."""


class Delivery:
    """Delivers for one leader; `trouble` is why the endpoint takes nothing at the moment, empty where it does.

    `on_moved` is called with each place that the cursor has moved to.
    """

    def __init__(
        self,
        sender: Sender,
        store: CursorStore,
        held: HeldLock,
        settings: ExportSettings,
        bounds: ExportBounds,
        jitter: Jitter,
        on_moved: Callable[[Position], None],
    ) -> None:
        self.trouble = ""
        self._sender = sender
        self._store = store
        self._held = held
        self._settings = settings
        self._bounds = bounds
        self._retries = Retries(bounds.retries, jitter)
        self._on_moved = on_moved
        self._dead_letters = 0
        self._led_at_s = 0.0

    async def begin(self) -> None:
        """Count the dead letters that there are."""
        self._dead_letters = await self._write(self._store.dead_letters)
        metrics.dead_letters(self._dead_letters)

    async def deliver(self, parcels: Sequence[Parcel]) -> None:
        """Return once the endpoint has the events, or they are dead letters, and the cursor stands behind them.

        Raises:
            ExportStoppedError: the endpoint refuses one, and the settings stop there, or the list is full.
            LockLostError: another process may lead.
        """
        answer = await self._answer(parcels)
        if answer.is_success:
            metrics.took("delivered", len(parcels))
            await self.move(parcels[-1].at, parcels[-1].anchor)
        elif len(parcels) > 1:
            half = len(parcels) // 2
            await self.deliver(parcels[:half])
            await self.deliver(parcels[half:])
        else:
            await self._refuse(parcels[0], answer)

    async def move(self, at: Position, anchor: Anchor, letter: DeadLetter | None = None) -> None:
        """Move the cursor, in one transaction with a dead letter if there is one."""
        await self._write(lambda: self._store.move(at, anchor, letter))
        self._on_moved(at)

    async def _answer(self, parcels: Sequence[Parcel]) -> Answer:
        """The answer with which the events are delivered, or refused for good."""
        is_batch = self._settings.batch_events > 1
        body = body_of(parcels, is_batch=is_batch)
        while True:
            await self._check_lock()
            answer, failure, text = await self._attempt(body, is_batch=is_batch)
            if answer is not None and failure in {None, FailureReason.REFUSED}:
                self._retries.reset()
                self.trouble = ""
                return answer
            assert failure is not None, "only an answer that delivers has none"
            await self._wait(failure, text, None if answer is None else answer.retry_after_s)

    async def _attempt(self, body: bytes, *, is_batch: bool) -> tuple[Answer | None, FailureReason | None, str]:
        """The answer if there is one, why it delivers nothing, and that in words."""
        try:
            answer = await self._sender.send(body, is_batch=is_batch)
        except UndeliveredError as error:
            metrics.failed(error.reason)
            return None, error.reason, str(error)
        failure = failure_of(answer)
        if failure is not None:
            metrics.failed(failure)
        return answer, failure, self._words(answer)

    async def _wait(self, failure: FailureReason, text: str, retry_after_s: float | None) -> None:
        """Pause before another attempt, and check the lock meanwhile."""
        pause_s = self._retries.pause_s(retry_after_s)
        self.trouble = text
        log.warning("export.undelivered", reason=str(failure), message=text, retry_s=round(pause_s, 3))
        clock = asyncio.get_running_loop().time
        until_s = clock() + pause_s
        while (left_s := until_s - clock()) > 0:
            await asyncio.sleep(min(left_s, self._bounds.lock_check.interval_s))
            await self._check_lock()

    async def _check_lock(self) -> None:
        """Have PostgreSQL say that we lead still, unless it did so a moment ago."""
        now_s = asyncio.get_running_loop().time()
        if now_s - self._led_at_s >= self._bounds.lock_check.interval_s:
            await self._held.beat()
            self._led_at_s = now_s

    async def _refuse(self, parcel: Parcel, answer: Answer) -> None:
        reason = self._words(answer)
        if self._settings.on_refusal == "stop":
            raise ExportStoppedError(
                f"The export stops before {parcel.type} at {parcel.at}: {reason} Have the endpoint take it, or set "
                "on_refusal to record; see docs/operations.md, Export."
            )
        if self._dead_letters >= self._bounds.dead_letters_max:
            raise ExportStoppedError(
                f"The export stops before {parcel.type} at {parcel.at}, because {self._dead_letters} dead letters are "
                f"recorded and no more are kept: {reason} Look at gpuledger.export_dead_letter and delete what you do "
                "not need; see docs/operations.md, Export."
            )
        letter = DeadLetter(parcel.at, parcel.event_id, parcel.type, parcel.subject, reason)
        await self.move(parcel.at, parcel.anchor, letter)
        self._dead_letters += 1
        metrics.took("refused")
        metrics.dead_letters(self._dead_letters)
        log.error("export.refused", position=str(parcel.at), id=parcel.event_id, type=parcel.type, reason=reason)

    def _words(self, answer: Answer) -> str:
        text = " ".join(answer.text[:SHOWN_MAX].split())
        return f"{self._settings.endpoint} answered {answer.status}{f' ({text})' if text else ''}."

    async def _write(self, work: Callable[[], Awaitable[int | None]]) -> int:
        async def done() -> int:
            return await work() or 0

        return await self._held.within(self._bounds.write_timeout_s, done())
