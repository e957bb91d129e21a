"""Publishing in atomic batches: one commit, one sync of the disk and one acknowledgement for up to 1,000 messages.

JetStream calls it atomic batch publishing (ADR-50; with ids of messages from server 2.12.1 on). A batch is tried once.
Without its acknowledgement its messages are published one by one, and by their ids the server recognises those that it
has recorded after all. It must never send anything before everything in front of it is recorded.
"""

import asyncio
import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress

import orjson
from nats.aio.msg import Msg
from nats.errors import Error as NatsError

from gpuledger.ledger.api import Expected, Outgoing, Receipt
from gpuledger.ledger.connect import Connection
from gpuledger.ledger.continuity import LogGuard
from gpuledger.ledger.errors import GenerationError, LedgerUnavailableError
from gpuledger.ledger.publish import MESSAGE_ID, PUBLISH_TIMEOUT_S, Publisher, expectation
from gpuledger.ledger.refusal import refusal_of

BATCH_MESSAGES_MAX = 1000
"""The most that a server takes in one batch unless its limits are set lower."""

BATCH_MESSAGES_MIN = 16
"""A batch costs about 3 ms of its own: fewer messages are recorded sooner one by one, even with a sync for each."""

BATCH_BYTES_MAX = 1024 * 1024

BATCH_ID = "Nats-Batch-Id"
BATCH_SEQUENCE = "Nats-Batch-Sequence"
BATCH_COMMIT = "Nats-Batch-Commit"

_LACKING_CODES = frozenset({10174, 10177, 10199})
"""The stream does not allow batches; the server allows no ids of messages in them; it takes only smaller ones."""

_log = logging.getLogger("gpuledger.ledger")


class _Batch:
    """One batch that waits for its answer; None if it is lost."""

    def __init__(self) -> None:
        self.answer: asyncio.Future[Msg | None] = asyncio.get_running_loop().create_future()
        self.last_number = 0

    def lapse(self, _problem: str = "") -> None:
        """The batch is lost: stop waiting."""
        self.resolve(None)

    def resolve(self, answer: Msg | None) -> None:
        """Take the answer, where there is none yet."""
        if not self.answer.done():
            self.answer.set_result(answer)


class AtomicPublisher:
    """Publishes many messages to one stream in batches, and by `one_by_one` what does not go in batches.

    A batch may stay unacknowledged for `timeout_s`; the time limit of `one_by_one` begins after it.
    """

    def __init__(
        self,
        connection: Connection,
        stream: str,
        *,
        guard: LogGuard | None = None,
        timeout_s: float = PUBLISH_TIMEOUT_S,
    ) -> None:
        self.one_by_one = Publisher(connection, stream, guard=guard, timeout_s=timeout_s)
        self._gate = self.one_by_one.gate
        self._connection = connection
        self._guard = guard
        self._stream = stream
        self._timeout_s = timeout_s
        self._inbox = connection.client.new_inbox()
        self._count = 0
        self._batches: dict[str, _Batch] = {}
        self._takes_batches = True

    async def start(self) -> None:
        """Listen for acknowledgements, until the connection closes."""
        await self.one_by_one.start()
        await self._connection.client.subscribe(
            f"{self._inbox}.*", cb=self._on_answer, pending_msgs_limit=0, pending_bytes_limit=0
        )

    async def publish(self, messages: Sequence[Outgoing]) -> list[Receipt]:
        """Record messages in their order.

        Raises:
            PublishError: a message stayed unacknowledged, or was refused for good; those before it are recorded.
            GenerationError: the log goes on in another stream.
            LogChangedError: the server came back with another log.
        """
        if len(messages) < BATCH_MESSAGES_MIN or not self._takes_batches:
            return await self.one_by_one.publish(messages)
        for message in messages:
            self.one_by_one.check_size(message)
        receipts: list[Receipt] = []
        for part in parts_of(messages):
            try:
                receipts += await self.commit(part) or await self.one_by_one.publish(part, is_again=True)
            except GenerationError as error:
                error.receipts = (*receipts, *error.receipts)
                raise
        return receipts

    async def commit(self, messages: Sequence[Outgoing], expected: Expected | None = None) -> list[Receipt]:
        """Try one batch, which may expect something of the log; no receipts unless the server acknowledges it."""
        if not self._takes_batches or not self._connection.is_up or not self._gate.is_open:
            return []
        if self._guard is not None:
            with suppress(LedgerUnavailableError):
                await self._guard.confirm_before_publishing()
            if not (self._guard.is_confirmed and self._connection.is_up):
                return []
        self._count += 1
        batch_id = f"{self._inbox.rpartition('.')[2]}-{self._count}"
        batch = self._batches[batch_id] = _Batch()
        try:
            with self._connection.on_break(batch.lapse), self._gate.watching(batch):
                async with asyncio.timeout(self._timeout_s):
                    headers = {} if expected is None else expectation(expected, self._stream)
                    await self._send(batch_id, messages, headers, batch)
                    number = batch.last_number = self._gate.send()
                    answer = await batch.answer
            if answer is not None and refusal_of(answer) is None:
                self._gate.open(number)
            return self._receipts(batch_id, len(messages), answer)
        except (TimeoutError, NatsError):
            return []
        finally:
            del self._batches[batch_id]

    async def _send(
        self, batch_id: str, messages: Sequence[Outgoing], first_headers: Mapping[str, str], batch: _Batch
    ) -> None:
        publish = self._connection.client.publish
        for number, message in enumerate(messages, 1):
            if self._guard is not None and not self._guard.is_confirmed:
                batch.lapse()
            if batch.answer.done():
                return
            reply, headers = "", {MESSAGE_ID: message.id, BATCH_ID: batch_id, BATCH_SEQUENCE: str(number)}
            if number == 1:
                headers |= first_headers
            if number == len(messages):
                reply, headers[BATCH_COMMIT] = f"{self._inbox}.{batch_id}", "1"
            await publish(message.subject, message.data, reply, headers)

    def _receipts(self, batch_id: str, count: int, answer: Msg | None) -> list[Receipt]:
        """The receipts of a batch that this stream has recorded as a whole, else none."""
        if answer is None:
            return []
        if refusal := refusal_of(answer):
            if refusal.code in _LACKING_CODES:
                self._give_up(refusal.reason)
            if refusal.is_leaderless:
                self._gate.close(refusal.reason)
            return []
        document = orjson.loads(answer.data)
        if "batch" not in document:
            # An older server records each message of a batch as one of its own.
            self._give_up("the server does not know them")
            return []
        if (document["stream"], document["batch"], document.get("count")) != (self._stream, batch_id, count):
            return []
        last = document["seq"]
        return [Receipt(sequence, duplicate=False) for sequence in range(last - count + 1, last + 1)]

    def _give_up(self, reason: str) -> None:
        if self._takes_batches:
            _log.info("%s takes no batches (%s): events are published one by one, more slowly", self._stream, reason)
        self._takes_batches = False

    async def _on_answer(self, answer: Msg) -> None:
        batch = self._batches.get(answer.subject.rpartition(".")[2])
        if batch is not None:
            batch.resolve(answer)


def parts_of(messages: Sequence[Outgoing]) -> Iterator[Sequence[Outgoing]]:
    """The messages in pieces that fit into a batch each; one that is too large for any is a piece by itself."""
    start = size = 0
    for index, message in enumerate(messages):
        if index > start and (index - start == BATCH_MESSAGES_MAX or size + len(message.data) > BATCH_BYTES_MAX):
            yield messages[start:index]
            start, size = index, 0
        size += len(message.data)
    if start < len(messages):
        yield messages[start:]
