"""What can go wrong with watching.

WatchersError
├── LockLostError       another instance may be recording by now
└── RecordingError      the ledger does not say what was recorded
"""


class WatchersError(Exception):
    """Watching cannot go on as it is; it is begun anew."""


class LockLostError(WatchersError):
    """Another instance may be recording by now."""


class RecordingError(WatchersError):
    """The ledger does not say what was recorded."""
