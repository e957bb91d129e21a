"""The order of a ledger's partitions, as its stream holds it: looked up by place, and followed by whoever publishes.

A message of it is found by bisection, because each says how many messages of every partition are in the log by then.
"""

import asyncio
from bisect import bisect_left
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from typing import Final, NamedTuple

from nats.js.errors import NotFoundError

from gpuledger.events.position import Offset, number_of
from gpuledger.ledger.api import Message
from gpuledger.ledger.connect import Connection
from gpuledger.ledger.continuity import kept_stream
from gpuledger.ledger.errors import LedgerError, LogCutError, LogRestoredError, PublishError
from gpuledger.ledger.one_store import Remembered
from gpuledger.ledger.partitions import Upto, blocks_between, order_subject, parse_upto, read_upto
from gpuledger.ledger.read import OrderedReader, reading
from gpuledger.ledger.single import message_at
from gpuledger.ledger.stream import Generation
from gpuledger.runtime.tasks import abandon

ENTRIES_KEPT_MAX: Final = 4096
"""How many messages of the order are remembered; most questions are about the last ones."""


class Entry(NamedTuple):
    """A message of the order: its number, and up to where each partition is in the log with it."""

    number: int
    upto: Upto


class Step(NamedTuple):
    """What one message of the order appended: from `before` to `after`, as the message `number`."""

    number: int
    before: Upto
    after: Upto


class Order:
    """Asks the server for single messages of the order of one generation.

    Who looks several places up asks for the `last` message once, and gives it with each; else it is asked for each.
    """

    def __init__(self, connection: Connection, generation: Generation) -> None:
        self.stream = generation.stream
        self.subject = order_subject(generation.number)
        self.nothing: Upto = generation.before
        self._connection = connection
        self._kept: Remembered[int, Upto] = Remembered(connection, ENTRIES_KEPT_MAX)

    @property
    def times_connected(self) -> int:
        """What is followed holds for one connection: before the next, the server may have got another store."""
        return self._connection.times_connected

    async def last(self) -> Entry:
        """The last one; the number is 0 where there is none.

        Raises:
            LogLostError: its stream is gone.
            LedgerUnavailableError: the server does not answer.
        """
        try:
            found = await self._connection.request(
                lambda: self._connection.jetstream.get_last_msg(self.stream, self.subject)
            )
        except NotFoundError:
            await kept_stream(self._connection, self.stream)
            return Entry(0, self.nothing)
        number = found.seq or 0
        upto = parse_upto(found.data or b"", len(self.nothing))
        return Entry(number, await self._entry(number - 1) if upto is None else upto)

    async def step_at(self, place: Offset, last: Entry | None = None) -> Step | None:
        """The one that put a place into the log; None where nobody has yet."""
        return await self._first(lambda upto: sum(upto) >= number_of(place), last or await self.last())

    async def step_of(self, partition: int, number: int, last: Entry | None = None) -> Step | None:
        """The one that put a message of a partition into the log; None where nobody has yet."""
        return await self._first(lambda upto: upto[partition] >= number, last or await self.last())

    async def place_of(self, partition: int, number: int, last: Entry | None = None) -> Offset | None:
        """The place in the log of a message of a partition; None where it is not in it yet."""
        step = await self.step_of(partition, number, last)
        return None if step is None else _shift(step.before, step.after, partition) + number

    async def _first(self, reaches: Callable[[Upto], bool], last: Entry) -> Step | None:
        if not reaches(last.upto):
            return None
        back, low, high = 1, last.number - 1, last.number
        while low > 0 and reaches(await self._entry(low)):  # most questions are about the last ones
            back, low, high = 2 * back, max(0, low - back), low
        while high > low + 1:
            middle = (low + high) // 2
            low, high = (low, middle) if reaches(await self._entry(middle)) else (middle, high)
        return Step(high, await self._entry(low), last.upto if high == last.number else await self._entry(high))

    async def _entry(self, number: int) -> Upto:
        if number == 0:
            return self.nothing
        kept = self._kept.get(number)
        if kept is None:
            try:
                found = await message_at(self._connection, self.stream, number)
            except NotFoundError as error:
                raise LogCutError(f"{self.stream} holds no message {number:,}") from error
            upto = parse_upto(found.data, len(self.nothing))
            kept = await self._entry(number - 1) if upto is None else upto
            self._kept.put(number, kept)
        return kept


def _shift(before: Upto, after: Upto, partition: int) -> int:
    """What makes the number of a message in its partition its place in the log."""
    return next(one.shift for one in blocks_between(before, after) if one.partition == partition)


MakeReader = Callable[[Offset], OrderedReader]
"""Makes a reader of the order behind one of its messages."""


class OrderTail:
    """Follows the order from when it was started, for whoever waits for what was published to be in the log."""

    def __init__(self, order: Order, make_reader: MakeReader) -> None:
        self._order = order
        self._make_reader = make_reader
        self._recent: list[Upto] = []
        self._news = asyncio.Event()
        self._failure: LedgerError | None = None
        self._task: asyncio.Task[None] | None = None
        self._times_connected = 0
        self._starting = asyncio.Lock()

    async def start(self) -> None:
        """Follow, if it does not yet over this connection.

        Raises:
            LedgerUnavailableError: the server does not answer.
        """
        async with self._starting:
            if self._task is None or self._task.done() or self._is_over:
                await self.aclose()
                # Whoever waits here may give up; then it has not begun, and the next one begins.
                connected, last = self._order.times_connected, await self._order.last()
                self._times_connected, self._recent, self._failure = connected, [last.upto], None
                self._task = asyncio.create_task(self._follow(last), name="order of the log")

    async def aclose(self) -> None:
        """Stop."""
        if self._task is not None:
            await abandon(self._task)

    @property
    def _is_over(self) -> bool:
        """Whether there was another connection when it began."""
        return self._times_connected != self._order.times_connected

    @property
    def upto(self) -> Upto:
        """What is in the log by now, as far as it has been seen."""
        return self._recent[-1]

    async def reaches(self, partition: int, number: int) -> None:
        """Wait until a message of a partition is in the log.

        Raises:
            LedgerError: the order cannot be read any more.
        """
        while self._is_over or self.upto[partition] < number:
            if self._is_over:
                await self.start()
            elif self._failure is not None:
                raise self._failure
            else:
                await self._news.wait()

    async def places_of(self, partition: int, numbers: Sequence[int]) -> list[Offset]:
        """The places in the log of messages of a partition that are in it."""
        places: list[Offset] = []
        before = after = self._order.nothing
        for number in numbers:
            if not before[partition] < number <= after[partition]:
                before, after = await self._step_of(partition, number)
            places.append(_shift(before, after, partition) + number)
        return places

    async def _step_of(self, partition: int, number: int) -> tuple[Upto, Upto]:
        recent = self._recent
        if recent[0][partition] < number <= recent[-1][partition]:
            at = bisect_left(recent, number, key=lambda upto: upto[partition])
            return recent[at - 1], recent[at]
        step = await self._order.step_of(partition, number)
        if step is None:
            raise LogCutError(f"{self._order.stream} has taken back the message {number:,} of partition {partition}")
        return step.before, step.after

    async def _follow(self, last: Entry) -> None:
        try:
            async with AsyncExitStack() as stack:
                # Nobody relies on what is read here: what was published may be lost with a store that is put back.
                reader = await stack.enter_async_context(reading(self._make_reader(last.number), is_relied_on=False))
                while True:
                    self._take(await reader.next_batch())
        except LogRestoredError as error:
            self._failure = PublishError(f"Meanwhile the store was put back: {error} Publishing it again is safe.")
        except LedgerError as error:
            self._failure = error
        finally:
            self._tell()

    def _take(self, messages: list[Message]) -> None:
        for message in messages:
            self._recent.append(read_upto(message.data, self._recent[-1]))
        if len(self._recent) > 2 * ENTRIES_KEPT_MAX:
            del self._recent[:ENTRIES_KEPT_MAX]
        self._tell()

    def _tell(self) -> None:
        news, self._news = self._news, asyncio.Event()
        news.set()
