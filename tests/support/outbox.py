"""Outboxes for tests: numbered facts, a disk that takes nothing for a while, a ledger that is away, virtual time."""

import asyncio
import shutil
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from datetime import UTC, datetime, timedelta
from itertools import count
from pathlib import Path
from typing import NamedTuple

from gpuledger.agent.outbox.bounds import DEFAULT_SIZES, Sizes
from gpuledger.agent.outbox.clock import Times
from gpuledger.agent.outbox.entry import AgentIdentity, Entry, QueueBounds, source_of
from gpuledger.agent.outbox.errors import DiskError
from gpuledger.agent.outbox.spool import FILE, Spool
from gpuledger.agent.outbox.store import OutboxStore
from gpuledger.agent.part import AgentFact
from gpuledger.deciders.sources.projection import SourcesProjection
from gpuledger.domain.sources.fold import Sources
from gpuledger.events.device import DeviceErrorsObserved
from gpuledger.events.envelope import Decoded, decode
from gpuledger.events.node import NodeEventsDropped, NodeFeaturesObserved, NodeMonitoringObserved, PciDevice  # noqa: F401 - the payloads register themselves
from gpuledger.events.payload import Payload
from gpuledger.ledger.api import Expected, Message, Outgoing, Receipt
from gpuledger.ledger.errors import EventRefusedError, LedgerUnavailableError, PublishError
from gpuledger.projection.fold import Fold

NODE = "w1"
NOON = datetime(2026, 1, 2, 12, tzinfo=UTC)
SMALL = Sizes(QueueBounds(12, 1 << 20), QueueBounds(6, 1 << 20), QueueBounds(3, 1 << 20))


def fact(number: int, *, at: datetime = NOON, priority: int = 2, size: int = 0) -> AgentFact:
    """A fact that carries its number, of a type that has the priority."""
    set_boot = f"{number}{'x' * size}"
    data: dict[int, Callable[[], Payload]] = {
        0: lambda: NodeMonitoringObserved(fresh=True, updated_at=NOON + timedelta(seconds=number)),
        1: lambda: NodeFeaturesObserved(nfd_version=set_boot),
        2: lambda: DeviceErrorsObserved(kind=set_boot[:200], cause="hardware", first_at=NOON, message=set_boot[200:]),
    }
    return AgentFact(NODE if priority < 2 else "GPU-1", data[priority](), at)


def number_of(event: Decoded) -> int | None:
    """The number that `fact` put in; None for the outbox's own facts."""
    match event.data:
        case DeviceErrorsObserved(kind=kind):
            return int(kind.rstrip("x"))
        case NodeFeaturesObserved(nfd_version=str(version)):
            return int(version.rstrip("x"))
        case NodeMonitoringObserved(updated_at=datetime() as updated_at):
            return round((updated_at - NOON).total_seconds())
    return None


def numbers_in(events: Iterable[Decoded]) -> list[int]:
    """The numbers of the facts among the events."""
    return [number for event in events if (number := number_of(event)) is not None]


class Time:
    """Clocks that a test moves on."""

    def __init__(self) -> None:
        self.now = NOON
        self.monotonic_s = 1_000.0

    def clock(self) -> datetime:
        return self.now

    def monotonic(self) -> float:
        return self.monotonic_s

    def go(self, seconds: float) -> None:
        """So much time passes."""
        self.now += timedelta(seconds=seconds)
        self.monotonic_s += seconds


class Disk:
    """A state folder on a disk that may take nothing, or give nothing back."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.full = self.closed = self.unreadable = False

    def open(self, folder: Path, source: str, now: datetime) -> tuple[Spool, Path | None]:
        if self.closed or (self.full and not (folder / FILE).exists()):
            raise DiskError("the disk is full")
        return _ShakySpool(folder, source, self), None

    def crash(self, to: Path) -> None:
        """From now on the disk is what another folder has, which is what a killed process would leave."""
        shutil.copytree(self.folder, to) if self.folder.exists() else None
        self.folder = to


class _ShakySpool(Spool):
    def __init__(self, folder: Path, source: str, disk: Disk) -> None:
        self._disk = disk
        super().__init__(folder, source, lock_wait_s=0)

    @contextmanager
    def transaction(self) -> Iterator[None]:
        with super().transaction():
            yield
            if self._disk.full:
                raise DiskError("the disk is full")

    def delete_skipped(self) -> None:
        if self._disk.full:
            raise DiskError("the disk is full")
        super().delete_skipped()

    def head(self, batch: QueueBounds) -> list[Entry]:
        if self._disk.unreadable:
            raise DiskError("the disk gives nothing back")
        return super().head(batch)


BOOT = "b1"


def store_on(
    disk: Disk, time: Time, *, sizes: Sizes = DEFAULT_SIZES, epochs: Iterator[int] | None = None, boot: str = BOOT
) -> OutboxStore:
    """A store that is not open yet; its epochs are called `e1`, `e2` and so on."""
    numbers = epochs or count(1)
    return OutboxStore(
        disk.folder,
        AgentIdentity(NODE, source_of(NODE), "1.0", "simulated"),
        times=Times(time.clock, time.monotonic),
        new_id=lambda: f"e{next(numbers)}",
        boot=boot,
        sizes=sizes,
        open_spool=disk.open,
    )


class Recorded(NamedTuple):
    """What a log comes to: its events without repeats, what is missing of each epoch, and the reported losses."""

    events: list[Decoded]
    missing: dict[str, set[int]]
    dropped: dict[str, list[NodeEventsDropped]]


def recorded(messages: Sequence[Outgoing]) -> Recorded:
    """Fold a log as `sources` does, however often its messages were published."""
    fold = Fold(SourcesProjection(), 1)
    events: list[Decoded] = []
    contents: dict[tuple[str, int], bytes] = {}
    for sequence, message in enumerate(messages, 1):
        event = decode(message.data)
        assert contents.setdefault((event.epoch, event.number), message.data) == message.data, "a number was used twice"
        is_new = event.number not in fold.seen.numbers.get((event.source, event.epoch), ())
        fold.apply(Message(message.subject, message.data, sequence, sequence))
        events += [event] if is_new else []
    missing: dict[str, set[int]] = {}
    assert isinstance(fold.state, Sources)
    for row in fold.state.missing.rows.values():
        missing.setdefault(row.epoch, set()).update(range(row.first, row.last + 1))
    for (_, epoch), seen in fold.seen.numbers.items():
        holes = {number for first, last in seen.holes for number in range(first, last + 1)}
        assert holes <= missing.get(epoch, set()), "sources finds every gap"
        missing[epoch] = holes
    dropped: dict[str, list[NodeEventsDropped]] = {}
    for event in events:
        if isinstance(event.data, NodeEventsDropped):
            dropped.setdefault(event.data.epoch, []).append(event.data)
    return Recorded(events, missing, dropped)


class Log:
    """A ledger that forgets what it has seen, so that repeats show, and that can be away, deaf or picky."""

    def __init__(self) -> None:
        self.messages: list[Outgoing] = []
        self.away = False
        self.deaf = 0
        self.size_max: int | None = None
        self.batches: list[int] = []

    generation = 1

    async def publish(self, message: Outgoing, expected: Expected | None = None) -> Receipt:
        return (await self.publish_many([message]))[0]

    async def publish_many(self, messages: Sequence[Outgoing]) -> list[Receipt]:
        if self.away:
            raise LedgerUnavailableError("it is away")
        for message in messages:
            if self.size_max is not None and len(message.data) > self.size_max:
                raise EventRefusedError("it is too large")
        self.batches.append(len(messages))
        self.messages += messages
        if self.deaf:
            self.deaf -= 1
            raise PublishError("nobody acknowledged it")
        return [Receipt(number, duplicate=False) for number, _ in enumerate(messages, 1)]

    @asynccontextmanager
    async def connect(self) -> AsyncIterator["Log"]:
        if self.away:
            raise LedgerUnavailableError("it is away")
        yield self

    def events(self) -> list[Decoded]:
        """What was recorded, without repeats."""
        return recorded(self.messages).events


class Waits:
    """Waits as virtual time does: not at all, except for what comes round again and again, which waits to be let go."""

    def __init__(self, time: Time, endless: float) -> None:
        self.pauses: list[float] = []
        self._time = time
        self._endless = endless
        self.rounds = asyncio.Semaphore(0)

    async def __call__(self, seconds: float) -> None:
        if seconds == self._endless:
            await self.rounds.acquire()
            return
        self.pauses.append(seconds)
        self._time.go(seconds)
        await asyncio.sleep(0)
