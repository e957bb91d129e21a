"""Which events the outbox drops where not all can wait. Pure.

The lowest drop class of the registry goes first, and within a class the oldest events. The front of the queue is never
dropped, because it may be in the ledger already without an acknowledgement.
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
"""Drops are recorded, and events that are never dropped are taken, while the queue is no fuller than this.

Otherwise they would push out waiting events.
"""


def in_order(queued: Iterable[QueuedEvent]) -> list[QueuedEvent]:
    """The events that may be dropped, in that order."""
    return sorted(
        (one for one in queued if one.priority < DropClass.NEVER), key=lambda one: (one.priority, one.position)
    )


def victims(candidates: Iterable[QueuedEvent], events: int, size: int) -> list[QueuedEvent]:
    """The first of `candidates`, in the order of `in_order`, that free so many events and bytes together."""
    chosen: list[QueuedEvent] = []
    for one in candidates:
        if events <= 0 and size <= 0:
            break
        chosen.append(one)
        events, size = events - 1, size - one.size
    return chosen


def has_room(events: int, size: int, bounds: QueueBounds) -> bool:
    """Whether a queue of so many events and bytes has room for more than what drops others where it has to."""
    return events <= ROOM_SHARE * bounds.events and size <= ROOM_SHARE * bounds.size


def drop_fact(node: str, drops: Drops, now: datetime) -> AgentFact:
    """The fact that events were dropped."""
    data = NodeEventsDropped(
        epoch=drops.epoch, count=drops.events, first=drops.first, last=drops.last, reason=drops.reason
    )
    return AgentFact(node, data, now)
