"""Snapshots of folds for tests: a store in memory that dies on demand, a log of all types of events, comparisons."""

from collections.abc import AsyncIterator, Iterable
from datetime import UTC, datetime
from functools import cache
from typing import Any, NamedTuple

from gpuledger.events.position import Offset, events_up_to
from gpuledger.ledger.api import Message
from gpuledger.ledger.memory import MemoryLedger
from gpuledger.projection.definition import Projection
from gpuledger.projection.fold import Fold
from gpuledger.projection.fold_snapshots.reader import FoldSnapshots, LoadedFold
from gpuledger.projection.replay import memory_fold, skipped_positions
from gpuledger.runtime.objects import ObjectMissingError, StoredObject
from support.events import rows_of
from support.recordings import recordings


class KilledError(Exception):
    """The process that writes is killed."""


class MemoryObjects:
    """An object store in memory; after `puts_left` more puts whoever writes is killed. `gets` are the keys read."""

    url = "memory:"

    def __init__(self) -> None:
        self.objects: dict[str, bytes] = {}
        self.modified_at: dict[str, datetime] = {}
        self.puts_left: int | None = None
        self.gets: list[str] = []
        self.now = datetime(2026, 1, 1, tzinfo=UTC)

    async def put(self, key: str, data: bytes) -> None:
        if self.puts_left is not None:
            if self.puts_left == 0:
                raise KilledError
            self.puts_left -= 1
        self.objects[key] = data
        self.modified_at[key] = self.now

    async def get(self, key: str) -> bytes:
        self.gets.append(key)
        if key not in self.objects:
            raise ObjectMissingError(f"The object store {self.url} has no {key}.")
        return self.objects[key]

    async def exists(self, key: str) -> bool:
        return key in self.objects

    async def list(self, prefix: str = "") -> AsyncIterator[StoredObject]:
        for key, data in list(self.objects.items()):
            if not prefix or key.startswith(f"{prefix}/"):
                yield StoredObject(key, len(data), self.modified_at[key])

    async def delete(self, key: str) -> None:
        self.objects.pop(key, None)


class CountingLedger(MemoryLedger):
    """A log in memory that counts the messages which are read of its history, but for look-ups by subject."""

    def __init__(self, messages: Iterable[Message]) -> None:
        super().__init__()
        self._messages = list(messages)
        self.messages_read = 0

    async def history(
        self, after: Offset = 0, until: Offset | None = None, subject_filter: str = ">"
    ) -> AsyncIterator[list[Message]]:
        async for batch in super().history(after, until, subject_filter):
            if subject_filter == ">":
                self.messages_read += len(batch)
            yield batch


@cache
def recorded_messages() -> tuple[Message, ...]:
    """A log with events of every type."""
    return tuple(recordings()[-1].messages())


class Whole(NamedTuple):
    """Everything that a fold amounts to."""

    rows: dict[str, Any]
    seen: list[Any]
    rules: dict[str, Any]
    waiting: dict[str, Any]
    next_number: int
    changed: Any
    events: int


def whole_of(fold: Fold) -> Whole:
    """Everything that a fold amounts to."""
    seen = [(key, one.last, list(one.holes)) for key, one in fold.seen.numbers.items()]
    waiting, number = dict(fold.waiting._decisions), fold.numbering.next_number
    return Whole(rows_of(fold), seen, dict(fold.enforced.rules), waiting, number, fold.waiting.changed, fold.events)


async def from_start(projection: Projection, ledger: MemoryLedger, until: Offset) -> Whole:
    """The fold from the first event."""
    fold = await memory_fold(projection, ledger)
    await _fold_on(fold, ledger, until)
    return whole_of(fold)


async def from_snapshot(
    projection: Projection, ledger: MemoryLedger, snapshots: FoldSnapshots, until: Offset
) -> Whole | None:
    """The fold from the nearest snapshot, with all rows; None where there is no snapshot."""
    whole = [name for name, table in projection.new_state().tables().items() if table.spec.retires is not None]
    loaded = await snapshots.load(projection, until, await skipped_positions(ledger), whole=whole)
    if loaded is None:
        return None
    await fold_on_paged(loaded, ledger, until)
    return whole_of(loaded.fold)


async def fold_on_paged(loaded: LoadedFold, ledger: MemoryLedger, until: Offset) -> None:
    """Fold the rest, with the retired rows that it touches."""
    async for messages in ledger.history(loaded.fold.sequence, until):
        batch = loaded.fold.check_all(messages)
        await loaded.take(batch)


async def _fold_on(fold: Fold, ledger: MemoryLedger, until: Offset) -> None:
    if events_up_to(until):
        async for messages in ledger.history(fold.sequence, until):
            fold.apply_all(messages)
