"""Publishing in atomic batches: one commit, one sync of the disk and one acknowledgement for hundreds of messages.

JetStream calls it atomic batch publishing (ADR-50; servers from 2.12.1 on). A batch is tried once. Unless the server
acknowledges its commit, its messages are published one by one, which tells those that are recorded after all by their
ids. A commit must never be sent before everything in front of it is recorded.
"""

import asyncio
import logging
from collections.abc import Iterator, Sequence
from weakref import WeakValueDictionary

import orjson
from nats.aio.msg import Msg
from nats.errors import Error as NatsError

from gpuledger.ledger.api import Outgoing, Receipt
from gpuledger.ledger.connect import Connection
from gpuledger.ledger.publish import ACK_TIMEOUT_S, MESSAGE_ID, PUBLISH_TIMEOUT_S, Publisher, refusal_of

BATCH_MESSAGES_MAX = 500
"""Messages of a batch; the server takes 1,000 unless it is set otherwise."""

BATCH_BYTES_MAX = 1024 * 1024

BATCH_ID = "Nats-Batch-Id"
BATCH_SEQUENCE = "Nats-Batch-Sequence"
BATCH_COMMIT = "Nats-Batch-Commit"

_LACKING_CODES = frozenset({10174, 10177, 10199})
"""The stream does not allow batches; the server knows no ids of messages in them; it takes smaller ones only."""

_log = logging.getLogger("gpuledger.ledger")


class Batch:
    """Messages on their way, and the answer to their commit: None when there will be none."""

    def __init__(self, batch_id: str, messages: Sequence[Outgoing]) -> None:
        self.id = batch_id
        self.messages = messages
        self.answer: asyncio.Future[Msg | None] = asyncio.get_running_loop().create_future()

    def resolve(self, answer: Msg | None) -> None:
        """Take the first answer."""
        if not self.answer.done():
            self.answer.set_result(answer)

    def headers_of(self, index: int) -> dict[str, str]:
        """The headers of one of the messages; the last one commits."""
        headers = {MESSAGE_ID: self.messages[index].id, BATCH_ID: self.id, BATCH_SEQUENCE: str(index + 1)}
        return headers | {BATCH_COMMIT: "1"} if index + 1 == len(self.messages) else headers


class AtomicPublisher:
    """Publishes many messages to one stream, in batches as long as it takes them; `publisher` does the rest.

    A batch may stay unacknowledged for `ACK_TIMEOUT_S`, or `timeout_s` if that is less, before `publisher` has its own.
    """

    def __init__(
        self, connection: Connection, stream: str, publisher: Publisher, *, timeout_s: float = PUBLISH_TIMEOUT_S
    ) -> None:
        self._connection = connection
        self._stream = stream
        self._publisher = publisher
        self._ack_timeout_s = min(ACK_TIMEOUT_S, timeout_s)
        self._inbox = connection.client.new_inbox()
        self._count = 0
        self._open: WeakValueDictionary[str, Batch] = WeakValueDictionary()
        self._takes_batches = True

    async def start(self) -> None:
        """Listen for acknowledgements, until the connection closes."""
        await self._connection.client.subscribe(
            f"{self._inbox}.*", cb=self._on_answer, pending_msgs_limit=0, pending_bytes_limit=0
        )

    async def publish(self, messages: Sequence[Outgoing]) -> list[Receipt]:
        """Record messages in their order.

        Raises:
            PublishError: a message stayed unacknowledged, or was refused for good; those before it may be recorded.
            GenerationError: the log goes on in another stream.
        """
        if len(messages) < 2 or not self._takes_batches:
            return await self._publisher.publish(messages)
        for message in messages:
            self._publisher.check_size(message)
        receipts: list[Receipt] = []
        with self._connection.on_break(self._break_off):
            committed: Batch | None = None
            for part in parts_of(messages):
                batch = await self._begin(part)
                if committed is not None:
                    receipts += await self._finish(committed)
                await self._send(batch, len(part) - 1, len(part))
                committed = batch
            return receipts if committed is None else receipts + await self._finish(committed)

    async def _begin(self, messages: Sequence[Outgoing]) -> Batch:
        """Send all but the last one, while the batch before may still be on its way."""
        self._count += 1
        batch = Batch(f"{self._inbox.rpartition('.')[2]}-{self._count}", messages)
        self._open[batch.id] = batch
        if not self._takes_batches or not self._connection.is_up:
            batch.resolve(None)
        await self._send(batch, 0, len(messages) - 1)
        return batch

    async def _send(self, batch: Batch, start: int, end: int) -> None:
        reply = f"{self._inbox}.{batch.id}"
        try:
            for index in range(start, end):
                if batch.answer.done():
                    return
                message = batch.messages[index]
                headers = batch.headers_of(index)
                await self._connection.client.publish(
                    message.subject, message.data, reply if BATCH_COMMIT in headers else "", headers
                )
        except NatsError:
            batch.resolve(None)

    async def _finish(self, batch: Batch) -> list[Receipt]:
        """Wait for the commit, or publish one by one."""
        try:
            async with asyncio.timeout(self._ack_timeout_s):
                answer = await batch.answer
        except TimeoutError:
            answer = None
        last = answer and self._committed_at(batch, answer)
        if not last:
            return await self._publisher.publish(batch.messages)
        return [Receipt(sequence, duplicate=False) for sequence in range(last - len(batch.messages) + 1, last + 1)]

    def _committed_at(self, batch: Batch, answer: Msg) -> int | None:
        """Where the last message stands; None unless this stream has recorded the whole batch."""
        refusal = refusal_of(answer)
        if refusal is not None:
            if refusal.code in _LACKING_CODES:
                self._give_up(refusal.reason)
            return None
        document = orjson.loads(answer.data)
        if "batch" not in document:
            # An older server takes each message of a batch for one of its own.
            self._give_up("the server knows no batches")
            return None
        whole = (self._stream, batch.id, len(batch.messages))
        return document["seq"] if (document["stream"], document["batch"], document["count"]) == whole else None

    def _give_up(self, reason: str) -> None:
        if self._takes_batches:
            _log.info("%s takes no batches (%s): events are published one by one, more slowly", self._stream, reason)
        self._takes_batches = False

    def _break_off(self) -> None:
        for batch in tuple(self._open.values()):
            batch.resolve(None)

    async def _on_answer(self, answer: Msg) -> None:
        batch = self._open.get(answer.subject.rpartition(".")[2])
        if batch is not None:
            batch.resolve(answer)


def parts_of(messages: Sequence[Outgoing]) -> Iterator[Sequence[Outgoing]]:
    """The messages in pieces that fit into a batch each; a large message is a piece by itself."""
    start = size = 0
    for index, message in enumerate(messages):
        if index > start and (index - start == BATCH_MESSAGES_MAX or size + len(message.data) > BATCH_BYTES_MAX):
            yield messages[start:index]
            start, size = index, 0
        size += len(message.data)
    if start < len(messages):
        yield messages[start:]
