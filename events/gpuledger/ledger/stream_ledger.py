"""The ledger in JetStream: puts connection, streams, publisher and readers together, and counts what is published.

It begins in one generation, and goes on in the next when that is closed: what is published then is recorded there, and
who reads comes to it. Nothing else may change its generation: a restore begins another numbering.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import (
    AbstractAsyncContextManager,
    AbstractContextManager,
    AsyncExitStack,
    asynccontextmanager,
    nullcontext,
    suppress,
)
from itertools import compress
from operator import not_
from typing import Final, TypeVar

from nats.errors import Error as NatsError
from nats.js.errors import NotFoundError

from gpuledger.events.position import (
    ORIGIN,
    Generations,
    Offset,
    earliest,
    is_at_or_after,
    is_origin,
    latest,
)
from gpuledger.events.subjects import ALL
from gpuledger.ledger.api import Expected, Ledger, Message, Outgoing, Reader, Receipt
from gpuledger.ledger.closed import ClosedGenerations, continuing_generation
from gpuledger.ledger.closing import Closing, closing_state
from gpuledger.ledger.connect import Connection
from gpuledger.ledger.continuity import LogGuard
from gpuledger.ledger.errors import (
    GenerationError,
    LedgerError,
    LogLostError,
    LogRestoredError,
    NoLedgerError,
)
from gpuledger.ledger.generation_log import GenerationLog, StreamLog, Times
from gpuledger.ledger.generation_publish import GenerationPublisher, StreamPublisher
from gpuledger.ledger.identity import Anchor, LedgerIdentity, anchor_of
from gpuledger.ledger.span import SpanningReader, spanning
from gpuledger.ledger.span_publish import SpanningPublisher, is_in_current
from gpuledger.ledger.storage import StorageUse
from gpuledger.ledger.stream import Generation, is_archived, open_generation, stream_info
from gpuledger.runtime.tasks import abandon

GENERATION_CHECK_S: Final = 2.0
"""How often it is looked whether the generation was closed; who publishes learns of it at once."""

T = TypeVar("T")


class JetStreamLedger(Ledger):
    """The ledger on a NATS server; `connect_ledger` makes it, and `running` has to surround its use."""

    def __init__(
        self,
        connection: Connection,
        generation: Generation,
        closed: ClosedGenerations,
        times: Times,
        guard: LogGuard | None = None,
    ) -> None:
        self._connection = connection
        self._guard = guard
        self._times = times
        self._closed = closed
        self._generations = (generation.identity or LedgerIdentity("", generation.number)).generations
        self._log = self._open_log(generation)
        self._logs = {generation.number: self._log}
        self._publishing = SpanningPublisher(self, self._log, self._publisher_of(self._log), closed)
        self._readers: set[SpanningReader] = set()
        self._crossing = asyncio.Lock()
        self._running = AsyncExitStack()

    def _open_log(self, generation: Generation) -> GenerationLog:
        """The log of a generation that is the current one, or was when the one behind it had not begun."""
        return StreamLog(self._connection, generation, self._times, self._guard)

    def _publisher_of(self, log: GenerationLog) -> GenerationPublisher:
        timeout_s = self._times.publish_timeout_s
        return StreamPublisher(self._connection, log.generation, guard=self._guard, timeout_s=timeout_s)

    @asynccontextmanager
    async def running(self, *, follows: bool) -> AsyncIterator[None]:
        """Run what publishing needs, for the length of a block, and go on where a generation `follows`."""
        async with self._running:
            await self._publishing.start()
            await self._running.enter_async_context(self._log.running())
            if self._guard is not None:
                self._running.enter_context(self._connection.on_departure(self._guard.doubt))
            async with AsyncExitStack() as following:
                if follows:
                    following.push_async_callback(abandon, asyncio.create_task(self._follow_generations()))
                yield

    @property
    def _generation(self) -> Generation:
        return self._log.generation

    @property
    def guard(self) -> LogGuard | None:
        """What confirms the log; None where it has no id yet."""
        return self._guard

    @property
    def generation(self) -> int:
        """See `gpuledger.ledger.api.Ledger.generation`."""
        return self._generation.number

    @property
    def partitions(self) -> int:
        """How many partitions the ledger has."""
        return self._generation.partitions

    @property
    def generations(self) -> Generations:
        """See `gpuledger.ledger.api.Ledger.generations`."""
        return self._generations

    @property
    def message_bytes_max(self) -> int:
        """See `gpuledger.ledger.api.Ledger.message_bytes_max`."""
        return self._publishing.message_bytes_max

    @property
    def identity(self) -> LedgerIdentity:
        """See `gpuledger.ledger.api.Ledger.identity`."""
        if self._generation.identity is None:
            raise NoLedgerError(
                f"The ledger in {self._generation.stream} has no id yet. Give it one with `gpuledger migrate`."
            )
        return self._generation.identity

    async def confirm(self, anchor: Anchor | None = None) -> None:
        """See `gpuledger.ledger.api.Ledger.confirm`."""
        if (guard := self._guard) is not None:
            await self._of_current(lambda _: guard.confirm(anchor))

    def relying_on(self, anchor: Anchor | None) -> AbstractContextManager[None]:
        """See `gpuledger.ledger.api.Ledger.relying_on`."""
        return nullcontext() if self._guard is None else self._guard.relying_on(lambda: anchor)

    async def anchor_at(self, sequence: Offset) -> Anchor | None:
        """See `gpuledger.ledger.api.Ledger.anchor_at`."""
        return await self._of_current(lambda log: self._anchor_in(log, sequence))

    async def _anchor_in(self, log: GenerationLog, sequence: Offset) -> Anchor | None:
        if is_origin(sequence):
            return None
        if not self._is_here(sequence):
            return await self._closed.anchor_at(sequence)
        found = await log.message_at(sequence)
        if found is None:
            head = await self.head()
            raise LogRestoredError(
                f"{self._generation.stream} ends at {self._generations.position(head)} and has no event at "
                f"{self._generations.position(sequence)}, up to which it was read"
            )
        return anchor_of(found.sequence, found.subject, found.data)

    async def publish(self, message: Outgoing, expected: Expected | None = None) -> Receipt:
        """See `gpuledger.ledger.api.Ledger.publish`; an event that is there already is no conflict."""
        self._refuse_archived()
        return await self._publishing.publish(message, expected)

    async def publish_many(self, messages: Sequence[Outgoing], expected: Expected | None = None) -> list[Receipt]:
        """See `gpuledger.ledger.api.Ledger.publish_many`."""
        self._refuse_archived()
        return await self._publishing.publish_many(messages, expected)

    def read(
        self, after: Offset = ORIGIN, subject_filter: str = ALL, anchor: Anchor | None = None
    ) -> AbstractAsyncContextManager[Reader]:
        """See `gpuledger.ledger.api.Ledger.read`."""
        return self._reading(SpanningReader(self, self._closed, after, subject_filter, anchor))

    @asynccontextmanager
    async def _reading(self, reader: SpanningReader) -> AsyncIterator[SpanningReader]:
        self._readers.add(reader)
        try:
            async with spanning(reader):
                yield reader
        finally:
            self._readers.discard(reader)

    async def history(
        self, after: Offset = ORIGIN, until: Offset | None = None, subject_filter: str = ALL
    ) -> AsyncIterator[list[Message]]:
        """See `gpuledger.ledger.api.Ledger.history`."""
        last = await self._of_current(lambda log: log.last_sequence(subject_filter))
        begins = self._generations.behind(self.generation)
        end = latest([begins, last]) if until is None else until
        if not is_at_or_after(after, begins):
            async for messages in self._closed.history(after, earliest(begins, end), subject_filter):
                yield messages
        async for messages in self._history_behind(latest([after, begins]), earliest(end, last), subject_filter):
            yield messages

    async def head(self) -> Offset:
        """See `gpuledger.ledger.api.Ledger.head`."""
        return await self._of_current(lambda log: log.head())

    async def storage(self) -> tuple[StorageUse, ...]:
        """What it takes of the limits of storage that hold for it; raises as `storage_use`."""
        return await self._log.storage()

    async def closing(self) -> Closing:
        """How far a closing of its newest generation has got; raises as `closing_state`."""
        return await closing_state(self._connection)

    async def last_sequence(self, subject_filter: str) -> Offset:
        """See `gpuledger.ledger.api.Ledger.last_sequence`."""
        last = await self._of_current(lambda log: log.last_sequence(subject_filter))
        return await self._closed.last_sequence(subject_filter) if is_origin(last) else last

    async def log_of(self, generation: int) -> GenerationLog:
        """The log of one generation, whose stream is there.

        Raises:
            GenerationError: it is not.
        """
        if generation not in self._logs:
            self._logs[generation] = self._open_log(await open_generation(self._connection, generation))
        return self._logs[generation]

    async def message_at(self, sequence: Offset) -> Message | None:
        """See `gpuledger.ledger.api.Ledger.message_at`."""
        return await self._of_current(lambda log: self._message_in(log, sequence))

    async def _message_in(self, log: GenerationLog, sequence: Offset) -> Message | None:
        if not self._is_here(sequence):
            return await self._closed.message_at(sequence)
        return await log.message_at(sequence)

    async def messages_at(self, sequences: Sequence[Offset]) -> list[Message | None]:
        """See `gpuledger.ledger.api.Ledger.messages_at`."""
        return await self._of_current(lambda log: self._messages_in(log, sequences))

    async def _messages_in(self, log: GenerationLog, sequences: Sequence[Offset]) -> list[Message | None]:
        are_here = [self._is_here(one) for one in sequences]
        here = list(compress(sequences, are_here))
        current = await log.messages_at(here) if here else []
        for sequence, message in zip(here, current, strict=True):
            if message is None:
                raise await self._absent(sequence)
        there = iter(current)
        closed = iter(await self._closed.messages_at(list(compress(sequences, map(not_, are_here)))))
        return [next(there if is_here else closed) for is_here in are_here]

    async def go_on(self) -> bool:
        """Go on in the generation behind this one, if it was closed; False where there is none yet.

        Raises:
            LedgerUnavailableError: the server does not answer.
        """
        async with self._crossing:
            if self._generation.identity is None or not self._generation.current:
                return False
            following = await continuing_generation(self._connection, self._generation.identity)
            if following is None or following.identity is None:
                return False
            log = self._open_log(following)
            publisher = self._publisher_of(log)
            await publisher.start()
            await self._running.enter_async_context(log.running())
            await self._log.retire()
            self._log = self._logs[following.number] = log
            self._closed.follow(following.identity)
            self._publishing.follow(log, publisher)
            if self._guard is not None:
                self._guard.follow(following.identity)
            for generation, behind_it in following.identity.generations.begun:
                if generation > self._generations.current:
                    self._generations.begin(generation, behind_it)
            for reader in self._readers:
                reader.wake()
            return True

    async def go_on_from(self, generation: int) -> bool:
        """Go on behind a generation, unless another call has done so; False where there is none yet.

        Raises:
            LedgerUnavailableError: the server does not answer.
        """
        if generation == self.generation:
            await self.go_on()
        return generation != self.generation

    async def _of_current(self, ask: Callable[[GenerationLog], Awaitable[T]]) -> T:
        """Ask the current generation, and the next one where it was closed and its stream is gone already.

        Raises:
            LogLostError: its stream is gone, and the log does not go on elsewhere.
        """
        generation = self.generation
        try:
            return await ask(self._log)
        except LogLostError:
            if not await self.go_on_from(generation):
                raise
            return await ask(self._log)

    async def _follow_generations(self) -> None:
        """Go on in the next generation whenever one is closed, until cancelled."""
        while True:
            await asyncio.sleep(GENERATION_CHECK_S)
            with suppress(LedgerError, NatsError):
                if await self._is_over():
                    await self.go_on()

    async def _is_over(self) -> bool:
        """Whether the stream was closed, or is gone."""
        try:
            info = await stream_info(self._connection, self._generation.stream)
        except NotFoundError:
            return True
        return is_archived(self.generation, info)

    def _is_here(self, sequence: Offset) -> bool:
        return is_in_current(self._generations, sequence)

    def _refuse_archived(self) -> None:
        if not self._generation.current:
            raise GenerationError(f"Generation {self.generation} is archived. Write to the current one.")
