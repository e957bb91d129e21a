"""The errors of the outbox.

OutboxError
├── FolderTakenError        another agent uses the state folder
├── DiskError               the disk takes no writes, or does not return what was written
├── SpoolUnreadableError    the file is damaged, another build's, or another node's
└── StateStoreFullError     a value is too large for the state store, or one too many
"""


class OutboxError(Exception):
    """The outbox cannot do what it was called for."""


class FolderTakenError(OutboxError):
    """Another agent uses the state folder; end it, or give this one a folder of its own."""


class DiskError(OutboxError):
    """The disk takes no writes, or does not return what was written; trying again later may help."""


class SpoolUnreadableError(OutboxError):
    """The file cannot be used any further: it is damaged, another build's, or another node's."""


class StateStoreFullError(OutboxError):
    """A value is too large for the state store, or one too many."""
