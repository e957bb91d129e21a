"""What a ledger can do, whatever stores it.

Two implementations pass one suite of contract tests: JetStream (`gpuledger.ledger.jetstream`) and the in-memory twin
(`gpuledger.ledger.memory`). "Published" means acknowledged by the server, nothing less.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from typing import Final, NamedTuple, Protocol

from gpuledger.events.position import ORIGIN, Generations, Offset, earliest, is_at_or_after, latest
from gpuledger.events.subjects import ALL
from gpuledger.ledger.errors import LogCutError, LogRestoredError
from gpuledger.ledger.identity import Anchor, LedgerIdentity
from gpuledger.runtime.tasks import results_of

MESSAGES_PER_BATCH_MAX = 4096

MESSAGES_AT_ONCE: Final = 64
"""How many single messages the server is asked for at a time.

It answers such requests with a worker for each of its processors, whichever connection they come by.
"""

HISTORY_CHECK_S = 5.0
"""How long the reading of the past may stand still before its end is confirmed."""


class Message(NamedTuple):
    """One stored message, undecoded. `recorded_ns` is the server's time-stamp in nanoseconds since 1970."""

    subject: str
    data: bytes
    sequence: Offset
    recorded_ns: int


class Outgoing(NamedTuple):
    """One message to publish; `id` is the message's own, by which the server drops repeats within its window.

    Agents and importers give a message its event's id. A service draws it at random and keeps it for repeats, because
    whoever can foresee an id can have something else recorded under it.
    """

    subject: str
    id: str
    data: bytes


class Receipt(NamedTuple):
    """The acknowledgement: where the event stands, and whether the server had a message with this id already.

    Of a duplicate `sequence` is that message's, which may be another's: `gpuledger.ledger.own` reads it back.
    """

    sequence: Offset
    duplicate: bool


class Expected(NamedTuple):
    """A precondition: `subject_filter` has its last message there (the origin: none).

    The subjects are those of a source, or of an aggregate as one source has it; in a ledger of one partition of all of
    its sources.
    """

    subject_filter: str
    sequence: Offset


class Reader(Protocol):
    """Reads messages in the order of the log, each exactly once, across reconnects and server restarts."""

    async def next_batch(self, limit: int = MESSAGES_PER_BATCH_MAX, timeout_s: float | None = None) -> list[Message]:
        """What has arrived, at least one message and at most `limit`; empty only when `timeout_s` has passed.

        Raises:
            LedgerUnavailableError: the reader has been closed, or could not be re-created within its bound.
        """
        ...


class LedgerWriter(Protocol):
    """A ledger for those who only write to it."""

    @property
    def generation(self) -> int:
        """The generation that is written to."""
        ...

    async def publish(self, message: Outgoing, expected: Expected | None = None) -> Receipt:
        """Append one message and wait for its acknowledgement; retried with the same id within a named bound.

        Raises:
            SequenceConflictError: `expected` no longer holds.
            PublishError: no acknowledgement within the bound.
        """
        ...

    async def publish_many(self, messages: Sequence[Outgoing]) -> list[Receipt]:
        """Append messages in this order, and wait for all acknowledgements.

        They go in atomic batches, or many in flight (a bounded window) where the server takes no batches. When one
        fails, publishing goes back to it and everything after it, so that the order in the log is the order given
        (repeats are dropped by id). The call as a whole is not atomic.

        Raises:
            PublishError: one stayed unacknowledged within the bound; those before it are recorded.
        """
        ...


class LedgerQueries(Protocol):
    """A ledger for those who follow the newest event of a subject."""

    @property
    def generation(self) -> int:
        """The generation that is read."""
        ...

    async def newest(self, subject: str) -> Message | None:
        """The last message recorded under a subject; None where there is none. A replica may lag a little.

        Raises:
            LedgerUnavailableError: no answer, no permission, or the log goes on in another generation.
        """
        ...

    def notified(self, subject: str, notify: Callable[[], None]) -> AbstractAsyncContextManager[None]:
        """Call `notify` whenever something seems to be published under the subject, and when the connection breaks.

        It is a hint: what is published may be recorded a little later, or never, and a call may be missing.
        """
        ...


class Ledger(LedgerWriter, Protocol):
    """The append-only log of the current generation and of the closed ones before it; `history` is inherited."""

    async def publish_many(self, messages: Sequence[Outgoing], expected: Expected | None = None) -> list[Receipt]:
        """As a writer's; with `expected` each message expects the one before it, and the first one what is given.

        So nobody else's message that the filter matches stands before any of them or in between. The filter has to
        match all of them.

        Raises:
            SequenceConflictError: somebody else's does; what is before it is recorded.
        """
        ...

    @property
    def message_bytes_max(self) -> int:
        """How large the data of a message may be, as the server last announced it."""
        ...

    @property
    def identity(self) -> LedgerIdentity:
        """Which ledger this is.

        Raises:
            NoLedgerError: it is of before there were ids, and was not migrated.
        """
        ...

    @property
    def generations(self) -> Generations:
        """The generations that are read as one log, in one numbering; another one is added when one is closed."""
        ...

    def read(
        self, after: Offset = ORIGIN, subject_filter: str = ALL, anchor: Anchor | None = None
    ) -> AbstractAsyncContextManager[Reader]:
        """Read from the message behind sequence `after` on, across generations.

        `anchor` is what was read there, if that is known.

        The reader's batches raise `LogChangedError` where the log is not the one that was opened, does not hold the
        anchor's event, or lacks a position.
        """
        ...

    async def confirm(self, anchor: Anchor | None = None) -> None:
        """Return if the log still is the one that was opened, is whole, and holds the anchor's event.

        Raises:
            LogChangedError: it is another one, or was lost, restored or cut.
            LedgerUnavailableError: the server does not answer.
        """
        ...

    def relying_on(self, anchor: Anchor | None) -> AbstractContextManager[None]:
        """Meanwhile nothing is published into a log that lacks the anchor's event, as with what a reader has read.

        Publishing then raises `LogChangedError`.
        """
        ...

    async def anchor_at(self, sequence: Offset) -> Anchor | None:
        """The anchor at a position; None at the origin.

        Raises:
            LogChangedError: the log ends before it, or lacks it.
        """
        ...

    async def head(self) -> Offset:
        """The sequence of the last message, the origin for an empty log.

        Raises:
            LogLostError: its stream is gone.
        """
        ...

    async def last_sequence(self, subject_filter: str) -> Offset:
        """The sequence of the last message that the filter matches, the origin for none.

        A closed generation that is only archived is not searched: each one begins with repeats of the last event of
        each decider, of rules, and of agents' orders, so that who asks for these finds them.
        """
        ...

    async def message_at(self, sequence: Offset) -> Message | None:
        """The message at a sequence; None where there is none."""
        ...

    async def messages_at(self, sequences: Sequence[Offset]) -> list[Message | None]:
        """The messages at sequences that the log had, in their order; None for each that retention has deleted.

        Retention deletes months of an archive, and leaves a tombstone there. Nothing else explains an absence.

        Raises:
            LogChangedError: the log ends before one, or lacks it.
            GenerationError: one is in a closed generation that is neither here nor in its archive.
        """
        return list(await results_of(self._message_there, sequences, at_once_max=MESSAGES_AT_ONCE))

    async def _message_there(self, sequence: Offset) -> Message:
        found = await self.message_at(sequence)
        if found is None:
            raise await self._absent(sequence)
        return found

    async def _absent(self, sequence: Offset) -> LogRestoredError | LogCutError:
        """Why the log has no message at a sequence that it had."""
        head, position = await self.head(), self.generations.position
        absent = f"it ends at {position(head)} and has no event at {position(sequence)}, where one was read"
        return (LogCutError if is_at_or_after(head, sequence) else LogRestoredError)(absent)

    async def history(
        self, after: Offset = ORIGIN, until: Offset | None = None, subject_filter: str = ALL
    ) -> AsyncIterator[list[Message]]:
        """The messages behind `after` up to `until` (default: the head when called), in batches, and then stop.

        Raises:
            LogChangedError: the log became shorter meanwhile, or another one.
        """
        last = await self.last_sequence(subject_filter)
        async for messages in self._history_behind(
            after, last if until is None else earliest(until, last), subject_filter
        ):
            yield messages

    async def _history_behind(self, after: Offset, end: Offset, subject_filter: str) -> AsyncIterator[list[Message]]:
        """The messages behind `after` up to `end`, which is there."""
        if is_at_or_after(after, end):
            return
        async with self.read(after, subject_filter) as reader:
            while True:
                batch = await reader.next_batch(timeout_s=HISTORY_CHECK_S)
                if not batch:
                    await self._confirm_end(end)
                    continue
                if is_at_or_after(batch[-1].sequence, end):
                    if earlier := [message for message in batch if is_at_or_after(end, message.sequence)]:
                        yield earlier
                    return
                yield batch

    async def _confirm_end(self, end: Offset) -> None:
        """What ended at `end` has to be there still, or it would be waited for without end."""
        if not is_at_or_after(await self.head(), end):
            raise LogRestoredError(f"it ends before {self.generations.position(end)}, up to which it was to be read")


MessageAt = Callable[[Offset], Awaitable[Message | None]]
"""Gives the message at a place."""


async def behind(message_at: MessageAt, expected: Expected, message: Outgoing, receipt: Receipt) -> Expected:
    """What the next message has to expect: a repeat may be another's, who took the id, under another subject."""
    if receipt.duplicate:
        found = await message_at(receipt.sequence)
        if found is None or found.subject != message.subject:
            return expected
    return expected._replace(sequence=latest([expected.sequence, receipt.sequence]))
