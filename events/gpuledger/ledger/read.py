"""The ordered reader: messages in the order of the log, each once, whatever happens to the server.

An ephemeral push consumer keeps no state that we would have to keep in step: when its numbering has a hole, its
heartbeats stay away or the connection breaks, another one is created behind the last message that arrived. In a cluster
it lives on one server, which need not be ours: when some server leaves, one heartbeat in vain is enough. For seconds
the cluster may put new ones on a server that is dead, and nobody ever answers to the creation of such a one. The
server's flow control is answered only when our buffer has room, so what is buffered never exceeds the bounds below by
more than the server's own window (32 MiB). No message may be handed out twice or passed over.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, nullcontext, suppress

from nats.aio.subscription import Subscription
from nats.errors import Error as NatsError
from nats.js.api import AckPolicy, ConsumerConfig, DeliverPolicy
from nats.js.errors import BadRequestError

from gpuledger.events.position import Offset, can_follow, next_after, number_of
from gpuledger.events.subjects import ALL
from gpuledger.ledger.api import MESSAGES_PER_BATCH_MAX, Message
from gpuledger.ledger.connect import Connection
from gpuledger.ledger.continuity import LogGuard
from gpuledger.ledger.errors import LedgerUnavailableError, LogChangedError, LogCutError
from gpuledger.ledger.identity import Anchor, anchor_of
from gpuledger.runtime.backoff import Backoff, Retries
from gpuledger.runtime.tasks import abandon

IDLE_HEARTBEAT_S = 0.25

HEARTBEATS_APART_ALONE = 2
"""How many times rarer the heartbeats of a server without a cluster are: no other server can leave it."""

HEARTBEATS_MISSED_MAX = 12
"""Three seconds, and six without a cluster: a server that is busy is late with them."""

SUSPECT_HEARTBEATS = 1.4
"""How long one heartbeat is waited for when a server has left the cluster, as a multiple of their interval."""

CREATION = Backoff(first_s=1.0, max_s=32.0)
"""How long the creation of one consumer is waited for in a cluster, before one of another name is tried."""

INACTIVE_THRESHOLD_S = 60.0
RESTORE_TIMEOUT_S = 600.0
BUFFER_MESSAGES_MAX = 16_384
BUFFER_BYTES_MAX = 16 * 1024 * 1024

_ACK_TOKENS = 9
_DOMAIN_TOKENS = 2
_HEARTBEAT = "Idle Heartbeat"

_log = logging.getLogger("gpuledger.ledger")


class Buffer:
    """The messages that have arrived and were not taken yet; knows when the server may send more.

    `anchor` is at `last_sequence`, where the caller knows it. With `is_whole` no position may be missing. Messages
    without their data have no anchors.
    """

    def __init__(
        self, last_sequence: Offset, anchor: Anchor | None = None, *, is_whole: bool = False, has_data: bool = True
    ) -> None:
        self.messages: list[Message] = []
        self.arrived = asyncio.Event()
        self.last_sequence = last_sequence
        self._anchor = anchor
        self._last: Message | None = None
        self.is_whole = is_whole
        self._has_data = has_data
        self._bytes = 0

    @property
    def has_room(self) -> bool:
        """Whether flow control may be answered."""
        return len(self.messages) < BUFFER_MESSAGES_MAX and self._bytes < BUFFER_BYTES_MAX

    @property
    def anchor(self) -> Anchor | None:
        """The anchor at the last message that arrived, or the one that was given."""
        last = self._last if self._has_data else None
        return self._anchor if last is None else anchor_of(last.sequence, last.subject, last.data)

    def put(self, message: Message) -> None:
        """Append the message that follows."""
        if not self.messages:
            self.arrived.set()
        self.messages.append(message)
        self._last = message
        self.last_sequence = message.sequence
        self._bytes += len(message.data)

    def take(self, limit: int) -> list[Message]:
        """Remove the first messages."""
        if len(self.messages) <= limit:
            taken, self.messages, self._bytes = self.messages, [], 0
            self.arrived.clear()
            return taken
        taken = self.messages[:limit]
        del self.messages[:limit]
        self._bytes -= sum(len(message.data) for message in taken)
        return taken


class Delivery:
    """One consumer's messages: checks that none is missing, and turns stale when one is."""

    def __init__(self, connection: Connection, buffer: Buffer) -> None:
        self.is_stale = False
        self.name = connection.client.new_inbox().rpartition(".")[2]
        self.inbox = connection.client.new_inbox()
        self.subscription: Subscription | None = None
        self.cut: LogCutError | None = None
        self._client = connection.client
        self._buffer = buffer
        self._delivered = 0
        self._activity = 0
        self._is_suspect = False
        self._wake = asyncio.Event()
        self._flow_reply = ""

    def on_delivered(self, subject: str, reply: bytes, data: bytes) -> None:
        """Take a message, if it is the one that follows."""
        if self.is_stale:
            return
        self._activity += 1
        tokens = reply.split(b".")
        skip = 0 if len(tokens) == _ACK_TOKENS else _DOMAIN_TOKENS
        self._delivered += 1
        if int(tokens[6 + skip]) != self._delivered:
            self._turn_stale("a message is missing")
            return
        sequence = int(tokens[5 + skip])
        buffer = self._buffer
        if not can_follow(sequence, buffer.last_sequence, is_whole=buffer.is_whole):
            self.cut = LogCutError(f"after the position {number_of(buffer.last_sequence):,} follows {sequence:,}")
            self._turn_stale("the log was cut")
            return
        buffer.put(Message._make((subject, data, sequence, int(tokens[7 + skip]))))

    async def on_control(self, reply: str, headers: dict[str, str]) -> None:
        """Compare the server's count with ours, and note when it waits for flow control."""
        if self.is_stale:
            return
        self._activity += 1
        if headers.get("Description") != _HEARTBEAT:
            self._flow_reply = reply
        elif headers.get("Nats-Last-Consumer") != str(self._delivered):
            self._turn_stale("a message is missing before a heartbeat")
        else:
            self._flow_reply = headers.get("Nats-Consumer-Stalled", self._flow_reply)
        await self.answer_flow_control()

    async def subscribe(self) -> None:
        """Subscribe, before there is a consumer that delivers."""
        self.subscription = await self._client.subscribe(self.inbox)
        self._client.receivers[self.subscription._id] = self  # noqa: SLF001 - the library has no public name for it

    async def unsubscribe(self) -> None:
        """End the subscription, where there is one."""
        if self.subscription is not None:
            self._client.receivers.pop(self.subscription._id, None)  # noqa: SLF001
            with suppress(NatsError):
                await self.subscription.unsubscribe()

    async def answer_flow_control(self) -> None:
        """Let the server send more, where it waits for that and the buffer has room."""
        if self._flow_reply and self._buffer.has_room:
            reply, self._flow_reply = self._flow_reply, ""
            with suppress(NatsError):
                await self._client.publish(reply)

    async def wait_stale(self, heartbeat_s: float) -> None:
        """Return when messages are missing, the connection broke, or the server has gone silent."""
        missed = 0
        while not self.is_stale and missed < (1 if self._is_suspect else HEARTBEATS_MISSED_MAX):
            before = self._activity
            self._wake.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout(heartbeat_s * (SUSPECT_HEARTBEATS if self._is_suspect else 1.0)):
                    await self._wake.wait()
                missed = 0
                continue
            missed = missed + 1 if self._activity == before else 0
            self._is_suspect = self._is_suspect and missed > 0
        if not self.is_stale:
            self._turn_stale("no heartbeat")

    def end(self) -> None:
        """Take nothing more."""
        self.is_stale = True
        self._wake.set()

    def suspect(self) -> None:
        """A server has left the cluster; unless something comes soon, it was the one that this consumer was on."""
        self._is_suspect = True
        self._wake.set()

    def give_up(self) -> None:
        """Nobody has answered to its creation: it may have been put on a server that is dead."""
        self._turn_stale("nobody answers to its creation")

    def _turn_stale(self, reason: str) -> None:
        _log.info("the consumer %s is given up: %s", self.name, reason)
        self.end()


class OrderedReader:
    """Reads one stream; see `gpuledger.ledger.api.Reader`."""

    def __init__(
        self,
        connection: Connection,
        stream: str,
        after: Offset,
        subject_filter: str,
        *,
        guard: LogGuard | None = None,
        anchor: Anchor | None = None,
        heartbeat_s: float = IDLE_HEARTBEAT_S,
        restore_timeout_s: float = RESTORE_TIMEOUT_S,
        has_data: bool = True,
        is_whole: bool | None = None,
    ) -> None:
        """With `is_whole` the filter matches every message of the stream; `ALL` does in a stream of events."""
        self._has_data = has_data
        self._connection = connection
        self._stream = stream
        self._filter = subject_filter
        self._heartbeat_s = heartbeat_s
        self._restore_timeout_s = restore_timeout_s
        self._guard = guard
        self._has_to_confirm = anchor is not None
        whole = subject_filter == ALL if is_whole is None else is_whole
        self._buffer = Buffer(after, anchor, is_whole=whole, has_data=has_data)
        self._delivery: Delivery | None = None
        self._creations = Retries(CREATION)
        self._unanswered_since_s: float | None = None
        self._failure: BaseException | None = None

    async def next_batch(self, limit: int = MESSAGES_PER_BATCH_MAX, timeout_s: float | None = None) -> list[Message]:
        """See `gpuledger.ledger.api.Reader.next_batch`."""
        buffer = self._buffer
        if not buffer.messages and self._failure is None:
            with suppress(TimeoutError):
                async with asyncio.timeout(timeout_s):
                    await buffer.arrived.wait()
        if not buffer.messages and self._failure is not None:
            if isinstance(self._failure, LogChangedError):
                raise self._failure
            raise LedgerUnavailableError(str(self._failure)) from self._failure
        batch = buffer.take(limit)
        if self._delivery is not None:
            await self._delivery.answer_flow_control()
        return batch

    async def supervise(self) -> None:
        """Keep a consumer delivering until cancelled; `next_batch` raises the error that ended it."""
        try:
            # The client's requests may swallow a cancellation, so the failure is checked as well.
            while self._failure is None:
                await self._deliver_once()
        except BaseException as error:
            self.fail(error)
            raise

    @contextmanager
    def guarding(self) -> Iterator[None]:
        """Meanwhile nothing is published into a log that lacks what was read."""
        if self._guard is None:
            yield
            return
        with self._guard.relying_on(lambda: self._buffer.anchor):
            yield

    @property
    def anchor(self) -> Anchor | None:
        """The anchor at the last message that arrived, or the one that was given."""
        return self._buffer.anchor

    def wake(self) -> None:
        """Have `next_batch` return, with nothing if nothing has arrived."""
        self._buffer.arrived.set()

    def fail(self, error: BaseException) -> None:
        """End every wait: nothing more will come."""
        self._failure = self._failure or error
        self._buffer.arrived.set()
        if self._delivery is not None:
            self._delivery.end()

    async def _deliver_once(self) -> None:
        delivery = self._delivery = Delivery(self._connection, self._buffer)
        with self._connection.on_break(delivery.end), self._connection.on_departure(delivery.suspect):
            try:
                await self._start(delivery)
                await delivery.wait_stale(self._heartbeats_apart_s)
                if self._guard is not None and self._failure is None:
                    self._guard.doubt()
                if delivery.cut is not None:
                    raise delivery.cut
            finally:
                delivery.end()
                await self._discard(delivery)

    async def _start(self, delivery: Delivery) -> None:
        await self._connection.wait_up(self._restore_timeout_s)
        await self._confirm()
        try:
            await delivery.subscribe()
            await self._create_consumer(delivery)
        except BadRequestError as error:
            raise LedgerUnavailableError(f"{self._stream} cannot be read: {error.description}.") from error

    async def _confirm(self) -> None:
        """Confirm the log before anything is read from it, and again before every new consumer."""
        if self._guard is None:
            return
        if self._has_to_confirm:
            await self._guard.confirm(self._buffer.anchor)
        else:
            await self._guard.confirm_before_publishing()
        self._has_to_confirm = True

    @property
    def _heartbeats_apart_s(self) -> float:
        return self._heartbeat_s * (1 if self._connection.client.is_clustered else HEARTBEATS_APART_ALONE)

    async def _create_consumer(self, delivery: Delivery) -> None:
        config = ConsumerConfig(
            name=delivery.name,
            deliver_subject=delivery.inbox,
            deliver_policy=DeliverPolicy.BY_START_SEQUENCE,
            opt_start_seq=number_of(next_after(self._buffer.last_sequence)),
            filter_subject=self._filter,
            headers_only=not self._has_data,
            ack_policy=AckPolicy.NONE,
            flow_control=True,
            idle_heartbeat=self._heartbeats_apart_s,
            inactive_threshold=INACTIVE_THRESHOLD_S,
            mem_storage=True,
            num_replicas=1,
        )
        now_s = asyncio.get_running_loop().time()
        since_s = self._unanswered_since_s = now_s if self._unanswered_since_s is None else self._unanswered_since_s
        try:
            async with asyncio.timeout(self._creations.pause_s() if self._connection.client.is_clustered else None):
                await self._connection.request(
                    lambda: self._connection.jetstream.add_consumer(self._stream, config),
                    self._restore_timeout_s - (now_s - since_s),
                    refusals=(BadRequestError,),
                )
        except TimeoutError:
            delivery.give_up()
            return
        self._unanswered_since_s = None
        self._creations.reset()

    async def _discard(self, delivery: Delivery) -> None:
        self._delivery = None
        if delivery.subscription is None:
            return
        await delivery.unsubscribe()
        if self._connection.is_up:
            with suppress(NatsError):
                await self._connection.client.publish(f"$JS.API.CONSUMER.DELETE.{self._stream}.{delivery.name}")


@asynccontextmanager
async def reading(reader: OrderedReader, *, is_relied_on: bool = True) -> AsyncIterator[OrderedReader]:
    """The reader, delivering while the block runs; where it is relied on, as of `OrderedReader.guarding`."""
    task = asyncio.create_task(reader.supervise(), name="ledger reader")
    try:
        with reader.guarding() if is_relied_on else nullcontext():
            yield reader
    finally:
        reader.fail(LedgerUnavailableError("The reader was closed."))
        await abandon(task)
