"""The values that the outbox works with: waiting events, their numbering, and records of dropped events. Pure."""

from collections.abc import Iterable
from datetime import datetime
from typing import NamedTuple

from gpuledger.agent.part import AgentFact
from gpuledger.events.envelope import Event, encode, nats_subject_of
from gpuledger.events.ids import derived_id
from gpuledger.events.subjects import subject_of
from gpuledger.ledger.api import Outgoing


class AgentIdentity(NamedTuple):
    """The origin of the events: the node, its source, the agent's build and the kind of hardware that it sees."""

    node: str
    source: str
    version: str
    hardware: str


class EpochEnd(NamedTuple):
    """An epoch that is over, and the last number that was given out in it."""

    epoch: str
    last: int


class EventNumbering(NamedTuple):
    """The next number of a source in its epoch, and the time of the last event.

    `ended` are the epochs before this one whose ends no `node.agent-started` event has announced yet.
    """

    epoch: str
    next_number: int
    last_time: datetime | None
    ended: tuple[EpochEnd, ...] = ()


class Entry(NamedTuple):
    """A waiting event: its position in the queue, its number, its priority, its time and the message to publish."""

    position: int
    epoch: str
    number: int
    priority: int
    time: datetime
    message: Outgoing

    @property
    def size(self) -> int:
        """The size of the message, in bytes."""
        return len(self.message.data)


class QueuedEvent(NamedTuple):
    """The properties of a waiting event that decide whether it is dropped; `size` in bytes."""

    position: int
    epoch: str
    number: int
    priority: int
    size: int


class Drops(NamedTuple):
    """Events of an epoch that were dropped for one reason: how many, and their lowest and highest numbers."""

    epoch: str
    reason: str
    events: int
    first: int
    last: int


class QueueBounds(NamedTuple):
    """A number of events, and of bytes in their messages."""

    events: int
    size: int


def source_of(node: str) -> str:
    """The source of a node's agent."""
    return f"/nodes/{node}/agent"


def check(source: str, fact: AgentFact) -> None:
    """Refuse a fact that cannot become an event, before it gets a number.

    Raises:
        SubjectError: no subject can name what the fact is about.
    """
    subject_of(source, fact.data.AGGREGATE, fact.subject, fact.data.EVENT)


def entry_of(
    source: str, fact: AgentFact, position: int, numbering: EventNumbering, time: datetime, priority: int
) -> Entry:
    """The fact as the next event of a numbering. Its id follows from its number, so that a repeat adds nothing."""
    epoch, number, data = numbering.epoch, numbering.next_number, fact.data
    event_id = derived_id(f"{source}#{epoch}#{number}", data.TYPE, fact.subject)
    event = Event(event_id, source, data.TYPE, fact.subject, time, data, epoch, number)
    return Entry(position, epoch, number, priority, time, Outgoing(nats_subject_of(event), event_id, encode(event)))


def dropped(queued: Iterable[QueuedEvent], reason: str) -> list[Drops]:
    """One record of dropped events for each event."""
    return [Drops(one.epoch, reason, 1, one.number, one.number) for one in queued]


def merged(drops: Iterable[Drops]) -> tuple[Drops, ...]:
    """The same records with one for each epoch and reason, in the order in which those first came."""
    found: dict[tuple[str, str], Drops] = {}
    for one in drops:
        before = found.get((one.epoch, one.reason), one._replace(events=0))
        found[one.epoch, one.reason] = Drops(
            one.epoch, one.reason, before.events + one.events, min(before.first, one.first), max(before.last, one.last)
        )
    return tuple(found.values())


def prefix_length(sizes: Iterable[int], bounds: QueueBounds) -> int:
    """How many events from the front are together within the bounds: at least one, if there is any."""
    count = total = 0
    for size in sizes:
        total += size
        if count and (count == bounds.events or total > bounds.size):
            break
        count += 1
    return count
