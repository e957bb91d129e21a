"""Appends to the order of a ledger's partitions whatever the partitions have recorded.

It reads only the headers of events. Any number of processes may have one: each append expects the message that it
follows, and the server refuses it where there is another one already. Whoever is refused leaves the order to the other
until something stays out of the log for too long. It must never take back what is in the log, and never put anything in
that a partition has not acknowledged as stored.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack, suppress
from typing import Final

import orjson
from nats.errors import Error as NatsError

from gpuledger.events.position import Offset, number_of
from gpuledger.ledger.connect import REQUEST_ATTEMPT_S, ROLES_ADVICE, Connection
from gpuledger.ledger.errors import LedgerError, PermissionDeniedError, PublishError
from gpuledger.ledger.order import Entry, Order
from gpuledger.ledger.partitions import Upto, is_behind, together, written
from gpuledger.ledger.publish import EXPECTED_STREAM
from gpuledger.ledger.queries import unless_denied
from gpuledger.ledger.read import OrderedReader, reading
from gpuledger.ledger.refusal import PublishRefusal, refusal_of
from gpuledger.ledger.storage import NO_STORAGE_CODES
from gpuledger.runtime.backoff import Backoff, Retries
from gpuledger.runtime.tasks import abandon
from gpuledger.runtime.telemetry import STORAGE_REFUSALS

EXPECTED_LAST: Final = "Nats-Expected-Last-Sequence"

WATCH_S: Final = 1.0
"""How often it is looked whether events stay out of the log; they do where nobody appends."""

APPEND_AGAIN_S: Final = 0.05
"""The pause before the server is asked again that has not taken a message of the order."""

APPENDS_MAX: Final = 100
"""How often the server is asked to take the rest of the order of a generation that is closed."""

RETRY: Final = Backoff(first_s=0.05, max_s=5.0)

ADVICE: Final = "Only services may put events into the log: start `gpuledger up`."

MakeReader = Callable[[int, Offset], OrderedReader]
"""Makes a reader of the headers of a partition, behind one of its messages."""

Lengths = Callable[[], Awaitable[Upto]]
"""Gives the number of messages that each partition has by now."""

_log = logging.getLogger("gpuledger.ledger")


class Sequencer:
    """Appends to the order of one generation, once it is called or sees that nobody does."""

    def __init__(self, connection: Connection, order: Order, make_reader: MakeReader) -> None:
        self._connection = connection
        self._order = order
        self._make_reader = make_reader
        self._called = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._is_denied = False
        self._heads: _Heads | None = None
        self.appended = 0
        """How many messages of the order are this one's."""
        self.problem = ""
        """Why the server takes no message of the order, if that was so when it was last asked."""

    def call(self) -> None:
        """Append what stays out of the log, unless that is forbidden here.

        Who appends already looks whether the order still is the one that it goes on: a store may have been put back.
        """
        if self._is_denied:
            return
        self._called.set()
        if self._heads is not None:
            self._heads.doubt()
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._run(), name="sequencer")

    async def watch(self, lengths: Lengths) -> None:
        """Append from now on where nobody else does, until cancelled."""
        self.call()
        before: Entry | None = None
        while True:
            await asyncio.sleep(WATCH_S)
            with suppress(LedgerError, NatsError):
                last, found = await self._order.last(), await lengths()
                if last == before and is_behind(last.upto, found):
                    self.call()
                before = last

    async def aclose(self) -> None:
        """Stop."""
        if self._task is not None:
            await abandon(self._task)

    async def _run(self) -> None:
        retries = Retries(RETRY)
        while not self._is_denied:
            await self._called.wait()
            self._called.clear()
            try:
                await self._lead()
                retries.reset()
            except PermissionDeniedError as error:
                _log.info("%s", error)
                self._is_denied = True
            except LedgerError as error:
                _log.warning("the order of the log does not go on: %s", error)
                await asyncio.sleep(retries.pause_s())
                self._called.set()

    async def _lead(self) -> None:
        """Append until somebody else does, or over another connection: then all is asked anew, of what store is there.

        Raises:
            PermissionDeniedError: we may not.
            LedgerError: a partition cannot be read.
        """
        connected, last = self._order.times_connected, await self._order.last()
        heads = self._heads = _Heads(last.upto)
        async with AsyncExitStack() as stack:
            stack.callback(setattr, self, "_heads", None)
            for partition, number in enumerate(last.upto):
                reader = await stack.enter_async_context(reading(self._make_reader(partition, number)))
                task = asyncio.create_task(heads.follow(partition, reader))
                stack.push_async_callback(abandon, task)
            while True:
                upto = together(last.upto, await heads.beyond(last.upto))
                if heads.is_doubted():
                    if await self._order.last() != last:
                        return
                    continue
                if connected != self._order.times_connected:
                    self._called.set()
                    return
                appended = await self._append(last, upto)
                if appended is None:
                    return
                last = appended

    async def _append(self, last: Entry, upto: Upto) -> Entry | None:
        """The last message of the order, which may be ours, or the one before; None if it is another's."""
        appended, refusal = await _append(self._connection, self._order, last, upto, ADVICE)
        if appended is not None:
            self.appended += 1
            self.problem = ""
            return appended
        found = await self._order.last()
        self.problem = refusal.reason if refusal and found == last else ""
        if found == last:
            await asyncio.sleep(APPEND_AGAIN_S)
        return found if found in (last, Entry(last.number + 1, upto)) else None


async def _append(
    connection: Connection, order: Order, last: Entry, upto: Upto, advice: str
) -> tuple[Entry | None, PublishRefusal | None]:
    """The message that the server appended behind the last one; None where it did not, with its refusal if it answers.

    Nothing is sent while the connection is down: what the client keeps for later could reach another store.

    Raises:
        PermissionDeniedError: we may not.
    """
    if not connection.is_up:
        return None, None
    headers = {EXPECTED_LAST: str(last.number), EXPECTED_STREAM: order.stream}
    with suppress(NatsError, TimeoutError):
        request = connection.client.request(order.subject, written(upto), timeout=REQUEST_ATTEMPT_S, headers=headers)
        answer = await unless_denied(connection, request, {order.subject}, advice)
        refusal = refusal_of(answer)
        if refusal is None:
            return Entry(orjson.loads(answer.data)["seq"], upto), None
        STORAGE_REFUSALS.inc(refusal.code in NO_STORAGE_CODES)
        return None, refusal
    return None, None


async def append_rest(connection: Connection, order: Order, lengths: Lengths) -> Upto:
    """Append what stays out of the log of partitions that take no more events; returns what is in it then: all.

    Raises:
        PermissionDeniedError: we may not.
        PublishError: the server did not take it within the bound.
        LedgerUnavailableError: the server does not answer.
    """
    why = ""
    for _ in range(APPENDS_MAX):
        last, found = await order.last(), await lengths()
        if not is_behind(last.upto, found):
            return last.upto
        appended, refusal = await _append(connection, order, last, together(last.upto, found), ROLES_ADVICE)
        if appended is None:
            why = f": {refusal.reason}" if refusal else ""
            await asyncio.sleep(APPEND_AGAIN_S)
    raise PublishError(f"{order.stream} did not take the rest of the order of the log{why}. Try again.")


class _Heads:
    """How many messages each partition has, as far as their headers have arrived."""

    def __init__(self, upto: Upto) -> None:
        self._heads = list(upto)
        self._news = asyncio.Event()
        self._failure: LedgerError | None = None
        self._doubted = False

    def doubt(self) -> None:
        """Have `beyond` return, whatever has arrived."""
        self._doubted = True
        self._news.set()

    def is_doubted(self) -> bool:
        """Whether there was a doubt since this was asked last."""
        doubted, self._doubted = self._doubted, False
        return doubted

    async def follow(self, partition: int, reader: OrderedReader) -> None:
        """Take what a partition has, until cancelled or until it fails."""
        try:
            while True:
                messages = await reader.next_batch()
                self._heads[partition] = number_of(messages[-1].sequence)
                self._news.set()
        except LedgerError as error:
            self._failure = error
            self._news.set()

    async def beyond(self, upto: Upto) -> Upto:
        """Wait for something that is not in the log, or for a doubt; what each partition has by then."""
        while not is_behind(upto, tuple(self._heads)) and not self._doubted:
            if self._failure is not None:
                raise self._failure
            self._news.clear()
            await self._news.wait()
        return tuple(self._heads)
