"""Counts what a fold keeps beside its rows."""

from gpuledger.events.envelope import Event
from gpuledger.projection.fold import Fold
from gpuledger.projection.outstanding import Outstanding

ROWS = ("state", "projection")


def events_kept(fold: Fold) -> int:
    """How many events a fold holds, wherever it holds them."""
    pending: list[object] = [value for name, value in vars(fold).items() if name not in ROWS]
    count = 0
    while pending:
        one = pending.pop()
        if isinstance(one, Event):
            count += 1
        elif isinstance(one, Outstanding):
            pending.extend(vars(one).values())
        elif isinstance(one, dict):
            pending.extend([*one, *one.values()])
        elif isinstance(one, (list, tuple, set, frozenset)):
            pending.extend(one)
    return count
