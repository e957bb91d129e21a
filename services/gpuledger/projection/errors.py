"""Errors that stop a projection, or keep one from starting.

ProjectionError
├── BadEventError          an event of our own does not decode, or this build fails at an event: the projection stops
├── DueError               this build fails at what the passing of time alone leads to
├── DecisionRefusedError   NATS refuses a decision that is in the outbox already
├── AnotherLeaderError     somebody else publishes this decider's events
├── DecisionConflictError  a decision came back with another content
├── DecisionLostError      a decision is acknowledged, and did not come back
├── VersionError           the rows were written by another version of the projection
├── RuleVersionError       the rows were folded by a rule that this build does not know
├── GenerationMismatchError  the rows belong to another generation or partition of the ledger
├── NotBuiltError          the projection has no rows yet
├── WriterFencedError      somebody else wrote the rows, or swapped them, since they were loaded
├── NumbersChangedError    the log is not the one that the numbers seen are of
├── RebuildBusyError       another rebuild of the same projection is running, or it was begun meanwhile
├── FewerEventsError       a rebuild folds fewer events than the rows that serve count
├── SwapBlockedError       a query holds the tables that are to change places
├── NotContractedError     documents stay text, because of an older build, or of somebody who reads the tables
├── ScratchFullError       the past takes more room than it may
└── NothingToRollBackError there are no rows of an earlier rebuild to go back to
"""

from gpuledger.events.position import Position


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


class AnotherLeaderError(ProjectionError):
    """Somebody else publishes this decider's events, while this process holds its lock.

    Once or twice it is what a leader that lost its lock had sent before: the next one begins again behind it.
    """

    def __init__(self, projection: str, position: Position, event_id: str, epoch: str) -> None:
        super().__init__(
            f"Projection {projection} stopped at {position}: the event {event_id} of epoch {epoch} was published by "
            f"another process that decides for {projection}, with another database, or after it had lost its lock. "
            "This one begins again behind it a few times an hour. If it does not any more, have all replicas use one "
            "database, stop the others, and start this service again: it begins with what they have recorded."
        )


class DecisionConflictError(ProjectionError):
    """A decision came back from the log with another content."""

    def __init__(self, projection: str, position: Position, event_id: str) -> None:
        super().__init__(
            f"Projection {projection} stopped at {position}: its decision {event_id} stands there with another content "
            f"than in its rows. Stop other processes that decide for {projection}, and run `gpuledger replay "
            f"{projection}`."
        )


class DecisionLostError(ProjectionError):
    """The server has acknowledged a decision, and it did not come back."""

    def __init__(self, projection: str, position: Position, event_id: str, reason: str) -> None:
        super().__init__(
            f"Projection {projection} stopped: its decision {event_id} was recorded at {position} and did not come "
            f"back, because {reason}. Run `gpuledger replay {projection}`, which records it again."
        )


class VersionError(ProjectionError):
    """The rows were written by another version of the projection.

    Attributes:
        is_newer: whether a newer build wrote them; an older version is built anew, a newer one never.
    """

    def __init__(self, projection: str, found: int, expected: int) -> None:
        self.is_newer = found > expected
        remedy = (
            f"Use the newer build that wrote them; or, if it is gone for good, `gpuledger replay {projection} "
            "--rollback` brings the rows of before back."
            if self.is_newer
            else f"`gpuledger up` of this build builds them anew while they serve, and so does `gpuledger replay "
            f"{projection}`."
        )
        super().__init__(
            f"The rows of projection {projection} are of version {found}, this build writes version {expected}. "
            f"{remedy}"
        )


class RuleVersionError(ProjectionError):
    """The rows were folded by a rule, or a version of one, that this build does not know."""

    def __init__(self, projection: str, position: Position, reason: str) -> None:
        super().__init__(
            f"Projection {projection} cannot go on with its rows, which follow a rule since {position}: {reason} "
            f"Upgrade this build; or, if the newer one is gone for good, skip the rule with `gpuledger log skip "
            f"{position} --reason ...`, and run `gpuledger replay {projection}`."
        )


class GenerationMismatchError(ProjectionError):
    """The rows belong to another generation or partition of the ledger."""

    def __init__(self, projection: str, found: Position, expected: int) -> None:
        super().__init__(
            f"The rows of projection {projection} follow {found.part} of the ledger, which is now at "
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


class NumbersChangedError(ProjectionError):
    """The numbers seen that the projections of this process share are of another log, or were begun anew."""

    def __init__(self) -> None:
        super().__init__("The numbers seen are not those of the log any more. They are read again.")


class RebuildBusyError(ProjectionError):
    """Another rebuild of the same projection is running, or it was begun meanwhile; wait for it or cancel it."""


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


class NotContractedError(ProjectionError):
    """Documents stay text: an older build can come back to them, or somebody reads the tables; the message says who."""


class ScratchFullError(ProjectionError):
    """The past takes more room than it may."""

    def __init__(self, what: str, found: int, limit: int) -> None:
        super().__init__(
            f"{what} take {found / 2**20:.0f} MiB, more than the {limit / 2**20:.0f} MiB that the past of a query may. "
            "Ask for fewer tables or an earlier moment, or raise the bound with --scratch-max."
        )
