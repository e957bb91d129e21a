"""What a watcher records in a ledger that fails on demand and that others write to: all of it, and nothing twice."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta

import pytest

from gpuledger.edge.watchers.decide import NewFact
from gpuledger.edge.watchers.journal import CLOCK_TRIES, Journal
from gpuledger.edge.watchers.metrics import refused_objects
from gpuledger.events.envelope import Event, decode, encode, nats_subject_of
from gpuledger.events.node import NodeGone, NodeObserved
from gpuledger.events.position import ORIGIN, Offset
from gpuledger.events.subjects import ALL
from gpuledger.ledger.api import Expected, Outgoing, Receipt
from gpuledger.ledger.errors import EventRefusedError, LedgerUnavailableError, PublishError
from gpuledger.ledger.identity import Anchor
from gpuledger.ledger.memory import MemoryLedger, MemoryReader
from support.events import START, hour
from support.ledgers import everything
from support.one_watcher import NODES, ON, comes, gpu_node, recorded_lines, requested, watching
from support.projections import stop
from support.scripted_api import event, listing, stream
from support.waiting import eventually

SOURCE = NODES.source

Before = Callable[["TroubledLedger", Sequence[Outgoing]], Awaitable[None]]


class TroubledLedger(MemoryLedger):
    """Does something else before it publishes; once for each thing to do."""

    def __init__(self, *troubles: Before) -> None:
        super().__init__()
        self._troubles = list(troubles)

    async def publish_many(self, messages: Sequence[Outgoing], expected: Expected | None = None) -> list[Receipt]:
        if self._troubles:
            await self._troubles.pop(0)(self, messages)
        return await super().publish_many(messages, expected)


async def refused(_ledger: TroubledLedger, _messages: Sequence[Outgoing]) -> None:
    raise PublishError("no")


async def half_recorded(ledger: TroubledLedger, messages: Sequence[Outgoing]) -> None:
    await ledger.publish(messages[0])
    raise PublishError("no")


async def unacknowledged(ledger: TroubledLedger, messages: Sequence[Outgoing]) -> None:
    for message in messages:
        await ledger.publish(message)
    raise PublishError("no")


async def first_left_out(ledger: TroubledLedger, messages: Sequence[Outgoing]) -> None:
    await ledger.publish(messages[1])
    raise PublishError("no")


@pytest.mark.parametrize("trouble", [refused, half_recorded, unacknowledged, first_left_out])
async def test_what_was_not_acknowledged_is_recorded_once(trouble: Before) -> None:
    ledger = TroubledLedger(trouble)
    whole = listing(gpu_node("w1"), gpu_node("w2"), version="5")
    async with watching(ledger, whole, whole, ON) as (watch, api):
        await requested(api, 3)
    assert sorted(await recorded_lines(ledger)) == ["1 w1 a", "2 w2 a"]
    assert watch.pauses_s == [1.0]


async def test_requests_to_a_ledger_that_stays_away_become_rarer() -> None:
    ledger = TroubledLedger(*[refused] * 5)
    whole = listing(gpu_node("w1"), version="5")
    async with watching(ledger, *[whole] * 6, ON) as (watch, _):
        await comes(ledger, "1 w1 a")
    assert watch.pauses_s == [1.0, 2.0, 4.0, 4.0, 4.0]


class SmallLedger(MemoryLedger):
    """Takes no message larger than `size_max`, and counts the attempts to record one."""

    def __init__(self, size_max: int) -> None:
        super().__init__()
        self.size_max = size_max
        self.refused = 0

    @property
    def message_bytes_max(self) -> int:
        return self.size_max

    async def publish_many(self, messages: Sequence[Outgoing], expected: Expected | None = None) -> list[Receipt]:
        if any(len(message.data) > self.size_max for message in messages):
            self.refused += len(messages) == 1
            raise EventRefusedError("it is too large")
        return await super().publish_many(messages, expected)


SIZE_MAX, LARGE = 500, "x" * 250


async def test_an_object_that_fits_into_no_event_stops_nobody_and_is_tried_once_as_it_is() -> None:
    ledger = SmallLedger(SIZE_MAX)
    whole = listing(*(gpu_node(f"w{index}", LARGE if index == 2 else "a") for index in range(5)), version="5")
    again = event("MODIFIED", gpu_node("w2", LARGE, version="6"))
    other = event("MODIFIED", gpu_node("w3", "b", version="7"))
    async with watching(ledger, whole, stream(again, other, silent=True), audit_interval_s=0.01) as (watch, _):
        await comes(ledger, "1 w0 a", "2 w1 a", "3 w3 a", "4 w4 a", "5 w3 b")
        assert (refused_objects(), ledger.refused) == ({NODES.name: 1}, 1)
        assert not watch.pauses_s
    assert not refused_objects(), "a standby refuses nothing"


async def test_a_refused_object_is_recorded_once_it_fits_and_forgotten_once_it_is_gone() -> None:
    ledger = SmallLedger(SIZE_MAX)
    whole = listing(*(gpu_node(f"w{index}", LARGE) for index in (1, 2, 3)), version="5")
    smaller = event("MODIFIED", gpu_node("w1", "b", version="6"))
    deleted = event("DELETED", gpu_node("w2", LARGE, version="7"))
    async with watching(ledger, whole, stream(smaller, deleted, silent=True), audit_interval_s=0.01):
        await comes(ledger, "1 w1 b")
        await eventually(only_one_is_refused)
        ledger.size_max = 2 * SIZE_MAX
        await comes(ledger, "1 w1 b", f"2 w3 {LARGE}")
        await eventually(none_is_refused)


async def only_one_is_refused() -> bool:
    return refused_objects() == {NODES.name: 1}


async def none_is_refused() -> bool:
    return not refused_objects()


async def by_another(ledger: MemoryLedger, data: NodeObserved | NodeGone, number: int, at: float = 0) -> None:
    """What an instance that lost its turn gets in late."""
    one = Event(f"late-{number}", SOURCE, data.TYPE, "w1", hour(at), data, "e", number)
    await ledger.publish(Outgoing(nats_subject_of(one), one.id, encode(one)))


async def test_a_number_that_somebody_else_used_meanwhile_loses_no_fact() -> None:
    async def collides(ledger: TroubledLedger, _messages: Sequence[Outgoing]) -> None:
        await by_another(ledger, NodeObserved(uid="u", labels={"nvidia.com/gpu.product": "z"}), 1, at=-1)

    ledger = TroubledLedger(collides)
    async with watching(ledger, listing(gpu_node("w1"), version="5"), ON):
        await comes(ledger, "1 w1 z", "1 w1 a", "2 w1 a")


async def test_a_late_record_of_another_instance_is_corrected() -> None:
    ledger = MemoryLedger()
    async with watching(ledger, listing(gpu_node("w1"), version="5"), ON, audit_interval_s=0.01):
        await comes(ledger, "1 w1 a")
        await by_another(ledger, NodeGone(uid="u"), 2, at=1)
        await comes(ledger, "1 w1 a", "2 w1 gone", "3 w1 a")
        await by_another(ledger, NodeGone(uid="u"), 4, at=-1)
        await by_another(ledger, NodeObserved(uid="u", labels={"nvidia.com/gpu.product": "z"}), 5, at=2)
        await comes(ledger, "1 w1 a", "2 w1 gone", "3 w1 a", "4 w1 gone", "5 w1 z", "6 w1 a")


async def test_a_book_that_was_left_while_reading_knows_everything_afterwards() -> None:
    ledger = MemoryLedger()
    first = Journal(ledger, NODES, lambda: "e")
    facts = [NewFact(f"w{index}", START, NodeObserved(uid="u")) for index in range(9_000)]
    await first.record(facts)
    journal = Journal(ledger, NODES, lambda: "other")

    async def read() -> None:
        await journal.catch_up()

    for turns in range(3):
        reading = asyncio.create_task(read())
        for _ in range(turns):
            await asyncio.sleep(0)
        await stop(reading)
    await journal.catch_up()
    assert journal.recorded == first.recorded
    await journal.record([NewFact("w0", START, NodeGone(uid="u"))])
    assert decode((await everything(ledger))[-1].data).number == 9_001


class SlowToShow(MemoryLedger):
    """Acknowledges events that it does not show yet, and never answers where its end is."""

    shows = True

    @asynccontextmanager
    async def read(
        self, after: Offset = ORIGIN, subject_filter: str = ALL, anchor: Anchor | None = None
    ) -> AsyncIterator[MemoryReader]:
        async with super().read(after, subject_filter if self.shows else "nothing", anchor) as reader:
            yield reader

    async def last_sequence(self, subject_filter: str) -> Offset:
        raise AssertionError(f"The end of {subject_filter} is queried, which takes longer the more events there are.")


async def test_what_was_recorded_is_read_back_without_a_search_for_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gpuledger.edge.watchers.journal.READ_BACK_TIMEOUT_S", 0.01)
    ledger = SlowToShow()
    journal = Journal(ledger, NODES, lambda: "e")
    assert await journal.record([NewFact("w1", START, NodeObserved(uid="u"))]) == {"w1"}
    ledger.shows = False
    with pytest.raises(LedgerUnavailableError, match=r"position 2 .* only up to 1\."):
        await journal.record([NewFact("w1", hour(1), NodeGone(uid="u"))])
    ledger.shows = True
    assert await journal.record([NewFact("w1", hour(1), NodeGone(uid="u"))]) == {"w1"}
    assert await ledger.head() == 2


async def test_what_a_wrong_clock_dated_is_recorded_again_once_the_clock_is_right() -> None:
    """Folds reject it, also under another leader; and it holds back no later fact."""
    ledger = MemoryLedger(clock=lambda: int(START.timestamp()) * 10**9)
    whole = listing(gpu_node("w1"), version="5")
    async with watching(ledger, whole, whole, ON) as (watch, _):

        def set_right() -> None:
            watch.now = START + timedelta(seconds=1)

        watch.now, watch.on_pause = START + timedelta(days=400), set_right
        await comes(ledger, "1 w1 a", "2 w1 a")
    async with watching(ledger, listing(gpu_node("w1", "b"), version="6"), ON, epoch="never") as (watch, _):
        watch.now = START + timedelta(seconds=2)
        await comes(ledger, "1 w1 a", "2 w1 a", "3 w1 b")
    times = [decode(message.data).time - START for message in await everything(ledger)]
    assert times == [timedelta(days=400), timedelta(seconds=1), timedelta(seconds=2)]


async def test_a_ledger_whose_clock_was_behind_gets_everything_once_it_is_right() -> None:
    """The watchers' clock was right all the time, so no fact is ever earlier than the rejected one."""
    recorded_at = START
    ledger = MemoryLedger(clock=lambda: int(recorded_at.timestamp()) * 10**9)
    whole = listing(gpu_node("w1"), gpu_node("w2"), version="5")
    async with watching(ledger, *[whole] * (CLOCK_TRIES + 1), ON) as (watch, _):

        def set_right() -> None:
            nonlocal recorded_at
            recorded_at = watch.now

        watch.now, watch.on_pause = START + timedelta(days=400), set_right
        await comes(ledger, "1 w1 a", "2 w2 a", "3 w1 a", "4 w2 a")
