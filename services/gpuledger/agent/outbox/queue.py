"""The queue of waiting events, with one interface on disk (`gpuledger.agent.outbox.spool`) and in memory.

A queue stores and finds events. It must neither number them nor drop any by itself.
"""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from datetime import datetime
from itertools import islice
from typing import NamedTuple, Protocol

from gpuledger.agent.outbox.drop import in_order
from gpuledger.agent.outbox.entry import Drops, Entry, EventNumbering, QueueBounds, QueuedEvent, merged, prefix_length


class QueueState(NamedTuple):
    """The figures of a queue, known without reading it.

    `numbering` None: none has begun. `waiting_by_epoch` counts the waiting events of each epoch in the form of drops
    without a reason: if the queue is lost, these are lost with it. `drops` are not recorded in the ledger yet.
    """

    events: int = 0
    size: int = 0
    next_position: int = 1
    numbering: EventNumbering | None = None
    waiting_by_epoch: tuple[Drops, ...] = ()
    drops: tuple[Drops, ...] = ()

    def with_added(self, entries: Sequence[Entry]) -> "QueueState":
        """The state after appending entries."""
        return self._replace(
            events=self.events + len(entries),
            size=self.size + sum(entry.size for entry in entries),
            next_position=entries[-1].position + 1 if entries else self.next_position,
            waiting_by_epoch=merged(
                [*self.waiting_by_epoch, *(Drops(entry.epoch, "", 1, entry.number, entry.number) for entry in entries)]
            ),
        )

    def without(self, gone: Sequence[Entry] | Sequence[QueuedEvent]) -> "QueueState":
        """The state after events left the queue."""
        left: dict[str, int] = {}
        for one in gone:
            left[one.epoch] = left.get(one.epoch, 0) + 1
        queued = [drops._replace(events=drops.events - left.get(drops.epoch, 0)) for drops in self.waiting_by_epoch]
        return self._replace(
            events=self.events - len(gone),
            size=self.size - sum(one.size for one in gone),
            waiting_by_epoch=tuple(drops for drops in queued if drops.events),
        )


class EventQueue(Protocol):
    """Events in the order of their positions, with their numbering and the drops."""

    state: QueueState

    def transaction(self) -> AbstractContextManager[None]:
        """Everything in the block is stored, or nothing is; a disk has it when the block ends.

        Raises:
            DiskError: nothing was stored.
            SpoolUnreadableError: the queue cannot be used any further.
        """
        ...

    def add(self, entries: Sequence[Entry]) -> None:
        """Append entries; in a transaction."""
        ...

    def number(self, numbering: EventNumbering) -> None:
        """Store the numbering; in a transaction."""
        ...

    def droppable(self, batch: QueueBounds) -> Iterator[QueuedEvent]:
        """The events that may be dropped, in that order: none of the first `batch`, which may be on their way."""
        ...

    def drop(self, queued: Sequence[QueuedEvent]) -> None:
        """Remove events from the queue; in a transaction."""
        ...

    def note(self, drops: Iterable[Drops]) -> None:
        """Add to the drops; in a transaction."""
        ...

    def forget_drops(self) -> None:
        """Remove the drops, because they are recorded; in a transaction."""
        ...

    def head(self, batch: QueueBounds) -> list[Entry]:
        """The first `batch` of the queue; raises what `transaction` raises."""
        ...

    def skip(self, entries: Sequence[Entry]) -> None:
        """Never return the first entries of the queue again, whatever is on disk; raises nothing."""
        ...

    def oldest(self) -> datetime | None:
        """The time of the first event of the queue; raises what `transaction` raises."""
        ...


class MemoryQueue:
    """A queue that is lost with the process."""

    def __init__(self, numbering: EventNumbering, next_position: int) -> None:
        self.state = QueueState(numbering=numbering, next_position=next_position)
        self._entries: dict[int, Entry] = {}

    @property
    def entries(self) -> list[Entry]:
        """All waiting events, in order."""
        return list(self._entries.values())

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """See `EventQueue.transaction`; memory does not fail."""
        yield

    def holds(self, entry: Entry) -> bool:
        """Whether an event waits in this queue."""
        return entry.position in self._entries

    def shift(self, by: int) -> None:
        """Make room for so many positions at the front."""
        self._entries = {
            entry.position + by: entry._replace(position=entry.position + by) for entry in self._entries.values()
        }
        self.state = self.state._replace(next_position=self.state.next_position + by)

    def add(self, entries: Sequence[Entry]) -> None:
        """See `EventQueue.add`."""
        self._entries.update((entry.position, entry) for entry in entries)
        self.state = self.state.with_added(entries)

    def number(self, numbering: EventNumbering) -> None:
        """See `EventQueue.number`."""
        self.state = self.state._replace(numbering=numbering)

    def droppable(self, batch: QueueBounds) -> Iterator[QueuedEvent]:
        """See `EventQueue.droppable`."""
        protected = prefix_length((entry.size for entry in self._entries.values()), batch)
        behind = islice(self._entries.values(), protected, None)
        return iter(
            in_order(QueuedEvent(one.position, one.epoch, one.number, one.priority, one.size) for one in behind)
        )

    def drop(self, queued: Sequence[QueuedEvent]) -> None:
        """See `EventQueue.drop`."""
        for one in queued:
            del self._entries[one.position]
        self.state = self.state.without(queued)

    def note(self, drops: Iterable[Drops]) -> None:
        """See `EventQueue.note`."""
        self.state = self.state._replace(drops=merged([*self.state.drops, *drops]))

    def forget_drops(self) -> None:
        """See `EventQueue.forget_drops`."""
        self.state = self.state._replace(drops=())

    def head(self, batch: QueueBounds) -> list[Entry]:
        """See `EventQueue.head`."""
        count = prefix_length((entry.size for entry in self._entries.values()), batch)
        return list(islice(self._entries.values(), count))

    def skip(self, entries: Sequence[Entry]) -> None:
        """See `EventQueue.skip`."""
        gone = [entry for entry in entries if self._entries.pop(entry.position, None) is not None]
        self.state = self.state.without(gone)

    def oldest(self) -> datetime | None:
        """See `EventQueue.oldest`."""
        return next((entry.time for entry in self._entries.values()), None)
