"""One generation of a log, as whoever spans generations sees it: places in the log, whatever streams store them."""

from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import NamedTuple, Protocol

from nats.js.api import StreamInfo

from gpuledger.events.position import Offset, is_origin
from gpuledger.ledger.api import MESSAGES_AT_ONCE, Message, Reader
from gpuledger.ledger.connect import Connection
from gpuledger.ledger.continuity import LogGuard, kept_stream
from gpuledger.ledger.identity import Anchor
from gpuledger.ledger.publish import PUBLISH_TIMEOUT_S
from gpuledger.ledger.read import IDLE_HEARTBEAT_S, RESTORE_TIMEOUT_S, OrderedReader, reading
from gpuledger.ledger.repeats import recorded_behind
from gpuledger.ledger.single import last_sequence, recorded_at
from gpuledger.ledger.storage import StorageUse, storage_use
from gpuledger.ledger.stream import Generation
from gpuledger.runtime.tasks import results_of


class Times(NamedTuple):
    """How long publishing and reading wait, in seconds."""

    publish_timeout_s: float = PUBLISH_TIMEOUT_S
    heartbeat_s: float = IDLE_HEARTBEAT_S
    restore_timeout_s: float = RESTORE_TIMEOUT_S


class GenerationReader(Reader, Protocol):
    """Reads one generation."""

    @property
    def anchor(self) -> Anchor | None:
        """The anchor at the last message that arrived, or the one that was given."""
        ...

    def wake(self) -> None:
        """Have `next_batch` return, with nothing if nothing has arrived."""
        ...


class GenerationLog(Protocol):
    """The log of one generation."""

    @property
    def generation(self) -> Generation:
        """Which one."""
        ...

    def reading(
        self, after: Offset, subject_filter: str, anchor: Anchor | None = None
    ) -> AbstractAsyncContextManager[GenerationReader]:
        """A reader behind a place, with the anchor there where it is known, delivering while the block runs."""
        ...

    async def head(self) -> Offset:
        """The place of the last message, or behind which the generation begins.

        Raises:
            LogLostError: its stream is gone.
        """
        ...

    async def last_sequence(self, subject_filter: str) -> Offset:
        """The place of the last message that the filter matches, the origin for none.

        Raises:
            LogLostError: its stream is gone.
        """
        ...

    async def message_at(self, at: Offset) -> Message | None:
        """The message at a place; None where there is none.

        Raises:
            LogLostError: its stream is gone.
        """
        ...

    async def messages_at(self, places: Sequence[Offset]) -> list[Message | None]:
        """The messages at several places, each as `message_at` gives it."""
        return await results_of(self.message_at, places, at_once_max=MESSAGES_AT_ONCE)

    async def recorded_behind(self, after: Offset, subject_filter: str, message_id: str) -> Offset | None:
        """Where there is a message of this id behind a place, which the filter matches."""
        ...

    async def storage(self) -> tuple[StorageUse, ...]:
        """What it takes of the limits of storage that hold for it; raises as `storage_use`."""
        ...

    def running(self) -> AbstractAsyncContextManager[None]:
        """What publishing into it needs, for the length of a block."""
        ...

    async def retire(self) -> None:
        """Nothing is published into it any more: the log goes on in the next generation."""
        ...


class StreamLog(GenerationLog):
    """The log of a generation of one partition, in one stream. What is read is confirmed where there is a `guard`."""

    def __init__(
        self, connection: Connection, generation: Generation, times: Times, guard: LogGuard | None = None
    ) -> None:
        self._connection = connection
        self._generation = generation
        self._times = times
        self._guard = guard

    @property
    def generation(self) -> Generation:
        """See `GenerationLog.generation`."""
        return self._generation

    @asynccontextmanager
    async def reading(
        self, after: Offset, subject_filter: str, anchor: Anchor | None = None
    ) -> AsyncIterator[GenerationReader]:
        """See `GenerationLog.reading`."""
        reader = OrderedReader(
            self._connection,
            self._generation.stream,
            after,
            subject_filter,
            guard=self._guard,
            anchor=anchor,
            heartbeat_s=self._times.heartbeat_s,
            restore_timeout_s=self._times.restore_timeout_s,
        )
        async with reading(reader):
            yield reader

    async def head(self) -> Offset:
        """See `GenerationLog.head`."""
        return (await self._is_there()).state.last_seq

    async def _is_there(self) -> StreamInfo:
        """What the server says of its stream, in which nothing is found either where it is gone."""
        return await kept_stream(self._connection, self._generation.stream)

    async def last_sequence(self, subject_filter: str) -> Offset:
        """See `GenerationLog.last_sequence`."""
        last = await last_sequence(self._connection, self._generation.stream, subject_filter)
        if is_origin(last):
            await self._is_there()
        return last

    async def message_at(self, at: Offset) -> Message | None:
        """See `GenerationLog.message_at`."""
        found = await recorded_at(self._connection, self._generation.stream, at)
        if found is None:
            await self._is_there()
        return found

    async def recorded_behind(self, after: Offset, subject_filter: str, message_id: str) -> Offset | None:
        """See `GenerationLog.recorded_behind`."""
        return await recorded_behind(self._connection, self._generation.stream, after, subject_filter, message_id)

    async def storage(self) -> tuple[StorageUse, ...]:
        """See `GenerationLog.storage`."""
        return await storage_use(self._connection, self._generation.stream)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """See `GenerationLog.running`; it needs nothing."""
        yield

    async def retire(self) -> None:
        """See `GenerationLog.retire`."""
