"""What is to be told of a list of allocations, after what was told before. Pure.

Whoever applies all that was told, in its order, has the last list. A list that cannot be trusted to be whole ends
nothing.
"""

from collections.abc import Mapping
from datetime import datetime
from typing import NamedTuple

from gpuledger.agent.observing import Fact
from gpuledger.events.allocation import AllocationEnded, AllocationObserved

Told = Mapping[str, AllocationObserved | None]
"""What the ledger was told of: allocations by id, and None for those that another process told of."""


class News(NamedTuple):
    """What to tell now, and what will have been told then."""

    facts: tuple[Fact, ...]
    told: Told


def news(told: Told, seen: Mapping[str, AllocationObserved], now: datetime, *, whole: bool) -> News:
    """The difference between what was told and what is seen; ends come first, so that no unit is had twice.

    `whole` says that what is not seen is no more; where it is not so, it stands as it was told.
    """
    ended = sorted(told.keys() - seen.keys()) if whole else []
    changed = sorted(subject for subject, allocation in seen.items() if told.get(subject) != allocation)
    facts = [Fact(subject, AllocationEnded(), now) for subject in ended]
    facts += [Fact(subject, seen[subject], now) for subject in changed]
    return News(tuple(facts), dict(seen) if whole else {**told, **seen})
