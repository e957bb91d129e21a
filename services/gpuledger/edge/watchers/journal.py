"""What the ledger says so far of one kind of object, as this source recorded it, and the numbers that are left for it.

It is read from the ledger and from nowhere else, what was just recorded included: so an event whose acknowledgement
got lost, and one that a former instance of us got in late, count exactly as they do for every reader. Numbers go on
where the source's last epoch ended; those that an interrupted publication left out are given first.
"""

import asyncio
from collections.abc import Callable, Iterator, Sequence
from itertools import chain, count
from typing import Final

from gpuledger.domain.sources.numbers import Numbers, Seen
from gpuledger.edge.watchers.decide import Fact, Kind, Known, note
from gpuledger.events.envelope import Decoded, Event, Undecoded, encode, nats_subject_of, parse, with_payload
from gpuledger.events.ids import derived_id
from gpuledger.events.payload import Payload
from gpuledger.ledger.api import Ledger, Message, Outgoing
from gpuledger.ledger.errors import LedgerUnavailableError
from gpuledger.runtime.clock import NewId

READ_BACK_TIMEOUT_S: Final = 5.0
"""How long a ledger may take to show what it has acknowledged."""

Listener = Callable[[Payload], None]
"""Told of the last payload about a subject, whenever the ledger says something new about it."""


class Book:
    """What one source said; `known` has the last of it by subject."""

    def __init__(self, ledger: Ledger, kind: Kind, new_id: NewId, listener: Listener = lambda _payload: None) -> None:
        self.known: dict[str, Known] = {}
        self._ledger = ledger
        self._kind = kind
        self._new_id = new_id
        self._listener = listener
        self._position = 0
        self._epoch: str | None = None
        self._seen = Seen()

    async def record(self, facts: Sequence[Fact]) -> set[str]:
        """Record facts in their order, and read on; returns the subjects that something new was said about.

        Raises:
            PublishError: something stayed unacknowledged; it may be recorded or not, and reading on tells.
            LedgerUnavailableError: the ledger cannot be read.
        """
        receipts = await self._ledger.publish_many([_outgoing(event) for event in self._events(facts)])
        return await self._read_back(max(one.sequence for one in receipts))

    async def catch_up(self) -> set[str]:
        """Read all that the ledger says by now; returns the subjects that it is about.

        Raises:
            LedgerUnavailableError: it cannot be read.
        """
        touched: set[str] = set()
        async for messages in self._ledger.history(self._position, subject_filter=self._kind.subjects):
            touched |= self._take(messages)
            await asyncio.sleep(0)
        return touched

    async def _read_back(self, end: int) -> set[str]:
        """Read up to a position that is known: to ask where the last one is takes the longer the more there is."""
        touched: set[str] = set()
        async with self._ledger.read(self._position, self._kind.subjects) as reader:
            while self._position < end:
                messages = await reader.next_batch(timeout_s=READ_BACK_TIMEOUT_S)
                if not messages:
                    raise LedgerUnavailableError(
                        f"The ledger has acknowledged position {end} and shows {self._kind.source} only up to "
                        f"{self._position}. Look at the replicas of its stream."
                    )
                touched |= self._take(messages)
                await asyncio.sleep(0)
        return touched

    def _take(self, messages: Sequence[Message]) -> set[str]:
        """Take messages in, all or nothing of them: who is cancelled while reading goes on behind the last ones."""
        said: dict[str, Undecoded] = {}
        for event in self._own(messages):
            last = said.get(event.subject)
            if last is None or last.time <= event.time:
                said[event.subject] = event
        for subject, event in said.items():
            self._note(Fact(subject, event.time, with_payload(event).data))
        return set(said)

    def _note(self, fact: Fact) -> None:
        note(self._kind, self.known, fact)
        if self.known[fact.subject].time == fact.time:
            self._listener(fact.data)

    def _own(self, messages: Sequence[Message]) -> Iterator[Undecoded]:
        """Events of this source that are no repeats; those of other kinds stand under the same subjects."""
        for message in messages:
            self._position = message.sequence
            event = parse(message.data)
            if event.source == self._kind.source:
                self._epoch = event.epoch
                if self._seen.add(event.source, event.epoch, event.number):
                    yield event

    def _events(self, facts: Sequence[Fact]) -> Iterator[Decoded]:
        source = self._kind.source
        epoch = self._epoch or self._new_id()
        free = _free(self._seen.numbers.get((source, epoch), Numbers()))
        for fact, number in zip(facts, free, strict=False):
            kind = fact.data.TYPE
            event_id = derived_id(f"{source}\n{epoch}\n{number}", kind, fact.subject)
            yield Event(event_id, source, kind, fact.subject, fact.time, fact.data, epoch, number)


def _free(numbers: Numbers) -> Iterator[int]:
    """The numbers that are left: holes first, then what comes after the last."""
    holes = (range(first, last + 1) for first, last in list(numbers.holes))
    return chain(chain.from_iterable(holes), count(numbers.last + 1))


def _outgoing(event: Decoded) -> Outgoing:
    return Outgoing(nats_subject_of(event), event.id, encode(event))
