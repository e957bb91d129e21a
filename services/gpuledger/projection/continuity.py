"""Whether rows and log belong together: the rows' checkpoint names the ledger and the last event that was folded.

Rows of a closed generation go on where the log does: the event at their checkpoint has to stand there. Those of a
generation before a restore follow another numbering, and are to be rebuilt.
"""

from gpuledger.events.position import Position
from gpuledger.ledger.api import Ledger
from gpuledger.ledger.errors import LogChangedError, LogReplacedError, LogRestoredError
from gpuledger.projection.checkpoint import Checkpoint
from gpuledger.projection.definition import Projection
from gpuledger.projection.errors import GenerationMismatchError, VersionError
from gpuledger.projection.store import ProjectionStore


async def confirm_checkpoint(projection: Projection, ledger: Ledger, checkpoint: Checkpoint) -> None:
    """Return if this build can go on from these rows in this log.

    Raises:
        VersionError: another version of the projection wrote them.
        GenerationMismatchError: they follow another generation or partition of the ledger.
        LogChangedError: they follow another ledger, or one that was lost, restored or cut since.
    """
    confirm_version(projection, checkpoint)
    await confirm_log(projection, ledger, checkpoint)


def confirm_version(projection: Projection, checkpoint: Checkpoint | None) -> None:
    """Return if the rows are of this build's version or of one that it takes over, or there are none yet.

    Raises:
        VersionError: another version of the projection wrote them.
    """
    if checkpoint is not None and not projection.takes_over(checkpoint.version):
        raise VersionError(projection.name, checkpoint.version, projection.version)


async def confirm_log(projection: Projection, ledger: Ledger, checkpoint: Checkpoint) -> None:
    """Return if rows, of whatever version, follow this log; raises as `confirm_checkpoint` does otherwise."""
    check_ledger(projection, ledger, checkpoint)
    if not ledger.generations.has(checkpoint.at):
        raise GenerationMismatchError(projection.name, checkpoint.at, ledger.generation)
    await ledger.confirm(checkpoint.anchor)


def check_ledger(projection: Projection, ledger: Ledger, checkpoint: Checkpoint) -> None:
    """Return if the rows follow this ledger, as far as their checkpoint names one.

    Raises:
        LogReplacedError: they follow another one.
    """
    check_ledger_id(f"the rows of projection {projection.name} follow", ledger, checkpoint.ledger_id)


def check_ledger_id(what: str, ledger: Ledger, ledger_id: str | None) -> None:
    """Return if what somebody has read of a ledger was of this one; None: nothing says which.

    `what` is the beginning of the sentence, such as `the rows of projection devices follow`.

    Raises:
        LogReplacedError: it was of another one.
    """
    if ledger_id not in (None, ledger.identity.ledger_id):
        raise LogReplacedError(f"{what} the ledger {ledger_id}, and the NATS server has {ledger.identity.ledger_id}")


def check_generation(what: str, ledger: Ledger, at: Position) -> None:
    """Return if a position is of the log as it is numbered now; `what` as for `check_ledger_id`.

    Raises:
        LogRestoredError: it is not, because of a restore.
    """
    if not ledger.generations.has(at):
        raise LogRestoredError(f"it is at generation {ledger.generation}, and {what} {at}")


async def follows_log(projection: Projection, ledger: Ledger, checkpoint: Checkpoint, *, accept_loss: bool) -> bool:
    """Whether the rows' position means something in this log; without it a rebuild owes them nothing.

    Raises:
        LogChangedError: what they follow was lost, and `accept_loss` does not say that this is known.
    """
    if not ledger.generations.has(checkpoint.at) and checkpoint.ledger_id in (None, ledger.identity.ledger_id):
        return False
    try:
        check_ledger(projection, ledger, checkpoint)
        await ledger.confirm(checkpoint.anchor)
    except LogChangedError:
        if not accept_loss:
            raise
        return False
    return True


async def adopted(store: ProjectionStore, ledger: Ledger, checkpoint: Checkpoint) -> Checkpoint:
    """The checkpoint with its ledger and the event at its position, where the build that wrote it named neither.

    Raises:
        LogChangedError: the log ends before it.
    """
    if checkpoint.has_identity or not ledger.generations.has(checkpoint.at):
        return checkpoint
    anchor = await ledger.anchor_at(checkpoint.position)
    return await store.adopt(checkpoint, checkpoint.ledger_id or ledger.identity.ledger_id, anchor)
