"""Everything that can be wrong with an event.

EventError
├── SubjectError            a subject or source that does not follow the grammar
├── MalformedEventError     bytes that are not one of gpuledger's CloudEvents
├── UnknownEventTypeError   a type, or a version of it, that this build does not know
├── PayloadError            data that does not fit its type
├── PublisherError          a source that must not publish the event
├── EventTimeError          an event that happened long after it was recorded
├── TooOldError             an event of before its history begins
├── ExcessError             an event that holds more than one may
└── CatalogueError          the registry contradicts itself (a bug in the code, found at import)
"""


class EventError(Exception):
    """Something is wrong with an event."""


class SubjectError(EventError):
    """A subject or source does not follow the grammar."""


class MalformedEventError(EventError):
    """The bytes are not one of gpuledger's CloudEvents."""


class UnknownEventTypeError(EventError):
    """This build does not know the type, or not this version of it."""


class PayloadError(EventError):
    """The data does not fit the event's type."""


class PublisherError(EventError):
    """The source must not publish this event, or not about this node."""


class EventTimeError(EventError):
    """The event happened long after it was recorded: a clock is wrong, or the source lies."""


class TooOldError(EventError):
    """The event happened before the time since which its history is kept."""


class ExcessError(EventError):
    """The event holds more than one event of an edge source may."""


class CatalogueError(EventError):
    """The registry contradicts itself."""
