"""How facts become events that wait: numbered in their order, in time that does not go back, within bounds.

All of it happens in one transaction of the queue, which numbers too: a number is given out with its event, or not at
all.
"""

from collections.abc import Sequence
from datetime import datetime
from typing import NamedTuple

from gpuledger.agent.observing import Fact
from gpuledger.agent.outbox import drop
from gpuledger.agent.outbox.clock import told_at
from gpuledger.agent.outbox.entry import Bounds, Entry, dropped, entry_of, source_of
from gpuledger.agent.outbox.queue import Queue


class Limits(NamedTuple):
    """What may wait, and how much of it is sent at a time."""

    queue: Bounds
    batch: Bounds


def add(queue: Queue, node: str, facts: Sequence[Fact], now: datetime) -> None:
    """Number facts and put them at the end of the queue; within a transaction, in which a numbering has begun."""
    source, numbering, position = source_of(node), queue.book.numbering, queue.book.next_position
    assert numbering is not None, "who begins an epoch says so to the queue"
    entries: list[Entry] = []
    for fact in facts:
        time = told_at(fact.time, numbering.last_time, now)
        priority = drop.priority_of(fact.data)
        entries.append(entry_of(source, fact, position + len(entries), numbering, time, priority))
        numbering = numbering._replace(next_number=numbering.next_number + 1, last_time=time)
    queue.add(entries)
    queue.number(numbering)


def trim(queue: Queue, limits: Limits) -> int:
    """Give up what is beyond the bounds, and note it; within a transaction. Returns how many events that were."""
    events, size = queue.book.events - limits.queue.events, queue.book.size - limits.queue.size
    if events <= 0 and size <= 0:
        return 0
    victims = drop.victims(queue.droppable(limits.batch), events, size)
    queue.drop(victims)
    queue.note(dropped(victims, drop.NO_ROOM))
    return len(victims)


def can_tell_drops(queue: Queue, limits: Limits) -> bool:
    """Whether something was given up that is not told yet, and there is room again to tell it."""
    return bool(queue.book.drops) and drop.has_room(queue.book.events, queue.book.size, limits.queue)


def tell_drops(queue: Queue, node: str, limits: Limits, now: datetime) -> None:
    """Tell what was given up, where that can be; within a transaction."""
    if can_tell_drops(queue, limits):
        add(queue, node, [drop.told(node, one, now) for one in queue.book.drops], now)
        queue.forget_drops()
