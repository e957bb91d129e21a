"""Which events are given up where not all can wait. Pure.

The least important go first, and of those the oldest: what is observed again and again is replaced by what was observed
later. What stands at the front of the queue may be in the ledger already without our knowing, and is never given up;
nor is what says that something was.
"""

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Final

from gpuledger.agent.outbox.entry import Drops, QueueBounds, QueuedEvent
from gpuledger.agent.part import AgentFact
from gpuledger.events.allocation import AllocationEnded, AllocationObserved
from gpuledger.events.device import (
    DeviceErrorsObserved,
    DeviceHealthChanged,
    DevicePoolApplied,
    DevicePoolRefused,
    DevicePoolReleased,
)
from gpuledger.events.node import (
    NodeAgentStarted,
    NodeDevicesObserved,
    NodeEventsDropped,
    NodeMonitoringObserved,
)
from gpuledger.events.payload import Payload

REPEATED: Final = 0
"""It is told again and again, and each replaces the last."""

ORDINARY: Final = 1

ONCE: Final = 2
"""It is told once, and what follows from it is not known otherwise."""

NEVER: Final = 3
"""It is never given up."""

PRIORITIES: Final[Mapping[type[Payload], int]] = {
    NodeDevicesObserved: REPEATED,
    NodeMonitoringObserved: REPEATED,
    DeviceHealthChanged: ONCE,
    DeviceErrorsObserved: ONCE,
    DevicePoolApplied: ONCE,
    DevicePoolRefused: ONCE,
    DevicePoolReleased: ONCE,
    NodeAgentStarted: ONCE,
    AllocationObserved: ONCE,
    AllocationEnded: ONCE,
    NodeEventsDropped: NEVER,
}

NO_ROOM: Final = "NoRoom"
REFUSED: Final = "RefusedByLedger"
UNREADABLE: Final = "SpoolUnreadable"

ROOM_SHARE: Final = 0.75
"""What was dropped is told once the queue is no fuller than this: told earlier, it would drop what waits."""


def priority_of(data: Payload) -> int:
    """How much it matters that this comes to the ledger; higher matters more."""
    return PRIORITIES.get(type(data), ORDINARY)


def in_order(held: Iterable[QueuedEvent]) -> list[QueuedEvent]:
    """What may be given up, in the order in which it would be."""
    return sorted((one for one in held if one.priority < NEVER), key=lambda one: (one.priority, one.position))


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
