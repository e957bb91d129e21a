"""What the outbox is made of: events that wait, how they are numbered, and what became of those that could not wait.

These are values. They know neither where they are kept nor when anything happens.
"""

from collections.abc import Iterable
from datetime import datetime
from typing import NamedTuple

from gpuledger.agent.part import AgentFact
from gpuledger.events.envelope import Event, encode, nats_subject_of
from gpuledger.events.ids import derived_id
from gpuledger.events.subjects import subject_of
from gpuledger.ledger.api import Outgoing


class AgentIdentity(NamedTuple):
    """Whose events they are: the node, the build of its agent and the kind of hardware that it sees."""

    node: str
    source: str
    version: str
    hardware: str


class EventNumbering(NamedTuple):
    """Where a source's numbering stands, and the time of the last event that it numbered."""

    epoch: str
    next_number: int
    last_time: datetime | None


class Entry(NamedTuple):
    """An event that waits: the n-th of the queue, its number, its priority, when it happened, and what is sent."""

    position: int
    epoch: str
    number: int
    priority: int
    time: datetime
    message: Outgoing

    @property
    def size(self) -> int:
        """How many bytes are sent."""
        return len(self.message.data)


class QueuedEvent(NamedTuple):
    """What of an event that waits decides over whether it may go on waiting; `size` in bytes."""

    position: int
    epoch: str
    number: int
    priority: int
    size: int


class Drops(NamedTuple):
    """Events of an epoch that were dropped for one reason: how many, the lowest and the highest of their numbers."""

    epoch: str
    reason: str
    events: int
    first: int
    last: int


class QueueBounds(NamedTuple):
    """How many events, and how many bytes of them (the bytes that are sent)."""

    events: int
    size: int


def source_of(node: str) -> str:
    """The source that a node's agent is."""
    return f"/nodes/{node}/agent"


def check(source: str, fact: AgentFact) -> None:
    """Refuse what no event can say, before it gets a number.

    Raises:
        SubjectError: the fact is about something that no subject can name.
    """
    subject_of(source, fact.data.AGGREGATE, fact.subject, fact.data.EVENT)


def entry_of(
    source: str, fact: AgentFact, position: int, numbering: EventNumbering, time: datetime, priority: int
) -> Entry:
    """A fact as the next event of a numbering. Its id follows from its number: to send it again adds nothing."""
    epoch, number, data = numbering.epoch, numbering.next_number, fact.data
    event_id = derived_id(f"{source}#{epoch}#{number}", data.TYPE, fact.subject)
    event = Event(event_id, source, data.TYPE, fact.subject, time, data, epoch, number)
    return Entry(position, epoch, number, priority, time, Outgoing(nats_subject_of(event), event_id, encode(event)))


def dropped(held: Iterable[QueuedEvent], reason: str) -> list[Drops]:
    """Events as drops, one by one."""
    return [Drops(one.epoch, reason, 1, one.number, one.number) for one in held]


def merged(drops: Iterable[Drops]) -> tuple[Drops, ...]:
    """The same drops with one for each epoch and reason, in the order in which those first came."""
    found: dict[tuple[str, str], Drops] = {}
    for one in drops:
        known = found.get((one.epoch, one.reason), one._replace(events=0))
        found[one.epoch, one.reason] = Drops(
            one.epoch, one.reason, known.events + one.events, min(known.first, one.first), max(known.last, one.last)
        )
    return tuple(found.values())


def fitting(sizes: Iterable[int], bounds: QueueBounds) -> int:
    """How many events from the front go together within the bounds: one at least, where there is one."""
    count = total = 0
    for size in sizes:
        total += size
        if count and (count == bounds.events or total > bounds.size):
            break
        count += 1
    return count
