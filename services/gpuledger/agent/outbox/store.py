"""The outbox's storage: events wait on disk, and in memory while the disk takes no writes.

Events in memory have an epoch of their own, because their numbers are lost with the process. When the disk takes writes
again, they move there behind the events that it already holds, and a new epoch begins. A `node.agent-started` event
records each such change. One thread uses the store, which must not know whether the ledger is available.
"""

from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from pathlib import Path
from typing import Final, NamedTuple

import structlog

from gpuledger.agent.outbox import drop, numbering
from gpuledger.agent.outbox.bounds import DROPS_MAX, VALUE_BYTES_MAX, VALUES_MAX, Sizes
from gpuledger.agent.outbox.clock import Times, set_back_since_s
from gpuledger.agent.outbox.disk import mark_clean_end, move_aside, take_clean_end
from gpuledger.agent.outbox.entry import AgentIdentity, Drops, Entry
from gpuledger.agent.outbox.errors import DiskError, OutboxError, SpoolUnreadableError, StateStoreFullError
from gpuledger.agent.outbox.numbering import EventNumberer, Limits
from gpuledger.agent.outbox.queue import MemoryQueue, QueueState
from gpuledger.agent.outbox.spool import Spool
from gpuledger.agent.part import AgentFact
from gpuledger.events.node import NodeAgentStarted, NodeClockJumped
from gpuledger.runtime.clock import NewId

DISK_RETRY_S: Final = 30.0
"""How often a disk that took no writes is tried again; each success begins an epoch."""

READ_FAILURES_MAX: Final = 20
"""A spool that cannot be read so many times in a row, over some minutes, is abandoned with everything in it."""

log = structlog.get_logger("gpuledger.agent")

OpenSpool = Callable[[Path, str, datetime], tuple[Spool, Path | None]]
"""See `gpuledger.agent.outbox.spool.open_spool`."""


class OutboxStatus(NamedTuple):
    """The figures of a store: `waiting` events of `size` bytes, the first of which happened at `oldest_at`.

    `dropped` counts since the process started. `trouble` says why the disk takes no writes; None while it does.
    """

    waiting: int = 0
    size: int = 0
    oldest_at: datetime | None = None
    dropped: int = 0
    durable: bool = False
    trouble: str | None = None


class OutboxStore:
    """The events of one source in a state folder, for one thread."""

    def __init__(
        self,
        folder: Path,
        identity: AgentIdentity,
        *,
        times: Times,
        new_id: NewId,
        boot: str,
        sizes: Sizes,
        open_spool: OpenSpool,
    ) -> None:
        self.status = OutboxStatus()
        self.values: dict[str, bytes] = {}
        self._folder = folder
        self._identity = identity
        self._times = times
        self._numberer = EventNumberer(identity.node, new_id)
        self._boot = boot
        self._sizes = sizes
        self._open_spool = open_spool
        self._spool: Spool | None = None
        self._memory: MemoryQueue | None = None
        self._unsaved: set[str] = set()
        self._lent: set[str] = set()
        self._dropped = 0
        self._ended = False
        self._read_failures = 0
        self._trouble: str | None = None
        self._retry_at_s = 0.0

    def open(self) -> None:
        """Resume where the last run ended, and record the start.

        Raises:
            FolderTakenError: another agent uses the folder.
        """
        try:
            spool = self._open_file()
        except DiskError as error:
            self._switch_to_memory(error, clean=take_clean_end(self._folder))
        else:
            self._resume(spool, clean=take_clean_end(self._folder))
        self._update_status()

    def record(self, facts: Sequence[AgentFact]) -> None:
        """Persist facts as the next events; they are on disk when this returns, unless `status` says otherwise."""
        self._write([*self._clock_facts(), *facts])
        self._update_status()

    def head(self) -> list[Entry]:
        """The next events to publish, in order.

        Raises:
            DiskError: they cannot be read now; after `READ_FAILURES_MAX` times they are abandoned.
        """
        entries: list[Entry] = []
        if self._spool is not None:
            entries = self._read(self._spool)
        if not entries and self._memory is not None:
            entries = self._memory.head(self._sizes.batch)
        self._lent = {entry.message.id for entry in entries}
        return entries

    def acknowledged(self, entries: Sequence[Entry]) -> None:
        """The ledger has acknowledged these events of the last `head`."""
        self._skip(entries)
        self._delete_skipped()
        self._write([])
        self._update_status()

    def refuse(self, entry: Entry) -> None:
        """Drop the first event of the last `head`, which the ledger will never take."""
        self._dropped += 1
        self._skip([entry])
        self._note([Drops(entry.epoch, drop.REFUSED, 1, entry.number, entry.number)])
        self.acknowledged([])

    def check(self) -> None:
        """Record a clock that was set, and try a disk again that took no writes."""
        if self._memory is not None and self._times.monotonic_s() >= self._retry_at_s:
            self._switch_to_disk(self._memory, announce=True)
        if jump := self._clock_facts():
            self._write(jump)
        self._update_status()

    def put(self, name: str, value: bytes, facts: Sequence[AgentFact] = ()) -> None:
        """Store a value, and persist facts as the next events in the same transaction.

        Raises:
            StateStoreFullError: it is too large, or one too many.
        """
        if len(value) > VALUE_BYTES_MAX or (name not in self.values and len(self.values) >= VALUES_MAX):
            raise StateStoreFullError(
                f"{name!r} has {len(value)} bytes; {VALUES_MAX} values of {VALUE_BYTES_MAX} are stored at most."
            )
        self.values[name] = value
        self._unsaved.add(name)
        self._write([*self._clock_facts(), *facts] if facts else [])
        self._update_status()

    def has_room(self, events: int, size: int) -> bool:
        """Whether so many events and bytes more leave room on disk for others; from any thread."""
        return drop.has_room(self.status.waiting + events, self.status.size + size, self._sizes.spool)

    def close(self) -> None:
        """End cleanly: move waiting events to disk, where it takes writes."""
        if self._memory is not None:
            self._switch_to_disk(self._memory, announce=False)
        if self._spool is None:
            return
        if self._memory is None:
            self._mark_clean_end(self._spool)
        self._spool.close()
        self._spool = None

    def _open_file(self) -> Spool:
        spool, aside = self._open_spool(self._folder, self._identity.source, self._times.now())
        if aside is not None:
            log.error("the outbox's file is unusable, and was moved aside", moved_to=str(aside))
            take_clean_end(self._folder)
            self._dropped += sum(one.events for one in spool.state.drops if one.reason == drop.UNREADABLE)
        self._spool = spool
        return spool

    def _resume(self, spool: Spool, *, clean: bool) -> None:
        try:
            self.values = spool.values()
            self._begin(spool, clean=clean)
        except (DiskError, SpoolUnreadableError) as error:
            self._switch_to_memory(error, clean=clean)

    def _begin(self, spool: Spool, *, clean: bool) -> None:
        now = self._times.now()
        with spool.transaction():
            last = spool.state.numbering
            last_time = last.last_time if last else None
            spool.number(last if last and spool.boot == self._boot else self._numberer.new_epoch(last))
            spool.set_boot(self._boot)
            numbering.announce(spool, self._numberer, self._start(clean=clean and last is not None, durable=True), now)
            numbering.add(spool, self._numberer, self._jump_facts(set_back_since_s(last_time, now)), now)
            self._dropped += numbering.trim(spool, self._limits_of(spool))
            numbering.record_drops(spool, self._numberer, self._limits_of(spool), now)

    def _write(self, facts: Sequence[AgentFact]) -> None:
        """Persist facts, unsaved values and due records of drops."""
        if self._memory is None:
            assert self._spool is not None, "a store without a queue in memory works on disk"
            try:
                self._write_to(self._spool, facts)
            except (DiskError, SpoolUnreadableError) as error:
                self._switch_to_memory(error, clean=True)
            else:
                return
        assert self._memory is not None, "the disk took it, or memory does"
        self._write_to(self._memory, facts)

    def _write_to(self, queue: Spool | MemoryQueue, facts: Sequence[AgentFact]) -> None:
        limits = self._limits_of(queue)
        has_values = bool(self._unsaved) and isinstance(queue, Spool)
        if not facts and not has_values and not numbering.can_record_drops(queue, limits):
            return
        now = self._times.now()
        with queue.transaction():
            numbering.add(queue, self._numberer, facts, now)
            gone = numbering.trim(queue, limits)
            numbering.record_drops(queue, self._numberer, limits, now)
            if isinstance(queue, Spool):
                queue.save_values({name: self.values[name] for name in self._unsaved})
        self._dropped += gone
        if isinstance(queue, Spool):
            self._unsaved.clear()

    def _switch_to_memory(self, error: OutboxError, *, clean: bool) -> None:
        """Continue without the disk."""
        state = QueueState() if self._spool is None else self._spool.state
        self._memory = memory = MemoryQueue(self._numberer.new_epoch(state.numbering), state.next_position)
        self._trouble = str(error)
        self._retry_at_s = self._times.monotonic_s() + DISK_RETRY_S
        log.error("events wait in memory, not on disk", reason=str(error))
        if isinstance(error, SpoolUnreadableError):
            self._abandon_spool()
        with memory.transaction():
            numbering.announce(memory, self._numberer, self._start(clean=clean, durable=False), self._times.now())
        self._write_to(memory, [])

    def _switch_to_disk(self, memory: MemoryQueue, *, announce: bool) -> None:
        """Continue on disk, if it takes what memory holds; otherwise nothing changes."""
        self._retry_at_s = self._times.monotonic_s() + DISK_RETRY_S
        try:
            spool = self._spool or self._reopened(memory)
            if len(spool.state.drops) + len(memory.state.drops) < DROPS_MAX:
                self._move(memory, spool, announce=announce)
        except SpoolUnreadableError as error:
            log.error("the outbox's file is unusable", reason=str(error))
            self._abandon_spool()
        except OutboxError as error:
            self._trouble = str(error)

    def _reopened(self, memory: MemoryQueue) -> Spool:
        """The spool, which could not be opened so far; its events go before those in memory."""
        spool = self._open_file()
        memory.shift(spool.state.next_position)
        self._lent.clear()
        self.values = {**spool.values(), **self.values}
        self._unsaved = set(self.values)
        return spool

    def _move(self, memory: MemoryQueue, spool: Spool, *, announce: bool) -> None:
        assert memory.state.numbering is not None, "memory has a numbering from the start"
        now, before = self._times.now(), numbering.joined(spool.state.numbering, memory.state.numbering)
        take_clean_end(self._folder)  # a folder that could not be written to may hold it still
        with spool.transaction():
            spool.add(memory.entries)
            spool.note(memory.state.drops)
            spool.number(self._numberer.new_epoch(before))
            spool.set_boot(self._boot)
            spool.save_values({name: self.values[name] for name in self._unsaved})
            if announce:
                numbering.announce(spool, self._numberer, self._start(clean=True, durable=True), now)
            gone = numbering.trim(spool, self._limits_of(spool))
        self._dropped += gone
        self._unsaved.clear()
        self._memory = self._trouble = None
        log.info("events wait on disk again")

    def _mark_clean_end(self, spool: Spool) -> None:
        try:
            with spool.transaction():
                spool.set_boot(self._boot)
            mark_clean_end(self._folder)
        except OutboxError as error:
            log.error("the clean end cannot be marked; the next start will not count as clean", reason=str(error))

    def _read(self, spool: Spool) -> list[Entry]:
        try:
            entries = spool.head(self._sizes.batch)
        except OutboxError as error:
            self._read_failures += 1
            if isinstance(error, DiskError) and self._read_failures < READ_FAILURES_MAX:
                raise
            self._abandon(error)
            return []
        self._read_failures = 0
        return entries

    def _skip(self, entries: Sequence[Entry]) -> None:
        """Never return events of the last `head` again, unless they have moved within the queue since."""
        lent = [entry for entry in entries if entry.message.id in self._lent]
        self._lent.difference_update(entry.message.id for entry in lent)
        in_memory = () if self._memory is None else [entry for entry in lent if self._memory.holds(entry)]
        if self._memory is not None and in_memory:
            self._memory.skip(in_memory)
        elif self._spool is not None:
            self._spool.skip(lent)

    def _delete_skipped(self) -> None:
        if self._spool is None or self._memory is not None:
            return  # drops in memory reach the disk in one transaction with what then leaves it
        try:
            self._spool.delete_skipped()
        except DiskError as error:
            log.warning("acknowledged events stay on disk for now", reason=str(error))
        except SpoolUnreadableError as error:
            self._abandon(error)

    def _abandon(self, error: OutboxError) -> None:
        """The events on disk cannot be read any more."""
        unreadable = SpoolUnreadableError(str(error))
        if self._memory is None:
            self._switch_to_memory(unreadable, clean=True)
        else:
            self._abandon_spool()

    def _abandon_spool(self) -> None:
        """Move the spool aside, and note all its events as dropped."""
        spool, self._spool = self._spool, None
        if spool is None:
            return
        spool.close()
        lost = [one._replace(reason=drop.UNREADABLE) for one in spool.state.waiting_by_epoch]
        self._note([*spool.state.drops, *lost])
        self._dropped += sum(one.events for one in lost)
        self._unsaved = set(self.values)
        try:
            aside = move_aside(spool.path, self._times.now())
            log.error("waiting events are lost", events=spool.state.events, moved_to=str(aside))
        except DiskError as error:
            log.error("waiting events are lost", events=spool.state.events, reason=str(error))

    def _note(self, drops: Iterable[Drops]) -> None:
        """Note drops on disk, or in memory while the disk takes no writes."""
        if self._memory is None:
            assert self._spool is not None, "a store without a queue in memory works on disk"
            try:
                with self._spool.transaction():
                    self._spool.note(drops)
            except (DiskError, SpoolUnreadableError) as error:
                self._switch_to_memory(error, clean=True)
        if self._memory is not None:
            self._memory.note(drops)

    def _limits_of(self, queue: Spool | MemoryQueue) -> Limits:
        return Limits(self._sizes.spool if isinstance(queue, Spool) else self._sizes.memory, self._sizes.batch)

    def _start(self, *, clean: bool, durable: bool) -> NodeAgentStarted:
        _, _, version, hardware = self._identity
        return NodeAgentStarted(version=version, hardware=hardware, clean=clean, durable=durable)

    def _clock_facts(self) -> list[AgentFact]:
        return self._jump_facts(self._times.jump_since_last_s())

    def _jump_facts(self, seconds: float | None) -> list[AgentFact]:
        if seconds is None:
            return []
        log.warning("the node's clock was set", seconds=seconds)
        return [AgentFact(self._identity.node, NodeClockJumped(seconds=seconds), self._times.now())]

    def _update_status(self) -> None:
        queues = [queue for queue in (self._spool, self._memory) if queue is not None]
        self.status = OutboxStatus(
            sum(queue.state.events for queue in queues),
            sum(queue.state.size for queue in queues),
            next((oldest for queue in queues if (oldest := _oldest(queue)) is not None), None),
            self._dropped,
            self._memory is None,
            self._trouble,
        )


def _oldest(queue: Spool | MemoryQueue) -> datetime | None:
    try:
        return queue.oldest()
    except OutboxError:
        return None  # the next read or write reports why
