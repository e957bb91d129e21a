"""The positions that an operator decided to pass over: they are events of the log like any other.

They are read before a projection starts, because one that has stopped at such a position cannot read beyond it.
"""

from gpuledger.events.envelope import decode
from gpuledger.events.errors import EventError
from gpuledger.events.source import SourcePositionSkipped
from gpuledger.ledger.api import Ledger, Position

_FILTER = "ledger.svc.operators.source.*.position-skipped"


async def skipped_positions(ledger: Ledger) -> list[Position]:
    """Every position that is to be passed over."""
    skipped = []
    async for messages in ledger.history(subject_filter=_FILTER):
        for message in messages:
            try:
                data = decode(message.data).data
            except EventError:
                continue
            if isinstance(data, SourcePositionSkipped):
                skipped.append(Position(data.generation, data.sequence))
    return skipped
