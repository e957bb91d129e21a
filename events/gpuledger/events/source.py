"""Sources: who records events, which of their events are missing, and which were rejected."""

from typing import Annotated

from pydantic import AwareDatetime, Field

from gpuledger.events.payload import Count, Name, Number, Payload, Text
from gpuledger.events.publishing import BY_IMPORTERS, BY_OWN_SERVICES, SourceKind, by_service
from gpuledger.events.registry import registry

Epoch = Annotated[str, Field(min_length=1, max_length=128)]
EventId = Annotated[str, Field(min_length=1, max_length=1024)]


@registry.event("source", "completed", BY_IMPORTERS)
class SourceCompleted(Payload):
    """The source's data ends here: at this event's `time`, as far as that epoch knows."""

    events: Count
    rejects: Count = 0


@registry.event("source", "gap-detected", by_service(SourceKind.SOURCES))
class SourceGapDetected(Payload):
    """Numbers `first` to `last` of a source's epoch have stayed missing.

    `unknown_length` means that the source went on in another epoch and did not say where this one ended, or named
    an end before what the log has: events from `first` on may be missing, or none at all. `last` is then `first`.
    """

    epoch: Epoch
    first: Number
    last: Number
    unknown_length: bool = False


@registry.event("source", "gap-closed", by_service(SourceKind.SOURCES))
class SourceGapClosed(Payload):
    """Every number of a detected gap has arrived after all."""

    epoch: Epoch
    first: Number
    last: Number


@registry.event("source", "rejected", by_service(SourceKind.SOURCES))
class SourceRejected(Payload):
    """An event from the edge was rejected; it stays in the log, and every projection skips it."""

    generation: Number
    sequence: Number
    nats_subject: Text
    reason: Text


@registry.event("source", "message-id-taken", BY_OWN_SERVICES)
class SourceMessageIdTaken(Payload):
    """The server had dropped an event of this source, because another's message stood under its message id.

    The source has recorded its `event` again under another id. `generation` and `sequence` say where the other message
    stands.
    """

    generation: Number
    sequence: Number
    nats_subject: Text
    event: EventId
    message_id: EventId


@registry.event("source", "limited", by_service(SourceKind.SOURCES))
class SourceLimited(Payload):
    """The source is over a limit of what it may record in an hour; one event for each source and hour.

    `limits` names those that it is over, and the counts are those of the hour so far. From here to the end of the hour
    the rejections of its events are counted, and not recorded one by one once they are over their limit.
    """

    hour: AwareDatetime
    limits: tuple[Name, ...]
    events: Count
    rejected: Count
    epochs: Count
    aggregates: Count
    bytes: Count


@registry.event("source", "position-skipped", by_service(SourceKind.OPERATORS))
class SourcePositionSkipped(Payload):
    """An operator decided that every projection skips one position of the log."""

    generation: Number
    sequence: Number
    reason: Name
