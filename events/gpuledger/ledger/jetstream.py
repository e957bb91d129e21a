"""The ledger in JetStream: puts connection, stream, publisher and reader together, and counts what is published."""

from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import (
    AbstractAsyncContextManager,
    AbstractContextManager,
    asynccontextmanager,
    contextmanager,
    nullcontext,
)
from datetime import UTC, datetime, timedelta

from nats.js.errors import NotFoundError

from gpuledger.events.position import ORIGIN, Offset, Position, is_origin, next_after, number_of
from gpuledger.events.subjects import ALL
from gpuledger.ledger.api import Expected, Ledger, Message, Outgoing, Receipt, behind
from gpuledger.ledger.atomic import AtomicPublisher, parts_of
from gpuledger.ledger.connect import CONNECT_TIMEOUT_S, Connection, connected, refuse_old_server
from gpuledger.ledger.continuity import LogGuard, kept_stream
from gpuledger.ledger.errors import (
    GenerationError,
    LedgerError,
    LogRestoredError,
    NoLedgerError,
    SequenceConflictError,
)
from gpuledger.ledger.identity import Anchor, LedgerIdentity, anchor_of
from gpuledger.ledger.publish import MESSAGE_ID, PUBLISH_TIMEOUT_S
from gpuledger.ledger.read import IDLE_HEARTBEAT_S, RESTORE_TIMEOUT_S, OrderedReader, reading
from gpuledger.ledger.storage import StorageUse, storage_use
from gpuledger.ledger.stream import Generation, message_at, open_current, open_generation
from gpuledger.runtime.settings import ANONYMOUS, NatsIdentity
from gpuledger.runtime.telemetry import PUBLISHED

REPEAT_SCAN_MAX = 1024
"""How many of an aggregate's newer events are searched for our own."""

_EPOCH_START = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


class JetStreamLedger(Ledger):
    """One generation of the ledger on a NATS server; `connect_ledger` makes it."""

    def __init__(
        self,
        connection: Connection,
        generation: Generation,
        publisher: AtomicPublisher,
        *,
        guard: LogGuard | None = None,
        heartbeat_s: float = IDLE_HEARTBEAT_S,
        restore_timeout_s: float = RESTORE_TIMEOUT_S,
    ) -> None:
        self._connection = connection
        self._generation = generation
        self._publisher = publisher
        self._guard = guard
        self._heartbeat_s = heartbeat_s
        self._restore_timeout_s = restore_timeout_s

    @property
    def generation(self) -> int:
        """See `gpuledger.ledger.api.Ledger.generation`."""
        return self._generation.number

    @property
    def message_bytes_max(self) -> int:
        """See `gpuledger.ledger.api.Ledger.message_bytes_max`."""
        return self._publisher.one_by_one.message_bytes_max

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
        if self._guard is not None:
            await self._guard.confirm(anchor)

    def relying_on(self, anchor: Anchor | None) -> AbstractContextManager[None]:
        """See `gpuledger.ledger.api.Ledger.relying_on`."""
        return nullcontext() if self._guard is None else self._guard.relying_on(lambda: anchor)

    async def anchor_at(self, sequence: Offset) -> Anchor | None:
        """See `gpuledger.ledger.api.Ledger.anchor_at`."""
        if is_origin(sequence):
            return None
        try:
            found = await message_at(self._connection, self._generation.stream, sequence)
        except NotFoundError as error:
            head = await self.head()
            raise LogRestoredError(
                f"{self._generation.stream} ends at {Position(self.generation, head)} and has no event at "
                f"{Position(self.generation, sequence)}, up to which it was read"
            ) from error
        return anchor_of(found.sequence, found.subject, found.data)

    async def publish(self, message: Outgoing, expected: Expected | None = None) -> Receipt:
        """See `gpuledger.ledger.api.Ledger.publish`; an event that is there already is no conflict."""
        self._refuse_archived()
        with _counted_failures(1):
            receipt = await self._publish(message, expected)
        _count([receipt])
        return receipt

    async def _publish(self, message: Outgoing, expected: Expected | None) -> Receipt:
        try:
            return (await self._publisher.one_by_one.publish([message], expected))[0]
        except SequenceConflictError:
            # The server checks the expectation before it checks for repeats.
            recorded = None if expected is None else await self._recorded_behind(expected, message.id)
            if recorded is None:
                raise
            return Receipt(recorded, duplicate=True)

    async def publish_many(self, messages: Sequence[Outgoing], expected: Expected | None = None) -> list[Receipt]:
        """See `gpuledger.ledger.api.Ledger.publish_many`."""
        self._refuse_archived()
        with _counted_failures(len(messages)):
            if expected is None:
                receipts = await self._publisher.publish(messages)
            else:
                receipts = await self._publish_in_turn(messages, expected)
        _count(receipts)
        return receipts

    async def _publish_in_turn(self, messages: Sequence[Outgoing], expected: Expected) -> list[Receipt]:
        """Each behind the one before: the server checks one expectation a batch, and one for each single message."""
        for message in messages:
            self._publisher.one_by_one.check_size(message)
        receipts: list[Receipt] = []
        for part in parts_of(messages):
            committed = await self._publisher.commit(part, expected) if len(part) > 1 else []
            if committed:
                expected = expected._replace(sequence=committed[-1].sequence)
            for message in () if committed else part:
                receipt = await self._publish(message, expected)
                expected = await behind(self, expected, message, receipt)
                committed.append(receipt)
            receipts += committed
        return receipts

    def read(
        self, after: Offset = ORIGIN, subject_filter: str = ALL, anchor: Anchor | None = None
    ) -> AbstractAsyncContextManager[OrderedReader]:
        """See `gpuledger.ledger.api.Ledger.read`."""
        return reading(
            OrderedReader(
                self._connection,
                self._generation.stream,
                after,
                subject_filter,
                guard=self._guard,
                anchor=anchor,
                heartbeat_s=self._heartbeat_s,
                restore_timeout_s=self._restore_timeout_s,
            )
        )

    async def head(self) -> Offset:
        """See `gpuledger.ledger.api.Ledger.head`."""
        return (await kept_stream(self._connection, self._generation.stream)).state.last_seq

    async def storage(self) -> tuple[StorageUse, ...]:
        """What its stream takes of the limits of storage that hold for it; raises as `storage_use`."""
        return await storage_use(self._connection, self._generation.stream)

    async def last_sequence(self, subject_filter: str) -> Offset:
        """See `gpuledger.ledger.api.Ledger.last_sequence`."""
        try:
            message = await self._connection.request(
                lambda: self._connection.jetstream.get_last_msg(self._generation.stream, subject_filter)
            )
        except NotFoundError:
            return ORIGIN
        return message.seq or ORIGIN

    async def message_at(self, sequence: Offset) -> Message | None:
        """See `gpuledger.ledger.api.Ledger.message_at`."""
        if is_origin(sequence):
            return None
        try:
            found = await self._connection.request(
                lambda: self._connection.jetstream.get_msg(self._generation.stream, number_of(sequence))
            )
        except NotFoundError:
            return None
        assert found.subject is not None, "a stored message has a subject"
        assert found.time is not None, "a stored message has a time"
        return Message(found.subject, found.data or b"", sequence, _nanoseconds(found.time))

    async def _recorded_behind(self, expected: Expected, message_id: str) -> Offset | None:
        sequence = expected.sequence
        for _ in range(REPEAT_SCAN_MAX):
            following = number_of(next_after(sequence))
            try:
                found = await self._connection.request(
                    lambda at=following: self._connection.jetstream.get_msg(  # type: ignore[misc]
                        self._generation.stream, at, expected.subject_filter, next=True
                    )
                )
            except NotFoundError:
                return None
            if (found.headers or {}).get(MESSAGE_ID) == message_id:
                return found.seq
            sequence = found.seq or following
        return None

    def _refuse_archived(self) -> None:
        if not self._generation.current:
            raise GenerationError(f"Generation {self.generation} is archived. Write to the current one.")


def _nanoseconds(time: datetime) -> int:
    """Nanoseconds since 1970; the client keeps the server's time to the microsecond."""
    return (time - _EPOCH_START) // _MICROSECOND * 1000


@contextmanager
def _counted_failures(messages: int) -> Iterator[None]:
    try:
        yield
    except SequenceConflictError:
        PUBLISHED.labels("conflict").inc(messages)
        raise
    except LedgerError:
        PUBLISHED.labels("failed").inc(messages)
        raise


def _count(receipts: Sequence[Receipt]) -> None:
    duplicates = sum(receipt.duplicate for receipt in receipts)
    PUBLISHED.labels("duplicate").inc(duplicates)
    PUBLISHED.labels("recorded").inc(len(receipts) - duplicates)


@asynccontextmanager
async def connect_ledger(
    url: str,
    *,
    name: str,
    identity: NatsIdentity = ANONYMOUS,
    generation: int | None = None,
    replicas: int | None = None,
    connect_timeout_s: float = CONNECT_TIMEOUT_S,
    publish_timeout_s: float = PUBLISH_TIMEOUT_S,
    heartbeat_s: float = IDLE_HEARTBEAT_S,
    restore_timeout_s: float = RESTORE_TIMEOUT_S,
) -> AsyncIterator[JetStreamLedger]:
    """The ledger at `url`, opened and never made; `name` is shown by the server as the connection's.

    `generation` opens an earlier one, archived ones for reading only.

    Raises:
        LedgerUnavailableError: the server cannot be reached, is too old, or has no JetStream.
        NoLedgerError: there is none.
        StreamConfigError: the stream is not as a ledger must be.
        LogCutError: events are missing from it.
        GenerationError: there is no such generation.
    """
    async with connected(url, name=name, timeout_s=connect_timeout_s, identity=identity) as connection:
        refuse_old_server(connection)
        if generation is None:
            found = await open_current(connection, replicas)
        else:
            found = await open_generation(connection, generation)
        guard = None if found.identity is None else LogGuard(connection, found.identity)
        publisher = AtomicPublisher(connection, found.stream, guard=guard, timeout_s=publish_timeout_s)
        await publisher.start()
        with nullcontext() if guard is None else connection.on_departure(guard.doubt):
            yield JetStreamLedger(
                connection, found, publisher, guard=guard, heartbeat_s=heartbeat_s, restore_timeout_s=restore_timeout_s
            )
