"""Errors of the log.

LedgerError
├── LedgerUnavailableError     the server cannot be reached, or does not answer within its bound
│   └── PermissionDeniedError  the server refuses permission
├── PublishError               an event was not acknowledged; it may or may not have been recorded
│   └── EventRefusedError      no ledger like this one will ever take the event as it is
├── SequenceConflictError      the aggregate has newer events than the publisher knew
├── StreamConfigError          the stream is there, but not as a ledger must be
├── PartitionedError           a ledger of several partitions cannot do this yet
├── GenerationError            a position belongs to another generation of the stream
├── NoLedgerError              the server has no ledger
│   ├── RestoreInterruptedError  a generation was archived, and its successor was not made
│   └── ClosingError           a generation is being closed, and the next one does not take events yet
└── LogChangedError            the log is not the one that was read before
    ├── LogLostError           its stream is gone
    ├── LogRestoredError       it ends earlier, or holds another event where one was read
    ├── LogReplacedError       it is another ledger
    └── LogCutError            events that were recorded are missing from it
"""

from typing import TYPE_CHECKING, ClassVar

if TYPE_CHECKING:
    from gpuledger.ledger.api import Receipt


class LedgerError(Exception):
    """Something is wrong with the log."""


class LedgerUnavailableError(LedgerError):
    """The server cannot be reached, or does not answer within its bound."""


class PermissionDeniedError(LedgerUnavailableError):
    """The server refuses permission; nothing is wrong with the event, and the server's operator can help."""


class PublishError(LedgerError):
    """The event was not acknowledged; publishing it again is safe, because its id is the same."""


class EventRefusedError(PublishError):
    """The event is too large or its subject is invalid: it was not recorded, and never will be."""


class SequenceConflictError(LedgerError):
    """The aggregate has newer events than the publisher knew; read them and decide again."""


class StreamConfigError(LedgerError):
    """The stream is there, but not as a ledger must be."""


class PartitionedError(LedgerError):
    """A ledger of several partitions cannot do this yet; `what` is the beginning of the sentence that says so."""

    def __init__(self, what: str, partitions: int) -> None:
        super().__init__(
            f"{what} works with a ledger of one partition alone, and this one has {partitions}. "
            "See docs/operations.md, Partitions of the ledger."
        )


class GenerationError(LedgerError):
    """The position belongs to another generation of the stream.

    Of messages to publish, the first ones may be in the generation before: `receipts` are theirs.
    """

    def __init__(self, text: str, receipts: "tuple[Receipt, ...]" = ()) -> None:
        super().__init__(text)
        self.receipts = receipts


class NoLedgerError(LedgerError):
    """The server has no ledger; only `gpuledger migrate` and the first `gpuledger up` make one."""


class RestoreInterruptedError(NoLedgerError):
    """A restore archived a generation and was interrupted before it made the next one."""


class ClosingError(NoLedgerError):
    """A generation is being closed; the next one takes events once it has begun."""


class LogChangedError(LedgerError):
    """The log is not the one that was read before. Whoever reads it stops, because going on would tell untruths.

    `change` says in one word what happened to it.
    """

    change: ClassVar[str]


class LogLostError(LogChangedError):
    """The stream of the log is gone."""

    change = "lost"

    def __init__(self, what: str) -> None:
        super().__init__(
            f"The log is lost: {what}. Restore its stream from a backup; see docs/operations.md, The log is lost."
        )


class LogRestoredError(LogChangedError):
    """The log ends earlier than it did, or holds another event where one was read: an older copy was restored."""

    change = "restored"

    def __init__(self, what: str) -> None:
        super().__init__(
            f"The log was restored from an older copy: {what}. Restore a newer one, or accept what is lost with "
            "`gpuledger replay --accept-loss`; see docs/operations.md, The log was restored."
        )


class LogReplacedError(LogChangedError):
    """The log is another ledger."""

    change = "replaced"

    def __init__(self, what: str) -> None:
        super().__init__(
            f"The log was replaced: {what}. Name the right NATS server or the right database; "
            "see docs/operations.md, The log was replaced."
        )


class LogCutError(LogChangedError):
    """Events that were recorded are missing from the log."""

    change = "cut"

    def __init__(self, what: str) -> None:
        super().__init__(
            f"The log was cut: {what}. Find out who purged it or deleted from it, and restore its "
            "stream from a backup; see docs/operations.md, The log was cut."
        )
