"""Journal of one source: its last record of each subject, as the ledger has it, and the numbers that are left.

It follows from the ledger alone, and a start reads only what came behind its last snapshot. What was just recorded is
read as well: so an event whose acknowledgement got lost, and one that an earlier instance recorded late, count exactly
as for every reader. Numbers continue the source's last epoch; those that an interrupted publication left out are used
first. What a wrong clock dated far ahead counts as not recorded, because every fold rejects it.
"""

import asyncio
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import datetime
from itertools import chain, count
from typing import Final

import structlog

from gpuledger.domain.fact import is_ahead, time_of_ns
from gpuledger.domain.sources.deduplication import Numbers, Seen
from gpuledger.domain.tombstones import Tombstones
from gpuledger.edge.watchers.decide import AnyKind, LastRecord, NewFact, note
from gpuledger.edge.watchers.journal_rows import JournalContent, journal_of_rows, rows_of_journal
from gpuledger.edge.watchers.refusals import Refusals
from gpuledger.events.envelope import Decoded, Event, Undecoded, encode, nats_subject_of, parse, with_payload
from gpuledger.events.ids import derived_id
from gpuledger.events.payload import Payload
from gpuledger.events.position import ORIGIN, Offset, is_at_or_after, latest
from gpuledger.events.publishing import EVENT_AHEAD_MAX
from gpuledger.ledger.api import Ledger, Message, Outgoing
from gpuledger.ledger.errors import EventRefusedError, LedgerUnavailableError
from gpuledger.ledger.identity import Anchor, anchor_of
from gpuledger.ledger.own import publish_own
from gpuledger.projection.snapshot import Row, Snapshot
from gpuledger.projection.snapshots import Snapshots
from gpuledger.projection.subject_form import SubjectForm
from gpuledger.runtime.clock import NewId, random_id

READ_BACK_TIMEOUT_S: Final = 5.0
"""How long a ledger may take to show what it has acknowledged."""

CLOCK_TRIES: Final = 20
"""How many attempts it takes, while the clock is ahead, to record one fact and see; some minutes, with their pauses."""

log = structlog.get_logger("gpuledger.watchers")

Listener = Callable[[Payload], None]
"""Called with the last payload about a subject whenever the ledger has a new one."""


class ClockAheadError(Exception):
    """The clock of this machine is far ahead of that of NATS, so that every fold rejects what is recorded by it."""


class Journal:
    """The facts that one source recorded; `recorded` has the last one by subject, `refusals` what nobody can record."""

    def __init__(
        self,
        ledger: Ledger,
        kind: AnyKind,
        new_id: NewId,
        listener: Listener | None = None,
        new_message_id: NewId = random_id,
        snapshots: Snapshots | None = None,
    ) -> None:
        """With `snapshots` the first `catch_up` begins at the last one; whoever made them runs them."""
        self.recorded: dict[str, LastRecord] = {}
        self.refusals = Refusals()
        self._ledger = ledger
        self._form = SubjectForm(ledger)
        self._kind = kind
        self._new_id = new_id
        self._listener = listener
        self._new_message_id = new_message_id
        self._position = ORIGIN
        self._last: Message | None = None
        self._epoch: str | None = None
        self._attempted: dict[Outgoing, str] = {}
        self._seen = Seen()
        self._rejected_time: datetime | None = None
        self._refused_times = 0
        self._heard: dict[str, Payload] = {}
        self._ends = Tombstones()
        self._snapshots = snapshots
        self._loaded: Anchor | None = None
        self._is_begun = snapshots is None
        self._taken = 0

    @property
    def anchor(self) -> Anchor | None:
        """The last event that was read, here or before the snapshot; None as long as there is none."""
        last = self._last
        return self._loaded if last is None else anchor_of(last.sequence, last.subject, last.data)

    async def record(self, facts: Sequence[NewFact]) -> set[str]:
        """Record facts in their order, and read them back; returns the subjects with new facts.

        A fact that the ledger will never take as it is becomes one of the `refusals`, and uses up no number.

        Raises:
            ClockAheadError: this clock, or that of NATS, was not set since something was recorded that folds reject.
            PublishError: a fact stayed unacknowledged; `catch_up` shows whether it was recorded.
            LedgerUnavailableError: the ledger cannot be read.
        """
        facts = self._unless_clock_is_wrong(facts)
        try:
            return await self._record(facts)
        except EventRefusedError as error:
            if len(facts) > 1:
                half = len(facts) // 2
                return await self.record(facts[:half]) | await self.record(facts[half:])
            (refused,) = facts
            self.refusals.add(refused, self._ledger.message_bytes_max)
            source, kind = self._kind.source, refused.data.TYPE
            log.error("watcher.event-refused", source=source, type=kind, subject=refused.subject, reason=str(error))
            return set()

    def acceptable(self, facts: Iterable[NewFact]) -> list[NewFact]:
        """The facts but for those that the ledger has refused as they are."""
        return self.refusals.acceptable(facts, self._ledger.message_bytes_max)

    def _unless_clock_is_wrong(self, facts: Sequence[NewFact]) -> Sequence[NewFact]:
        """The facts; while the clock is ahead, now and then the first, which shows whether NATS has caught up."""
        wrong = self._rejected_time
        if wrong is None or all(fact.time < wrong for fact in facts):
            return facts
        self._refused_times += 1
        if self._refused_times % CLOCK_TRIES == 0:
            return facts[:1]
        raise ClockAheadError(
            f"The clock is more than {EVENT_AHEAD_MAX.days} day ahead of the clock of NATS: what {self._kind.source} "
            f"recorded as of {wrong.isoformat()} counts for nobody. Set the one that is wrong."
        )

    async def _record(self, facts: Sequence[NewFact]) -> set[str]:
        before = self._attempted
        outgoing = await self._form.of([_outgoing(event) for event in self._events(facts)])
        self._attempted = {one: before.get(one) or self._new_message_id() for one in outgoing}
        messages = [one._replace(id=message_id) for one, message_id in self._attempted.items()]
        receipts = await publish_own(self._ledger, messages, self._new_message_id)
        return await self._read_back(latest(one.sequence for one in receipts))

    async def catch_up(self, until: Offset | None = None) -> set[str]:
        """Read all that the ledger has by now, or up to a position; returns the subjects with new facts.

        Raises:
            LedgerUnavailableError: it cannot be read.
        """
        await self._begin()
        touched: set[str] = set()
        async for messages in self._ledger.history(self._position, until, self._kind.subjects):
            touched |= self._take(messages)
            await asyncio.sleep(0)
        return touched

    async def _begin(self) -> None:
        """Begin at the last snapshot, once."""
        if self._is_begun or self._snapshots is None:
            return
        found = await self._snapshots.load()
        self._is_begun = True
        if found is None:
            return
        self._position, self._loaded = found.anchor.sequence, found.anchor
        content = journal_of_rows(found.rows)
        self.recorded, self._heard, self._seen, self._epoch, self._rejected_time = content
        for subject, last in self.recorded.items():
            if last.digest is None:
                self._ends.add(subject, last.time)
        for payload in self._heard.values():
            self._hear(payload)

    def _keep(self, taken: int) -> None:
        """Take a snapshot where so much was taken since the last one that another is worth it."""
        self._taken += taken
        if self._snapshots is not None and self._snapshots.is_due(self._taken, len(self.recorded)):
            self.offer()

    def offer(self) -> None:
        """Have a snapshot written of the journal as it is."""
        anchor = self.anchor
        if self._snapshots is None or anchor is None:
            return
        identity, generation = self._ledger.identity, self._ledger.generations.of(anchor.sequence)
        self._snapshots.offer(Snapshot(identity.ledger_id, generation, anchor, self.rows()))
        self._taken = 0

    def rows(self) -> dict[str, list[Row]]:
        """All that the journal has from the log, as rows of a snapshot."""
        content = JournalContent(self.recorded, self._heard, self._seen, self._epoch, self._rejected_time)
        return rows_of_journal(self._kind.source, content)

    async def _read_back(self, end: Offset) -> set[str]:
        """Read up to a position: querying the last one takes longer the more events there are."""
        touched: set[str] = set()
        async with self._ledger.read(self._position, self._kind.subjects) as reader:
            while not is_at_or_after(self._position, end):
                messages = await reader.next_batch(timeout_s=READ_BACK_TIMEOUT_S)
                if not messages:
                    raise LedgerUnavailableError(
                        f"The ledger has acknowledged position {end} and shows {self._kind.source} only up to "
                        f"{self._position}. Check the replicas of its stream."
                    )
                touched |= self._take(messages)
                await asyncio.sleep(0)
        return touched

    def _take(self, messages: Sequence[Message]) -> set[str]:
        """Note all messages or none: after a cancellation reading continues behind the last ones that were noted."""
        latest: dict[str, Undecoded] = {}
        for event in self._own(messages):
            last = latest.get(event.subject)
            if last is None or last.time <= event.time:
                latest[event.subject] = event
        for subject, event in latest.items():
            self._note(NewFact(subject, event.time, with_payload(event).data))
        self._forget_ends(messages[-1].recorded_ns)
        self._keep(len(messages))
        return set(latest)

    def _note(self, fact: NewFact) -> None:
        note(self._kind, self.recorded, fact)
        last = self.recorded[fact.subject]
        if last.time != fact.time:
            return
        if last.digest is None:
            self._ends.add(fact.subject, last.time)
        if self._listener is not None:
            self._heard[fact.subject] = fact.data
            self._hear(fact.data)

    def _hear(self, payload: Payload) -> None:
        if self._listener is not None:
            self._listener(payload)

    def _forget_ends(self, recorded_ns: int) -> None:
        """Forget what is gone for so long that no clock is as far behind: the next fact about it is later anyway."""
        for subject, ended_at in self._ends.pop_expired(time_of_ns(recorded_ns)):
            last = self.recorded.get(subject)
            if last is not None and last.digest is None and last.time == ended_at:
                del self.recorded[subject]

    def _own(self, messages: Sequence[Message]) -> Iterator[Undecoded]:
        """Events of this source that are no repeats; other kinds have events under the same subjects."""
        for message in messages:
            self._position, self._last = message.sequence, message
            event = parse(message.data)
            if event.source == self._kind.source:
                self._epoch = event.epoch
                is_new = self._seen.add(event.source, event.epoch, event.number)
                self._rejected_time = event.time if is_ahead(event, message.recorded_ns) else None
                if is_new and self._rejected_time is None:
                    yield event

    def _events(self, facts: Sequence[NewFact]) -> Iterator[Decoded]:
        source = self._kind.source
        epoch = self._epoch or self._new_id()
        free = _free(self._seen.numbers.get((source, epoch), Numbers()))
        for fact, number in zip(facts, free, strict=False):
            kind = fact.data.TYPE
            event_id = derived_id(f"{source}\n{epoch}\n{number}", kind, fact.subject)
            yield Event(event_id, source, kind, fact.subject, fact.time, fact.data, epoch, number)


def _free(numbers: Numbers) -> Iterator[int]:
    """The unused numbers: holes first, then those after the last."""
    holes = (range(first, last + 1) for first, last in list(numbers.holes))
    return chain(chain.from_iterable(holes), count(numbers.last + 1))


def _outgoing(event: Decoded) -> Outgoing:
    """The event without an id for its message: an attempt draws one, and a repeat of that attempt has the same."""
    return Outgoing(nats_subject_of(event), "", encode(event))
