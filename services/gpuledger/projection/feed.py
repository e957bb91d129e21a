"""The log as one process reads it: read once and checked once, for all the folds that are at about the same place.

What was read stands in a buffer, from which each fold takes batches at its own pace, with its own checkpoint and
commit. A fold that is elsewhere in the log, because it has just begun or was stopped, reads for itself until it gets
here. The feed reads on only when somebody waits for more. It waits for the slowest fold while the buffer is full, so
that a backlog is checked once and not once a fold; but not for one that takes nothing for long.
"""

import asyncio
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Final, NamedTuple

from gpuledger.events.position import Offset, is_at_or_after, is_same, lag
from gpuledger.ledger.api import MESSAGES_PER_BATCH_MAX, Ledger, Message, Reader
from gpuledger.ledger.identity import Anchor, anchor_of
from gpuledger.projection.checker import Checked, Checker
from gpuledger.projection.enforced import EnforcedRules
from gpuledger.runtime.tasks import end


class FeedBounds(NamedTuple):
    """How much is read ahead of the slowest fold, but for the batch that exceeds it, and how long it is waited for.

    `kept` messages stay that everybody has taken, where there is room, so that a fold that reads for itself can join.
    Within `patience_s` a fold has to take something while others wait for room in the buffer; else it reads for itself.
    """

    messages: int = 16_384
    size: int = 32 * 1024 * 1024
    kept: int = 2_048
    patience_s: float = 10.0


ASSEMBLY_S: Final = 2.0
"""How long whoever is far behind the end of the log waits for the other folds that begin: each would read it alone."""


PIECE_MIN: Final = 32
"""From so many messages at once on they are taken for pieces of a backlog."""

GATHERED_MIN: Final = 4_096
"""So many messages of a backlog are handed on at once, because every fold commits what it takes at once."""


class Place:
    """Where one fold stands in the feed. `is_left` once the feed waits for it no more, or has ended.

    `anchor` is what the fold has read last, until the feed has been found to have read the same there.
    """

    def __init__(self, feed: "Feed", index: int, anchor: Anchor | None, now_s: float) -> None:
        self.index = index
        self.anchor = anchor
        self.taken_at_s = now_s
        self.is_left = False
        self.failure: BaseException | None = None
        self._feed = feed

    async def next_batch(self, limit: int, timeout_s: float) -> list[Checked] | None:
        """What follows, at most so much; nothing if nothing came in time, None where the fold has to read for itself.

        Raises:
            LogChangedError: the log is not the one that was opened, or lacks what was read.
            LedgerUnavailableError: it cannot be read.
        """
        batch = self._feed.take(self, limit)
        if batch or self.is_left:
            return batch or None
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                await self._feed.wait()
        return self._feed.take(self, limit)


class Feed:
    """Reads one ledger for the folds of a process; it reads only while somebody has a place."""

    def __init__(
        self,
        ledger: Ledger,
        bounds: FeedBounds | None = None,
        now: Callable[[], float] = time.monotonic,
        *,
        folds: int = 1,
    ) -> None:
        """`now` gives seconds of a steady clock. `folds` is how many are expected to read here from the start on."""
        self._ledger = ledger
        self._bounds = bounds or FeedBounds()
        self._now = now
        self._places: set[Place] = set()
        self._buffer: list[Checked] = []
        self._bytes = 0
        self._base = 0
        self._first: Offset | None = None
        self._first_anchor: Anchor | None = None
        self._checker = Checker()
        self._absent = folds
        self._assembled = asyncio.Event()
        self._arrived = asyncio.Event()
        self._taken = asyncio.Event()
        self._reading: asyncio.Task[None] | None = None

    async def assemble(self, behind: int) -> None:
        """Say that a fold begins that is so many events behind; if there are many, wait for the others that begin."""
        self._absent -= 1
        if self._absent <= 0:
            self._assembled.set()
        if behind > self._bounds.kept:
            with suppress(TimeoutError):
                async with asyncio.timeout(ASSEMBLY_S):
                    await self._assembled.wait()
            self._assembled.set()

    @contextmanager
    def place(self, position: Offset, anchor: Anchor | None, enforced: EnforcedRules) -> Iterator[Place | None]:
        """A place behind a position for the length of the block; None where that is too far from what is read here.

        Whoever is the first has the feed begin there, by the rules that are enforced there.
        """
        if not self._places:
            self._begin(position, anchor, enforced)
        index = self._index_behind(position)
        if index is None:
            yield None
            return
        place = Place(self, index, anchor, self._now())
        self._places.add(place)
        try:
            yield place
        finally:
            self._leave(place)

    def reaches(self, position: Offset) -> bool:
        """Whether there is a place behind a position."""
        return not self._places or self._index_behind(position) is not None

    def take(self, place: Place, limit: int) -> list[Checked]:
        """What stands behind a place, at most so much; raises what ended the feed."""
        if place.failure is not None:
            raise place.failure
        if place.is_left:
            return []
        place.taken_at_s = self._now()
        start = place.index - self._base
        batch = self._buffer[start : start + limit] if start < len(self._buffer) else []
        if batch and place.anchor is not None:
            if place.anchor != self._anchor_before(start):
                self._leave(place)  # a log was restored meanwhile; its own reading finds out
                return []
            place.anchor = None
        place.index += len(batch)
        self._taken.set()
        return batch

    async def wait(self) -> None:
        """Return when something was read, or the feed has ended."""
        await self._arrived.wait()

    async def aclose(self) -> None:
        """End the reading."""
        reading, self._reading = self._reading, None
        if reading is not None:
            await end([reading])

    def _begin(self, position: Offset, anchor: Anchor | None, enforced: EnforcedRules) -> None:
        if self._reading is not None:
            self._reading.cancel()
        self._buffer, self._bytes, self._first, self._first_anchor = [], 0, position, anchor
        self._checker = Checker(enforced.copy())
        self._arrived, self._taken = asyncio.Event(), asyncio.Event()
        self._reading = asyncio.create_task(self._read(position, anchor))

    def _index_behind(self, position: Offset) -> int | None:
        """The index of the message behind a position, which may not be read yet."""
        first = self._first
        if first is None or not is_at_or_after(position, first):
            return None
        last = self._buffer[-1].message.sequence if self._buffer else first
        if is_at_or_after(position, last):
            ahead = lag(last, position)
            return self._base + len(self._buffer) + ahead if ahead <= self._bounds.messages else None
        if is_same(position, first):
            return self._base
        found = (at for at, one in enumerate(self._buffer) if is_same(one.message.sequence, position))
        at = next(found, None)
        return None if at is None else self._base + at + 1

    def _anchor_before(self, at: int) -> Anchor | None:
        """The anchor at what was read before the message that stands there in the buffer."""
        if at == 0:
            return self._first_anchor
        message = self._buffer[at - 1].message
        return anchor_of(message.sequence, message.subject, message.data)

    def _leave(self, place: Place) -> None:
        self._places.discard(place)
        place.is_left = True
        self._taken.set()
        if not self._places and self._reading is not None:
            self._reading.cancel()
            self._reading = None

    async def _read(self, position: Offset, anchor: Anchor | None) -> None:
        try:
            async with self._ledger.read(position, anchor=anchor) as reader:
                while True:
                    await self._until_needed()
                    messages = await _gathered(reader)
                    self._bytes += sum(len(message.data) for message in messages)
                    self._buffer += map(self._checker.check, messages)
                    self._report()
                    await asyncio.sleep(0)
        except Exception as error:  # noqa: BLE001 - whatever it is, it is raised to everybody who reads here
            self._fail(error)

    def _report(self) -> None:
        arrived, self._arrived = self._arrived, asyncio.Event()
        arrived.set()

    def _fail(self, error: Exception) -> None:
        if asyncio.current_task() is not self._reading:
            return
        for place in self._places:
            place.failure = error
        self._places, self._reading, self._first = set(), None, None
        self._report()

    async def _until_needed(self) -> None:
        """Return when somebody waits for more and there is room."""
        while not self._is_needed():
            self._taken.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout(self._bounds.patience_s if self._is_full else None):
                    await self._taken.wait()

    def _is_needed(self) -> bool:
        self._make_room()
        end_index = self._base + len(self._buffer)
        return not self._is_full and any(place.index >= end_index for place in self._places)

    @property
    def _is_full(self) -> bool:
        return len(self._buffer) >= self._bounds.messages or self._bytes >= self._bounds.size

    def _make_room(self) -> None:
        """Drop what everybody has taken, and the places of those who take nothing while others wait."""
        if self._is_full:
            self._leave_behind(self._now() - self._bounds.patience_s)
        taken = min((place.index for place in self._places), default=self._base) - self._base
        kept = 0 if self._is_full else self._bounds.kept  # few large messages may fill it
        dropped = min(taken, len(self._buffer)) - kept
        if dropped > kept:
            self._first, self._first_anchor = self._buffer[dropped - 1].message.sequence, self._anchor_before(dropped)
            self._bytes -= sum(len(one.message.data) for one in self._buffer[:dropped])
            del self._buffer[:dropped]
            self._base += dropped

    def _leave_behind(self, since_s: float) -> None:
        """Wait no more for those who have taken nothing since then, and could have."""
        end_index = self._base + len(self._buffer)
        for place in [one for one in self._places if one.taken_at_s < since_s and one.index < end_index]:
            place.is_left = True
            self._places.discard(place)


async def _gathered(reader: Reader) -> list[Message]:
    """What has arrived; of a backlog, which arrives in small pieces, many of them."""
    messages = await reader.next_batch(MESSAGES_PER_BATCH_MAX)
    while PIECE_MIN <= len(messages) < GATHERED_MIN:
        more = await reader.next_batch(MESSAGES_PER_BATCH_MAX, 0.0)
        if not more:
            break
        messages += more
    return messages
