"""The ledger in JetStream: puts connection, streams, publisher and readers together, and counts what is published.

It begins in one generation, and goes on in the next when that is closed: what is published then is recorded there, and
who reads comes to it. Nothing else may change its generation: a restore begins another numbering.
"""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import (
    AbstractAsyncContextManager,
    AbstractContextManager,
    asynccontextmanager,
    nullcontext,
    suppress,
)
from typing import Final

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
from gpuledger.ledger.atomic import AtomicPublisher
from gpuledger.ledger.closed import ClosedGenerations, continuing_generation
from gpuledger.ledger.closing import Closing, closing_state
from gpuledger.ledger.connect import Connection
from gpuledger.ledger.continuity import LogGuard, kept_stream
from gpuledger.ledger.errors import (
    GenerationError,
    LedgerError,
    LogLostError,
    LogRestoredError,
    NoLedgerError,
)
from gpuledger.ledger.identity import Anchor, LedgerIdentity, anchor_of
from gpuledger.ledger.publish import PUBLISH_TIMEOUT_S
from gpuledger.ledger.read import IDLE_HEARTBEAT_S, RESTORE_TIMEOUT_S, OrderedReader
from gpuledger.ledger.single import last_sequence, message_at, recorded_at
from gpuledger.ledger.span import SpanningReader, spanning
from gpuledger.ledger.span_publish import SpanningPublisher, is_in_current
from gpuledger.ledger.storage import StorageUse, storage_use
from gpuledger.ledger.stream import (
    Generation,
    is_archived,
    stream_info,
    stream_name,
)

GENERATION_CHECK_S: Final = 2.0
"""How often it is looked whether the generation was closed; who publishes learns of it at once."""


class JetStreamLedger(Ledger):
    """The ledger on a NATS server; `connect_ledger` makes it."""

    def __init__(
        self,
        connection: Connection,
        generation: Generation,
        publisher: AtomicPublisher,
        *,
        guard: LogGuard | None = None,
        heartbeat_s: float = IDLE_HEARTBEAT_S,
        restore_timeout_s: float = RESTORE_TIMEOUT_S,
        publish_timeout_s: float = PUBLISH_TIMEOUT_S,
        closed: ClosedGenerations | None = None,
    ) -> None:
        self._connection = connection
        self._generation = generation
        self._guard = guard
        self._heartbeat_s = heartbeat_s
        self._restore_timeout_s = restore_timeout_s
        self._publish_timeout_s = publish_timeout_s
        unnamed = LedgerIdentity("", generation.number)
        self._closed = closed or ClosedGenerations(connection, generation.identity or unnamed, None)
        self._generations = (generation.identity or unnamed).generations
        self._publishing = SpanningPublisher(self, connection, generation, publisher, self._closed)
        self._readers: set[SpanningReader] = set()
        self._crossing = asyncio.Lock()

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
        if self._guard is None:
            return
        generation = self.generation
        try:
            await self._guard.confirm(anchor)
        except LogLostError:
            if not await self.go_on_from(generation):
                raise
            await self._guard.confirm(anchor)

    def relying_on(self, anchor: Anchor | None) -> AbstractContextManager[None]:
        """See `gpuledger.ledger.api.Ledger.relying_on`."""
        return nullcontext() if self._guard is None else self._guard.relying_on(lambda: anchor)

    async def anchor_at(self, sequence: Offset) -> Anchor | None:
        """See `gpuledger.ledger.api.Ledger.anchor_at`."""
        if is_origin(sequence):
            return None
        if not self._is_here(sequence):
            return await self._closed.anchor_at(sequence)
        try:
            found = await message_at(self._connection, self._generation.stream, sequence)
        except NotFoundError as error:
            head = await self.head()
            raise LogRestoredError(
                f"{self._generation.stream} ends at {self._generations.position(head)} and has no event at "
                f"{self._generations.position(sequence)}, up to which it was read"
            ) from error
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
        return self._reading(SpanningReader(self, self._closed, self._reader, after, subject_filter, anchor))

    @asynccontextmanager
    async def _reading(self, reader: SpanningReader) -> AsyncIterator[SpanningReader]:
        self._readers.add(reader)
        try:
            async with spanning(reader):
                yield reader
        finally:
            self._readers.discard(reader)

    def _reader(self, generation: int, after: Offset, subject_filter: str, anchor: Anchor | None) -> OrderedReader:
        return OrderedReader(
            self._connection,
            stream_name(generation),
            after,
            subject_filter,
            guard=self._guard,
            anchor=anchor,
            heartbeat_s=self._heartbeat_s,
            restore_timeout_s=self._restore_timeout_s,
        )

    async def history(
        self, after: Offset = ORIGIN, until: Offset | None = None, subject_filter: str = ALL
    ) -> AsyncIterator[list[Message]]:
        """See `gpuledger.ledger.api.Ledger.history`."""
        generation = self.generation
        begins = self._generations.behind(generation)
        last = await self.last_in(generation, subject_filter)
        end = latest([begins, last]) if until is None else until
        if not is_at_or_after(after, begins):
            async for messages in self._closed.history(after, earliest(begins, end), subject_filter):
                yield messages
        async for messages in self._history_behind(latest([after, begins]), earliest(end, last), subject_filter):
            yield messages

    async def head(self) -> Offset:
        """See `gpuledger.ledger.api.Ledger.head`."""
        generation = self.generation
        try:
            return (await kept_stream(self._connection, self._generation.stream)).state.last_seq
        except LogLostError:
            if not await self.go_on_from(generation):
                raise
            return (await kept_stream(self._connection, self._generation.stream)).state.last_seq

    async def storage(self) -> tuple[StorageUse, ...]:
        """What its stream takes of the limits of storage that hold for it; raises as `storage_use`."""
        return await storage_use(self._connection, self._generation.stream)

    async def closing(self) -> Closing:
        """How far a closing of its newest generation has got; raises as `closing_state`."""
        return await closing_state(self._connection)

    async def last_sequence(self, subject_filter: str) -> Offset:
        """See `gpuledger.ledger.api.Ledger.last_sequence`."""
        last = await self.last_in(self.generation, subject_filter)
        return await self._closed.last_sequence(subject_filter) if is_origin(last) else last

    async def last_in(self, generation: int, subject_filter: str) -> Offset:
        """The last message of a generation, whose stream is there, that the filter matches; the origin for none."""
        return await last_sequence(self._connection, stream_name(generation), subject_filter)

    async def message_at(self, sequence: Offset) -> Message | None:
        """See `gpuledger.ledger.api.Ledger.message_at`."""
        if not self._is_here(sequence):
            return await self._closed.message_at(sequence)
        return await recorded_at(self._connection, self._generation.stream, sequence)

    async def messages_at(self, sequences: Sequence[Offset]) -> list[Message | None]:
        """See `gpuledger.ledger.api.Ledger.messages_at`."""
        are_here = [(one, self._is_here(one)) for one in sequences]
        closed = iter(await self._closed.messages_at([one for one, is_here in are_here if not is_here]))
        current = iter(await super().messages_at([one for one, is_here in are_here if is_here]))
        return [next(current if is_here else closed) for _, is_here in are_here]

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
            publisher = AtomicPublisher(
                self._connection, following.stream, guard=self._guard, timeout_s=self._publish_timeout_s
            )
            await publisher.start()
            self._generation = following
            self._closed.follow(following.identity)
            self._publishing.follow(following, publisher)
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

    async def follow_generations(self) -> None:
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
