"""A ledger in memory, for tests and what-if: it behaves like JetStream's and stores nothing."""

import asyncio
import re
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractContextManager, asynccontextmanager, nullcontext, suppress

from gpuledger.events.position import (
    ORIGIN,
    Generations,
    Offset,
    back,
    events_up_to,
    is_origin,
    is_same,
    next_after,
    number_of,
)
from gpuledger.events.subjects import ALL
from gpuledger.ledger.api import MESSAGES_PER_BATCH_MAX, Expected, Ledger, Message, Outgoing, Receipt, behind
from gpuledger.ledger.errors import LedgerUnavailableError, LogRestoredError, SequenceConflictError
from gpuledger.ledger.identity import Anchor, Closed, Continued, LedgerIdentity, Predecessor, anchor_of

Matcher = Callable[[str], bool]

MESSAGE_BYTES_MAX = 1_000_000
"""About what NATS takes by default."""


class MemoryLedger(Ledger):
    """The log as a list; `clock` gives the time-stamps, in nanoseconds since 1970."""

    def __init__(
        self,
        *,
        generation: int = 1,
        ledger_id: str = "memory",
        clock: Callable[[], int] = time.time_ns,
    ) -> None:
        self._identity = LedgerIdentity(ledger_id, generation)
        self._generations = self._identity.generations
        self._clock = clock
        self._messages: list[Message] = []
        self._sequences: dict[str, Offset] = {}
        self._readers: list[MemoryReader] = []

    @property
    def generation(self) -> int:
        """See `gpuledger.ledger.api.Ledger.generation`."""
        return self._identity.generation

    @property
    def identity(self) -> LedgerIdentity:
        """See `gpuledger.ledger.api.Ledger.identity`."""
        return self._identity

    @property
    def generations(self) -> Generations:
        """See `gpuledger.ledger.api.Ledger.generations`."""
        return self._generations

    async def close_generation(self, archive: str, link: str) -> None:
        """Go on in another generation behind the last message; what is there stays readable."""
        head, before = await self.head(), self._identity
        last = await self.anchor_at(head)
        closed = () if before.continued is None else before.continued.closed
        ended = Closed(before.generation, number_of(before.behind), archive)
        continued = Continued((*closed, ended), before.beginning, link, number_of(head))
        predecessor = Predecessor(head, "" if last is None else last.digest)
        self._identity = LedgerIdentity(before.ledger_id, before.generation + 1, predecessor, continued)
        self._generations.begin(self.generation, head)

    async def confirm(self, anchor: Anchor | None = None) -> None:
        """See `gpuledger.ledger.api.Ledger.confirm`."""
        if anchor is not None and await self.anchor_at(anchor.sequence) != anchor:
            raise LogRestoredError(f"another event stands at {self._generations.position(anchor.sequence)}")

    def relying_on(self, anchor: Anchor | None) -> AbstractContextManager[None]:  # noqa: ARG002 - it is never restored
        """See `gpuledger.ledger.api.Ledger.relying_on`."""
        return nullcontext()

    async def anchor_at(self, sequence: Offset) -> Anchor | None:
        """See `gpuledger.ledger.api.Ledger.anchor_at`."""
        if is_origin(sequence):
            return None
        found = await self.message_at(sequence)
        if found is None:
            raise LogRestoredError(f"the log ends at {self._generations.position(await self.head())}")
        return anchor_of(found.sequence, found.subject, found.data)

    @property
    def message_bytes_max(self) -> int:
        """See `gpuledger.ledger.api.Ledger.message_bytes_max`."""
        return MESSAGE_BYTES_MAX

    async def publish(self, message: Outgoing, expected: Expected | None = None) -> Receipt:
        """See `gpuledger.ledger.api.Ledger.publish`; an event that is there already is no conflict."""
        recorded = self._sequences.get(message.id)
        if recorded is not None:
            return Receipt(recorded, duplicate=True)
        if expected is not None:
            last = await self.last_sequence(expected.subject_filter)
            if not is_same(last, expected.sequence):
                raise SequenceConflictError(
                    f"The event {message.id} came too late: the last sequence is {last}. Read and decide again."
                )
        return self._append(message)

    async def publish_many(self, messages: Sequence[Outgoing], expected: Expected | None = None) -> list[Receipt]:
        """See `gpuledger.ledger.api.Ledger.publish_many`."""
        receipts: list[Receipt] = []
        for message in messages:
            receipt = await self.publish(message, expected)
            expected = expected and await behind(self.message_at, expected, message, receipt)
            receipts.append(receipt)
        return receipts

    @asynccontextmanager
    async def read(
        self, after: Offset = ORIGIN, subject_filter: str = ALL, anchor: Anchor | None = None
    ) -> AsyncIterator["MemoryReader"]:
        """See `gpuledger.ledger.api.Ledger.read`."""
        await self.confirm(anchor)
        reader = MemoryReader(self._messages, after, matcher(subject_filter))
        self._readers.append(reader)
        try:
            yield reader
        finally:
            self._readers.remove(reader)
            reader.close()

    async def head(self) -> Offset:
        """See `gpuledger.ledger.api.Ledger.head`."""
        return len(self._messages)

    async def last_sequence(self, subject_filter: str) -> Offset:
        """See `gpuledger.ledger.api.Ledger.last_sequence`."""
        matches = matcher(subject_filter)
        return next((message.sequence for message in reversed(self._messages) if matches(message.subject)), ORIGIN)

    async def message_at(self, sequence: Offset) -> Message | None:
        """See `gpuledger.ledger.api.Ledger.message_at`."""
        return next(iter(self._messages[number_of(back(sequence, 1)) : number_of(sequence)]), None)

    def _append(self, message: Outgoing) -> Receipt:
        sequence = next_after(len(self._messages))
        self._messages.append(Message(message.subject, message.data, sequence, self._clock()))
        self._sequences[message.id] = sequence
        for reader in self._readers:
            reader.arrived.set()
        return Receipt(sequence, duplicate=False)


class MemoryReader:
    """Reads the list from a position on; see `gpuledger.ledger.api.Reader`."""

    def __init__(self, messages: Sequence[Message], after: Offset, matches: Matcher) -> None:
        self.arrived = asyncio.Event()
        self._messages = messages
        self._next = events_up_to(after)
        self._matches = matches
        self._closed = False

    async def next_batch(self, limit: int = MESSAGES_PER_BATCH_MAX, timeout_s: float | None = None) -> list[Message]:
        """See `gpuledger.ledger.api.Reader.next_batch`."""
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                while not (batch := self._take(limit)) and not self._closed:
                    self.arrived.clear()
                    await self.arrived.wait()
        if self._closed:
            raise LedgerUnavailableError("The reader was closed.")
        return batch

    def close(self) -> None:
        """Nothing more will come."""
        self._closed = True
        self.arrived.set()

    def _take(self, limit: int) -> list[Message]:
        batch: list[Message] = []
        while self._next < len(self._messages) and len(batch) < limit:
            message = self._messages[self._next]
            self._next += 1
            if self._matches(message.subject):
                batch.append(message)
        return batch


def matcher(subject_filter: str) -> Matcher:
    """Whether a subject matches a filter with the server's wildcards `*` and `>`."""
    tokens = {"*": r"[^.]+", ">": r".+"}
    pattern = re.compile(r"\.".join(tokens.get(token, re.escape(token)) for token in subject_filter.split(".")))
    return lambda subject: pattern.fullmatch(subject) is not None
