"""Errors of the log.

LedgerError
├── LedgerUnavailableError     the server cannot be reached, or does not answer within its bound
│   └── PermissionDeniedError  the server refuses permission
├── PublishError               an event was not acknowledged; it may or may not have been recorded
│   └── EventRefusedError      no ledger like this one will ever take the event as it is
├── SequenceConflictError      the aggregate has newer events than the publisher knew
├── StreamConfigError          the stream is there, but not as a ledger must be
└── GenerationError            a position belongs to another generation of the stream
"""


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


class GenerationError(LedgerError):
    """The position belongs to another generation of the stream."""
