"""The epochs of a decider's leaders, each of which closes the one before it. Pure.

A leader's epoch names the head of the log that it found, so the log alone orders the leaders: whoever led earlier found
an earlier head. The first event of a later epoch closes all earlier ones of its source. What still arrives of a closed
epoch is a repeat to every fold, whether or not its number came before: the leader had lost its lock by then, and its
successor has decided without it. So nothing of a closed epoch has to be kept.
"""

import re
from typing import Final

_LEADER_EPOCH: Final = re.compile(r"([0-9]{1,18})/([0-9]{1,18})/.")

Began = tuple[int, int]
"""Generation and sequence of the head that a leader found."""


def leader_epoch(generation: int, head: int, unique: str) -> str:
    """The epoch of a leader that found this head."""
    return f"{generation}/{head}/{unique}"


def began(source: str, epoch: str) -> Began | None:
    """Where a leader's epoch began; None for the epoch of another kind of source, of an earlier build, or an incident.

    These close nothing and are never closed.
    """
    found = _LEADER_EPOCH.match(epoch) if source.startswith("/services/") else None
    return None if found is None else (int(found[1]), int(found[2]))
