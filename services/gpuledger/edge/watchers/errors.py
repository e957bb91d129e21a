"""What can go wrong with watching.

WatchersError
└── RecordingError      the ledger does not say what was recorded
"""


class WatchersError(Exception):
    """Watching cannot go on as it is; it is begun anew."""


class RecordingError(WatchersError):
    """The ledger does not say what was recorded."""
