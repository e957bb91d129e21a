"""One reading of the log for several folds: each gets what it would get alone, and none holds the others."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import count

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bench.agents_traffic import recorded
from gpuledger.events.position import ORIGIN, Offset, is_same
from gpuledger.events.subjects import ALL
from gpuledger.ledger.api import MESSAGES_PER_BATCH_MAX, Message, Outgoing
from gpuledger.ledger.errors import LedgerUnavailableError
from gpuledger.ledger.identity import Anchor, anchor_of
from gpuledger.ledger.memory import MemoryLedger, MemoryReader
from gpuledger.projection.enforced import EnforcedRules
from gpuledger.projection.feed import GATHERED_MIN, Feed, FeedBounds, Place, _gathered
from gpuledger.projection.fold import Fold
from gpuledger.tools.queries.backend import all_projections
from support.events import rows_of

FOLDS = len(all_projections())
EVENTS = 60
SMALL = FeedBounds(messages=16, kept=4, patience_s=60.0)
BEGINNING = (ORIGIN, None, EnforcedRules())


class CountingLedger(MemoryLedger):
    """Counts how often it is read, and may fail once a position is reached."""

    readings = 0
    fails = False

    @asynccontextmanager
    async def read(
        self, after: Offset = ORIGIN, subject_filter: str = ALL, anchor: Anchor | None = None
    ) -> AsyncIterator[MemoryReader]:
        self.readings += 1
        if self.fails:
            raise LedgerUnavailableError("It is away.")
        async with super().read(after, subject_filter, anchor) as reader:
            yield reader


async def _ledger(repeats: list[int]) -> CountingLedger:
    """A log of several agents, in which the events at these places come again."""
    ledger, events = CountingLedger(), list(recorded(5, EVENTS))
    for number, one in enumerate(events):
        await ledger.publish(one)
        if number in repeats:
            await ledger.publish(one._replace(id=f"again-{number}"))
    return ledger


async def _take_all(place: Place, fold: Fold, limit: int, head: Offset) -> None:
    while not is_same(fold.sequence, head):
        batch = await place.next_batch(limit, 60.0)
        assert batch, "it has a place, and there is more"
        fold.apply_all_checked(batch)
        await asyncio.sleep(0)


@given(st.lists(st.integers(0, EVENTS - 1)), st.lists(st.integers(1, 40), min_size=FOLDS, max_size=FOLDS))
@settings(max_examples=20)
def test_every_fold_gets_what_it_would_get_alone(repeats: list[int], limits: list[int]) -> None:
    async def run() -> None:
        ledger = await _ledger(repeats)
        head, feed, folds = await ledger.head(), Feed(ledger, SMALL), [Fold(one, 1) for one in all_projections()]

        async def follow(fold: Fold, limit: int) -> None:
            with feed.place(*BEGINNING) as place:
                assert place is not None
                await _take_all(place, fold, limit, head)

        await asyncio.gather(*(follow(fold, limit) for fold, limit in zip(folds, limits, strict=True)))
        await feed.aclose()
        assert ledger.readings == 1
        for projection, fold in zip(all_projections(), folds, strict=True):
            alone = Fold(projection, 1)
            async for messages in ledger.history():
                alone.apply_all(messages)
            assert rows_of(fold) == rows_of(alone)
            assert (fold.seen.numbers, fold.events, fold.anchor) == (alone.seen.numbers, alone.events, alone.anchor)

    asyncio.run(run())


async def test_who_takes_nothing_is_left_behind_and_holds_nobody() -> None:
    ledger, clock = await _ledger([]), count(step=SMALL.patience_s)
    now = [0.0]
    feed, fold = Feed(ledger, SMALL, lambda: now[0]), Fold(all_projections()[0], 1)
    with feed.place(*BEGINNING) as idle, feed.place(*BEGINNING) as busy:
        assert idle is not None
        assert busy is not None
        while not is_same(fold.sequence, await ledger.head()):
            now[0] = next(clock) + 1.0
            batch = await busy.next_batch(8, 60.0)
            assert batch, "it has a place, and there is more"
            fold.apply_all_checked(batch)
            await asyncio.sleep(0)
        assert await idle.next_batch(8, 60.0) is None
    await feed.aclose()


async def test_few_large_messages_fill_the_buffer_and_do_not_stop_the_feed() -> None:
    ledger = await _ledger([])
    feed, fold = Feed(ledger, FeedBounds(size=1)), Fold(all_projections()[0], 1)
    with feed.place(*BEGINNING) as place:
        assert place is not None
        await _take_all(place, fold, 8, await ledger.head())
        await ledger.publish(_one_more())
        assert await place.next_batch(8, 5.0)
    await feed.aclose()


async def test_who_was_elsewhere_joins_where_the_buffer_is() -> None:
    ledger = await _ledger([])
    head = await ledger.head()
    feed, fold = Feed(ledger, SMALL), Fold(all_projections()[0], 1)
    with feed.place(*BEGINNING) as first:
        assert first is not None
        await _take_all(first, fold, 8, head)
        with feed.place(*BEGINNING) as too_old, feed.place(head, None, EnforcedRules()) as newest:
            assert too_old is None
            assert newest is not None
            await ledger.publish(_one_more())
            (found,) = await newest.next_batch(8, 60.0) or []
            assert is_same(found.message.sequence, await ledger.head())
    await feed.aclose()


async def test_who_is_a_little_ahead_waits_until_the_feed_is_there() -> None:
    ledger = await _ledger([])
    feed, ahead = Feed(ledger, SMALL), 10
    messages = [one async for batch in ledger.history() for one in batch]
    with feed.place(*BEGINNING) as first, feed.place(messages[ahead].sequence, None, EnforcedRules()) as second:
        assert first is not None
        assert second is not None
        waiting = asyncio.create_task(second.next_batch(1, 60.0))
        await _take_all(first, Fold(all_projections()[0], 1), 1, messages[ahead + 1].sequence)
        (found,) = await waiting or []
        assert is_same(found.message.sequence, messages[ahead + 1].sequence)
    await feed.aclose()


async def test_who_has_read_something_else_at_its_position_gets_nothing_behind_it() -> None:
    """A log that was restored meanwhile may be long enough and hold other events: its own reading finds that out."""
    ledger = await _ledger([])
    feed, messages = Feed(ledger, SMALL), [one async for batch in ledger.history() for one in batch]
    at = messages[10]
    same, other = anchor_of(at.sequence, at.subject, at.data), anchor_of(at.sequence, at.subject, messages[9].data)
    for anchor, gets_some in ((same, True), (other, False)):
        with feed.place(*BEGINNING) as first, feed.place(at.sequence, anchor, EnforcedRules()) as second:
            assert first is not None
            assert second is not None
            await _take_all(first, Fold(all_projections()[0], 1), 1, messages[11].sequence)
            assert bool(await second.next_batch(1, 60.0)) is gets_some
    await feed.aclose()


async def test_what_ends_the_reading_is_raised_to_everybody_and_it_begins_anew() -> None:
    ledger = await _ledger([])
    ledger.fails = True
    feed = Feed(ledger, SMALL)
    with feed.place(*BEGINNING) as one, feed.place(*BEGINNING) as other:
        assert one is not None
        assert other is not None
        for place in (one, other):
            with pytest.raises(LedgerUnavailableError, match="away"):
                await place.next_batch(8, 60.0)
    ledger.fails = False
    with feed.place(*BEGINNING) as again:
        assert again is not None
        assert await again.next_batch(8, 60.0)
    await feed.aclose()


def _one_more() -> Outgoing:
    return list(recorded(5, EVENTS + 1))[EVENTS]


class Pieces:
    """A reader in which messages arrive in pieces of these sizes; notes how long each was waited for."""

    def __init__(self, sizes: list[int]) -> None:
        self._sizes = list(sizes)
        self.waits: list[float | None] = []

    async def next_batch(self, limit: int = MESSAGES_PER_BATCH_MAX, timeout_s: float | None = None) -> list[Message]:
        self.waits.append(timeout_s)
        return [Message("ledger.x", b"{}", 1, 0)] * (self._sizes.pop(0) if self._sizes else 0)


@pytest.mark.parametrize(
    ("sizes", "taken", "asked"),
    [
        pytest.param([1, 500], 1, 1, id="what arrives by itself is handed on at once"),
        pytest.param([40, 3, 0, 50], 43, 3, id="a backlog is gathered until nothing more is there"),
        pytest.param([GATHERED_MIN - 1, 7, 50], GATHERED_MIN + 6, 2, id="and until there is enough"),
    ],
)
async def test_pieces_of_a_backlog_are_handed_on_together(sizes: list[int], taken: int, asked: int) -> None:
    reader = Pieces(sizes)
    assert len(await _gathered(reader)) == taken
    assert reader.waits == [None, 0.0, 0.0][:asked]
