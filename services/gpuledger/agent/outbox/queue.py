"""What waits for the ledger, in its order: behind one face on disk (`gpuledger.agent.outbox.spool`) and in memory.

A queue keeps what it is given and finds what is asked for. It does not number, and gives nothing up by itself.
"""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from datetime import datetime
from itertools import islice
from typing import NamedTuple, Protocol

from gpuledger.agent.outbox.drop import in_order
from gpuledger.agent.outbox.entry import Drops, Entry, EventNumbering, QueueBounds, QueuedEvent, fitting, merged


class QueueState(NamedTuple):
    """What is known of a queue without looking into it.

    `numbering` None: none has begun. `held` says as drops, without a reason, what waits of each epoch: should the queue
    be lost, that is what was lost with it. `drops` have not been told yet.
    """

    events: int = 0
    size: int = 0
    next_position: int = 1
    numbering: EventNumbering | None = None
    held: tuple[Drops, ...] = ()
    drops: tuple[Drops, ...] = ()

    def with_added(self, entries: Sequence[Entry]) -> "QueueState":
        """The book with entries at the end of the queue."""
        return self._replace(
            events=self.events + len(entries),
            size=self.size + sum(entry.size for entry in entries),
            next_position=entries[-1].position + 1 if entries else self.next_position,
            held=merged([*self.held, *(Drops(entry.epoch, "", 1, entry.number, entry.number) for entry in entries)]),
        )

    def without(self, gone: Sequence[Entry] | Sequence[QueuedEvent]) -> "QueueState":
        """The book without what left the queue."""
        left: dict[str, int] = {}
        for one in gone:
            left[one.epoch] = left.get(one.epoch, 0) + 1
        held = [drops._replace(events=drops.events - left.get(drops.epoch, 0)) for drops in self.held]
        return self._replace(
            events=self.events - len(gone),
            size=self.size - sum(one.size for one in gone),
            held=tuple(drops for drops in held if drops.events),
        )


class EventQueue(Protocol):
    """Events in the order of their positions, and what else has to be kept with them."""

    state: QueueState

    def transaction(self) -> AbstractContextManager[None]:
        """All of it is kept, or nothing; a disk has it when this ends.

        Raises:
            DiskError: nothing was kept.
            SpoolUnreadableError: the queue cannot be gone on with.
        """
        ...

    def add(self, entries: Sequence[Entry]) -> None:
        """Put entries at the end; within a transaction."""
        ...

    def number(self, numbering: EventNumbering) -> None:
        """Note where the numbering stands; within a transaction."""
        ...

    def droppable(self, batch: QueueBounds) -> Iterator[QueuedEvent]:
        """What may be given up, in that order: nothing of the first `batch`, which may be under way."""
        ...

    def drop(self, held: Sequence[QueuedEvent]) -> None:
        """Take events out of the queue; within a transaction."""
        ...

    def note(self, drops: Iterable[Drops]) -> None:
        """Note what was dropped, beside what was before; within a transaction."""
        ...

    def forget_drops(self) -> None:
        """What was dropped has been told; within a transaction."""
        ...

    def head(self, batch: QueueBounds) -> list[Entry]:
        """The first `batch` of the queue; raises as `transaction` does."""
        ...

    def pass_over(self, entries: Sequence[Entry]) -> None:
        """The first entries of the queue are not given again, whatever the disk says; raises nothing."""
        ...

    def oldest(self) -> datetime | None:
        """When the first event of the queue happened; raises as `transaction` does."""
        ...


class MemoryQueue:
    """A queue that goes with the process."""

    def __init__(self, numbering: EventNumbering, next_position: int) -> None:
        self.state = QueueState(numbering=numbering, next_position=next_position)
        self._entries: dict[int, Entry] = {}

    @property
    def entries(self) -> list[Entry]:
        """All that waits, in order."""
        return list(self._entries.values())

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """See `Queue.transaction`; memory fails nobody."""
        yield

    def holds(self, entry: Entry) -> bool:
        """Whether it waits here."""
        return entry.position in self._entries

    def shift(self, by: int) -> None:
        """Make room for so many positions in front."""
        self._entries = {
            entry.position + by: entry._replace(position=entry.position + by) for entry in self._entries.values()
        }
        self.state = self.state._replace(next_position=self.state.next_position + by)

    def add(self, entries: Sequence[Entry]) -> None:
        """See `Queue.add`."""
        self._entries.update((entry.position, entry) for entry in entries)
        self.state = self.state.with_added(entries)

    def number(self, numbering: EventNumbering) -> None:
        """See `Queue.number`."""
        self.state = self.state._replace(numbering=numbering)

    def droppable(self, batch: QueueBounds) -> Iterator[QueuedEvent]:
        """See `Queue.droppable`."""
        protected = fitting((entry.size for entry in self._entries.values()), batch)
        behind = islice(self._entries.values(), protected, None)
        return iter(
            in_order(QueuedEvent(one.position, one.epoch, one.number, one.priority, one.size) for one in behind)
        )

    def drop(self, held: Sequence[QueuedEvent]) -> None:
        """See `Queue.drop`."""
        for one in held:
            del self._entries[one.position]
        self.state = self.state.without(held)

    def note(self, drops: Iterable[Drops]) -> None:
        """See `Queue.note`."""
        self.state = self.state._replace(drops=merged([*self.state.drops, *drops]))

    def forget_drops(self) -> None:
        """See `Queue.forget_drops`."""
        self.state = self.state._replace(drops=())

    def head(self, batch: QueueBounds) -> list[Entry]:
        """See `Queue.head`."""
        count = fitting((entry.size for entry in self._entries.values()), batch)
        return list(islice(self._entries.values(), count))

    def pass_over(self, entries: Sequence[Entry]) -> None:
        """See `Queue.pass_over`."""
        gone = [entry for entry in entries if self._entries.pop(entry.position, None) is not None]
        self.state = self.state.without(gone)

    def oldest(self) -> datetime | None:
        """See `Queue.oldest`."""
        return next((entry.time for entry in self._entries.values()), None)
