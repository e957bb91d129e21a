"""Publishes reports in the order of their numbers, until the ledger has each. What waits is bounded.

The replicas publish side by side, so each numbers its events in an epoch of its own, and an event keeps its number, its
id and its message's id for as long as it waits: to publish it again adds nothing.
"""

import asyncio
from collections import OrderedDict, deque
from contextlib import suppress
from datetime import datetime
from typing import Final, NamedTuple

import structlog

from gpuledger.edge.gateway.bounds import GatewayBounds
from gpuledger.edge.gateway.metrics import LOST, WAITING
from gpuledger.events.envelope import Event, encode, nats_subject_of
from gpuledger.events.health import NodeHealthReported
from gpuledger.events.ids import derived_id
from gpuledger.events.publishing import SourceKind
from gpuledger.healthreports.coalescing import digest
from gpuledger.ledger.api import Ledger, Outgoing
from gpuledger.ledger.errors import EventRefusedError, LedgerError
from gpuledger.ledger.own import publish_own
from gpuledger.runtime.backoff import Jitter, Retries
from gpuledger.runtime.clock import NewId, random_id
from gpuledger.runtime.tasks import within

SOURCE: Final = f"/{SourceKind.GATEWAYS}/health"

ENVELOPE_BYTES: Final = 1024
"""What an event has beside its payload, at most."""

DOCUMENT_BYTES_LOGGED: Final = 1024

log = structlog.get_logger("gpuledger.gateway")


class NodeReport(NamedTuple):
    """A report to record: about which node, and when it was true."""

    node: str
    data: NodeHealthReported
    at: datetime


class _Waiting(NamedTuple):
    message: Outgoing
    recorded: asyncio.Future[bool]


def event_id(report: NodeReport) -> str:
    """The id of a report's event: the same whichever replica records it, if one is sent again after a crash."""
    content = f"{digest(report.data)}/{report.at.isoformat()}/{report.data.count}"
    return derived_id(content, NodeHealthReported.TYPE, report.node)


class ReportPublisher:
    """What waits for the ledger; `run` it. `trouble` is why the ledger takes nothing, empty where it does."""

    def __init__(self, ledger: Ledger, bounds: GatewayBounds, jitter: Jitter, new_id: NewId = random_id) -> None:
        self.epoch: Final = new_id()
        self.trouble = ""
        self._ledger = ledger
        self._bounds = bounds
        self._retries = Retries(bounds.backoff, jitter)
        self._new_id = new_id
        self._number = 0
        self._ids: OrderedDict[str, str] = OrderedDict()
        """The newest event of each content, node, time and count that was recorded lately, here or by others."""
        self._waiting: deque[_Waiting] = deque()
        self._bytes = 0
        self._arrived = asyncio.Event()

    def has_room(self, events: int, size: int) -> bool:
        """Whether so many more events of that size may wait."""
        bounds = self._bounds
        fits = len(self._waiting) + events <= bounds.events_waiting_max
        return fits and self._bytes + size <= bounds.bytes_waiting_max

    def add(self, report: NodeReport) -> asyncio.Future[bool]:
        """Have a report recorded; the future tells when the ledger has it, or False: it will never have it."""
        self._number += 1
        kind = NodeHealthReported.TYPE
        event = Event(
            self._next_id(report), SOURCE, kind, report.node, report.at, report.data, self.epoch, self._number
        )
        message = Outgoing(nats_subject_of(event), self._new_id(), encode(event))
        waiting = _Waiting(message, asyncio.get_running_loop().create_future())
        self._waiting.append(waiting)
        self._bytes += len(message.data)
        WAITING.set(len(self._waiting))
        self._arrived.set()
        return waiting.recorded

    def note(self, report: NodeReport, event: str) -> None:
        """The ledger has this event of a report: another one that says the same at the same time is not this one."""
        first = event_id(report)
        self._ids.pop(first, None)
        self._ids[first] = event
        if len(self._ids) > self._bounds.ids_max:
            self._ids.popitem(last=False)

    def _next_id(self, report: NodeReport) -> str:
        """The id of a report that is news: it follows from the one before it that said the same at the same time.

        That is so where something contradicted it in between, by a monitor whose clock has whole seconds.
        """
        before = self._ids.get(event_id(report))
        found = event_id(report) if before is None else derived_id(before, NodeHealthReported.TYPE, report.node)
        self.note(report, found)
        return found

    async def run(self) -> None:
        """Publish what waits, as it comes, until cancelled."""
        while True:
            await self._arrived.wait()
            self._arrived.clear()
            while self._waiting:
                await self._publish_first()

    async def drain(self) -> None:
        """Publish what is left, within a bound; nobody was told that the ledger has what stays behind."""
        with suppress(TimeoutError):
            await within(self._bounds.drain_timeout_s, self._publish_rest())

    async def _publish_rest(self) -> None:
        while self._waiting:
            await self._publish_first()

    async def _publish_first(self) -> None:
        """Publish those that wait longest, or pause: the order of the numbers is that of the log."""
        count = min(len(self._waiting), self._bounds.events_per_batch_max)
        batch = [self._waiting[index] for index in range(count)]
        try:
            await publish_own(self._ledger, [one.message for one in batch])
        except EventRefusedError as error:
            await self._publish_alone(batch, error)
        except LedgerError as error:
            await self._pause(error)
        else:
            self._retries.reset()
            self.trouble = ""
            for one in batch:
                self._settle(one, is_recorded=True)

    async def _publish_alone(self, batch: list[_Waiting], refusal: EventRefusedError) -> None:
        """Publish the first of a batch of which the ledger refuses one; what it refuses shows as a gap."""
        first = batch[0]
        try:
            if len(batch) > 1:
                await publish_own(self._ledger, [first.message])
        except EventRefusedError as error:
            refusal = error
        except LedgerError as error:
            await self._pause(error)
            return
        else:
            if len(batch) > 1:
                self._settle(first, is_recorded=True)
                return
        LOST.inc()
        document = first.message.data[:DOCUMENT_BYTES_LOGGED].decode(errors="replace")
        log.error("gateway.event-refused", reason=str(refusal), document=document)
        self._settle(first, is_recorded=False)

    async def _pause(self, error: LedgerError) -> None:
        self.trouble, pause_s = str(error), self._retries.pause_s()
        log.warning("gateway.event-waits", reason=self.trouble, retry_s=round(pause_s, 3))
        await asyncio.sleep(pause_s)

    def _settle(self, one: _Waiting, *, is_recorded: bool) -> None:
        assert self._waiting[0] is one, "they are settled in their order"
        self._waiting.popleft()
        self._bytes -= len(one.message.data)
        WAITING.set(len(self._waiting))
        if not one.recorded.done():
            one.recorded.set_result(is_recorded)
