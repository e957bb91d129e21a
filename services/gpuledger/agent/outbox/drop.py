"""Which events the outbox gives up where not all can wait. Pure.

The lowest drop class of the registry goes first, and of one class the oldest. What stands at the front of the queue may
be in the ledger already without our knowing, and is never given up.
"""

from collections.abc import Iterable
from datetime import datetime
from typing import Final

from gpuledger.agent.outbox.entry import Drops, QueueBounds, QueuedEvent
from gpuledger.agent.part import AgentFact
from gpuledger.events.node import NodeEventsDropped
from gpuledger.events.publishing import DropClass

NO_ROOM: Final = "NoRoom"
REFUSED: Final = "RefusedByLedger"
UNREADABLE: Final = "SpoolUnreadable"

ROOM_SHARE: Final = 0.75
"""What was dropped is told once the queue is no fuller than this: told earlier, it would drop what waits."""


def in_order(held: Iterable[QueuedEvent]) -> list[QueuedEvent]:
    """What may be given up, in the order in which it would be."""
    return sorted((one for one in held if one.priority < DropClass.NEVER), key=lambda one: (one.priority, one.position))


def victims(candidates: Iterable[QueuedEvent], events: int, size: int) -> list[QueuedEvent]:
    """The first of `candidates`, as `in_order` gives them, that free so many events and so many bytes together."""
    chosen: list[QueuedEvent] = []
    for one in candidates:
        if events <= 0 and size <= 0:
            break
        chosen.append(one)
        events, size = events - 1, size - one.size
    return chosen


def has_room(events: int, size: int, bounds: QueueBounds) -> bool:
    """Whether a queue of so many events and bytes can take what says that others were dropped."""
    return events <= ROOM_SHARE * bounds.events and size <= ROOM_SHARE * bounds.size


def told(node: str, drops: Drops, now: datetime) -> AgentFact:
    """What was dropped, as a fact."""
    data = NodeEventsDropped(
        epoch=drops.epoch, count=drops.events, first=drops.first, last=drops.last, reason=drops.reason
    )
    return AgentFact(node, data, now)
