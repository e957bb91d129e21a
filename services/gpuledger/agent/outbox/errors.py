"""What can go wrong with what an agent keeps until the ledger has it.

OutboxError
├── FolderTakenError        another agent works in the state folder
├── DiskError               the disk takes no writes, or does not give back what was written
├── SpoolUnreadableError    the file is damaged, another build's, or another node's
└── KeepError               a value is too large to be kept, or one too many
"""


class OutboxError(Exception):
    """Something is wrong with what waits for the ledger."""


class FolderTakenError(OutboxError):
    """Another agent works in the state folder; end it, or give this one a folder of its own."""


class DiskError(OutboxError):
    """The disk takes no writes, or does not give back what was written; trying again later may help."""


class SpoolUnreadableError(OutboxError):
    """The file cannot be gone on with: it is damaged, another build's, or another node's."""


class StateStoreFullError(OutboxError):
    """A value is too large to be kept, or one too many."""
