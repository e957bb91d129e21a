"""Turns facts into waiting events: numbered in order, with times that do not go back, within the bounds of the queue.

All of it happens in one transaction of the queue, which also stores the numbering: a number is given out with its
event, or not at all. Readers bound the gaps of an epoch (`gpuledger.domain.sources.deduplication`) and reject what
comes after more; so an epoch ends before more of its events are at risk than that, and when some were dropped.
"""

from collections.abc import Sequence
from datetime import datetime
from typing import Final, NamedTuple

from gpuledger.agent.outbox import drop
from gpuledger.agent.outbox.clock import event_time
from gpuledger.agent.outbox.entry import Entry, EpochEnd, EventNumbering, QueueBounds, dropped, entry_of, source_of
from gpuledger.agent.outbox.queue import EventQueue, QueueState
from gpuledger.agent.part import AgentFact
from gpuledger.domain.sources.deduplication import HOLES_MAX
from gpuledger.events.node import ENDED_EPOCHS_MAX, EndedEpoch, NodeAgentStarted
from gpuledger.runtime.clock import NewId

EPOCH_AT_RISK_MAX: Final = HOLES_MAX // 2
"""How many events of an epoch may wait or be dropped at a time: dropping every second one leaves a gap for each."""


class Limits(NamedTuple):
    """The bounds of the queue, and those of a batch that is published at once."""

    queue: QueueBounds
    batch: QueueBounds


class EventNumberer(NamedTuple):
    """The node whose events are numbered, and the source of new epochs."""

    node: str
    new_id: NewId

    def new_epoch(self, last: EventNumbering | None) -> EventNumbering:
        """A numbering that nobody used before, after the last one (None: it is not known)."""
        if last is None:
            return EventNumbering(self.new_id(), 1, None)
        ended = (*last.ended, EpochEnd(last.epoch, last.next_number - 1))[-ENDED_EPOCHS_MAX:]
        return EventNumbering(self.new_id(), 1, last.last_time, ended)


def add(queue: EventQueue, numberer: EventNumberer, facts: Sequence[AgentFact], now: datetime) -> None:
    """Number facts and append them to the queue; in a transaction, after a numbering has begun."""
    source, numbering, position = source_of(numberer.node), queue.state.numbering, queue.state.next_position
    assert numbering is not None, "a numbering begins before facts are added"
    room = EPOCH_AT_RISK_MAX - at_risk(queue.state, numbering.epoch)
    entries: list[Entry] = []
    for fact in facts:
        if room <= 0:
            numbering, room = numberer.new_epoch(numbering), EPOCH_AT_RISK_MAX
        room -= 1
        time = event_time(fact.time, numbering.last_time, now)
        priority = fact.data.PUBLISH_RULE.drop_class
        entries.append(entry_of(source, fact, position + len(entries), numbering, time, priority))
        numbering = numbering._replace(next_number=numbering.next_number + 1, last_time=time)
    queue.add(entries)
    queue.number(numbering)


def joined(on_disk: EventNumbering | None, in_memory: EventNumbering) -> EventNumbering:
    """The numbering in memory as the last one, after that on disk, whose end may not be announced yet."""
    if on_disk is None:
        return in_memory
    ended = (*on_disk.ended, EpochEnd(on_disk.epoch, on_disk.next_number - 1), *in_memory.ended)
    last_time = max((one.last_time for one in (on_disk, in_memory) if one.last_time), default=None)
    return in_memory._replace(last_time=last_time, ended=tuple(dict.fromkeys(ended)))


def announce(queue: EventQueue, numberer: EventNumberer, start: NodeAgentStarted, now: datetime) -> None:
    """Append the event of a start, with the ends of epochs that no event says yet; in a transaction."""
    numbering = queue.state.numbering
    assert numbering is not None, "a numbering begins before it is announced"
    ended = tuple(EndedEpoch(epoch=one.epoch, last=one.last) for one in numbering.ended)
    queue.number(numbering._replace(ended=()))
    add(queue, numberer, [AgentFact(numberer.node, start.model_copy(update={"ended": ended}), now)], now)


def at_risk(state: QueueState, epoch: str) -> int:
    """How many events of an epoch wait, or were dropped without a record in the ledger."""
    return sum(one.events for one in (*state.waiting_by_epoch, *state.drops) if one.epoch == epoch)


def trim(queue: EventQueue, limits: Limits) -> int:
    """Drop what is beyond the bounds, and note it; in a transaction. Returns how many events were dropped."""
    events, size = queue.state.events - limits.queue.events, queue.state.size - limits.queue.size
    if events <= 0 and size <= 0:
        return 0
    victims = drop.victims(queue.droppable(limits.batch), events, size)
    queue.drop(victims)
    queue.note(dropped(victims, drop.NO_ROOM))
    return len(victims)


def can_record_drops(queue: EventQueue, limits: Limits) -> bool:
    """Whether there are drops to record, and room again for their events."""
    return bool(queue.state.drops) and drop.has_room(queue.state.events, queue.state.size, limits.queue)


def record_drops(queue: EventQueue, numberer: EventNumberer, limits: Limits, now: datetime) -> None:
    """Record what was dropped, if there is room; in a transaction. It ends an epoch that events were dropped from."""
    if not can_record_drops(queue, limits):
        return
    drops = queue.state.drops
    add(queue, numberer, [drop.drop_fact(numberer.node, one, now) for one in drops], now)
    queue.forget_drops()
    current = queue.state.numbering
    if current is not None and any((one.epoch, one.reason) == (current.epoch, drop.NO_ROOM) for one in drops):
        queue.number(numberer.new_epoch(current))
