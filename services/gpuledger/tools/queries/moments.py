"""A moment that a command reads the state of: now, a time, or a position of the log; and the sequence it stands for."""

from datetime import datetime
from typing import Final, NamedTuple

from gpuledger.events.position import Offset, Position, is_after
from gpuledger.projection.replay import sequence_at
from gpuledger.tools.errors import RequestError
from gpuledger.tools.queries.backend import Backend


class PointInTime(NamedTuple):
    """`at` is a time of what happened, `recorded` a position in the log or a time of recording; neither means now."""

    at: datetime | None = None
    recorded: datetime | tuple[int | None, Offset] | None = None


NOW: Final = PointInTime()


async def sequence_of(backend: Backend, when: datetime | tuple[int | None, Offset]) -> Offset:
    """The sequence that a position, or a time of recording, stands for.

    Raises:
        RequestError: the position is of another generation, or lies beyond the end of the log.
    """
    ledger = backend.ledger
    if isinstance(when, datetime):
        return await sequence_at(ledger, when)
    generation, sequence = when
    head = await ledger.head()
    if generation is not None and not ledger.generations.has(Position(generation, sequence)):
        hint = "Positions of before a restore belong to the archive of that generation"
        if generation not in dict(ledger.generations.begun):
            raise RequestError(f"The log is at generation {ledger.generation}, not {generation}", hint)
        hint = f"It is {ledger.generations.position(sequence)}"
        raise RequestError(f"The log has no position {Position(generation, sequence)}", hint)
    if is_after(sequence, head):
        raise RequestError(f"The log ends at position {ledger.generations.position(head)}")
    return sequence
