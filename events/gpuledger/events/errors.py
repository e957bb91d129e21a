"""Everything that can be wrong with an event.

EventError
├── SubjectError            a subject or source that does not follow the grammar
├── MalformedEventError     bytes that are not one of gpuledger's CloudEvents
├── UnknownEventTypeError   a type, or a version of it, that this build does not know
├── PayloadError            data that does not fit its type
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


class CatalogueError(EventError):
    """The registry contradicts itself."""
