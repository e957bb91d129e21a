"""The epochs of a decider's leaders, each of which closes the one before it. Pure.

A leader's epoch names the head of the log that it found, so the log alone orders the leaders: whoever led earlier found
an earlier head. The first event of a later epoch closes all earlier ones of its source. What still arrives of a closed
epoch is a repeat to every fold, whether or not its number came before: the leader had lost its lock by then, and its
successor has decided without it. So nothing of a closed epoch has to be kept.
"""

import re
from typing import Final

from gpuledger.events.position import Position

_LEADER_EPOCH: Final = re.compile(r"([0-9]{1,18}/[0-9]{1,18})/.")


def leader_epoch(head: Position, unique: str) -> str:
    """The epoch of a leader that found this head."""
    return f"{head}/{unique}"


def head_after(last: Position | None, head: Position) -> Position:
    """The head that a leader names its epoch by, behind that of the last leader that the log up to there has.

    An import into an empty ledger restores leaders of a later generation than its own, each with its event behind the
    head that it found. The log still holds everything up to there, in its order, so only the generation is ahead.
    """
    return head if last is None or head.is_after(last) else head._replace(generation=last.generation)


def began(source: str, epoch: str) -> Position | None:
    """The head that a leader found; None for an epoch of another kind of source, of an earlier build, or an incident.

    These close nothing and are never closed.
    """
    found = _LEADER_EPOCH.match(epoch) if source.startswith("/services/") else None
    return None if found is None else Position.parse(found[1])
