"""Errors that stop a projection, or keep one from starting.

ProjectionError
├── BadEventError          an event of our own does not decode, or this build fails at an event: the projection stops
├── DueError               this build fails at what the passing of time alone leads to
├── DecisionRefusedError   NATS refuses a decision that is in the outbox already
├── VersionError           the rows were written by another version of the projection
├── GenerationMismatchError  the rows belong to another generation of the ledger
├── NotBuiltError          the projection has no rows yet
├── WriterFencedError      somebody else wrote the rows, or swapped them, since they were loaded
├── RebuildBusyError       another rebuild of the same projection is running
├── FewerEventsError       a rebuild folds fewer events than the rows that serve count
├── SwapBlockedError       a query holds the tables that are to change places
└── NothingToRollBackError there are no rows of an earlier rebuild to go back to
"""

from gpuledger.ledger.api import Position


class ProjectionError(Exception):
    """A projection cannot go on."""


class BadEventError(ProjectionError):
    """One of our own services' events does not decode, or this build fails at an event, whoever recorded it.

    Attributes:
        position: where it stands.
        reason: what is wrong with it.
    """

    def __init__(self, projection: str, position: Position, subject: str, reason: str) -> None:
        super().__init__(
            f"Projection {projection} stopped at {position} ({subject}): {reason} "
            f"Upgrade this build, or skip it for good with `gpuledger log skip {position} --reason ...`."
        )
        self.position = position
        self.reason = reason


class DueError(ProjectionError):
    """This build fails at what the passing of time alone leads to."""

    def __init__(self, projection: str, position: Position, reason: str) -> None:
        super().__init__(
            f"Projection {projection} stopped at {position}, where something is due by time alone: {reason} "
            f"Upgrade this build; or skip the event that led there with `gpuledger log skip`, and run "
            f"`gpuledger replay {projection}`."
        )


class DecisionRefusedError(ProjectionError):
    """NATS refuses a decision that is in the outbox already."""

    def __init__(self, projection: str, position: Position, reason: str) -> None:
        super().__init__(
            f"Projection {projection} stopped at {position}, because NATS refuses one of its decisions: {reason} "
            f"Otherwise upgrade this build, or skip the event that led there with `gpuledger log skip`; then run "
            f"`gpuledger replay {projection}`."
        )


class VersionError(ProjectionError):
    """The rows were written by another version of the projection."""

    def __init__(self, projection: str, found: int, expected: int) -> None:
        super().__init__(
            f"The rows of projection {projection} are of version {found}, this build writes version {expected}. "
            f"Rebuild them with `gpuledger replay {projection}`."
        )


class GenerationMismatchError(ProjectionError):
    """The rows belong to another generation of the ledger."""

    def __init__(self, projection: str, found: int, expected: int) -> None:
        super().__init__(
            f"The rows of projection {projection} follow generation {found} of the ledger, which is now at "
            f"generation {expected}. Rebuild them with `gpuledger replay {projection}`."
        )


class NotBuiltError(ProjectionError):
    """The projection has no rows yet."""

    def __init__(self, projection: str) -> None:
        super().__init__(
            f"Projection {projection} has no rows yet. Start `gpuledger up`, or build them with "
            f"`gpuledger replay {projection}`."
        )


class WriterFencedError(ProjectionError):
    """Somebody else wrote the rows, or swapped them, since they were loaded; load them again."""


class RebuildBusyError(ProjectionError):
    """Another rebuild of the same projection is running; wait for it or cancel it."""


class NothingToRollBackError(ProjectionError):
    """There are no rows of an earlier rebuild to go back to."""


class FewerEventsError(ProjectionError):
    """A rebuild folds fewer events than the rows that serve count: the log has lost some."""

    def __init__(self, projection: str, folded: int, counted: int) -> None:
        super().__init__(
            f"The log holds {folded:,} events for projection {projection}, but its rows were folded from {counted:,}; "
            "nothing was changed. Restore the log, or accept the loss with "
            f"`gpuledger replay {projection} --accept-loss`."
        )


class SwapBlockedError(ProjectionError):
    """A query holds the tables that are to change places; end it, and run the command again."""
