"""What waits for the ledger: its bounds, the acknowledgement, and what is recognized; the ledger is one in memory."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from gpuledger.edge.gateway.bounds import GatewayBounds
from gpuledger.edge.gateway.checked_pods import CheckedPods
from gpuledger.edge.gateway.publisher import NodeReport, ReportPublisher
from gpuledger.edge.gateway.recall import Recall
from gpuledger.edge.gateway.recorder import GatewayRecorder, ReportOf
from gpuledger.events.envelope import Decoded, parse, with_payload
from gpuledger.events.health import NodeHealthReported
from gpuledger.healthreports.coalescing import REPEAT_WINDOW_S, ReportResult
from gpuledger.healthreports.errors import NotDurableError, SpoolFullError
from gpuledger.healthreports.translate import HealthReport
from gpuledger.ledger.api import Expected, Outgoing, Receipt
from gpuledger.ledger.errors import EventRefusedError, LedgerUnavailableError
from gpuledger.ledger.memory import MemoryLedger
from gpuledger.runtime.backoff import Backoff
from gpuledger.runtime.tasks import end

NOW = datetime.now(UTC)
BOUNDS = GatewayBounds(
    answer_timeout_s=0.02, drain_timeout_s=0.02, events_waiting_max=4, nodes_max=2, backoff=Backoff(first_s=0.0)
)
RECORDED, COALESCED, REPEATED = ReportResult


class Ledger(MemoryLedger):
    """A ledger that can be away, or refuse what has a message."""

    def __init__(self) -> None:
        super().__init__()
        self.is_away = False
        self.refused = ""

    async def publish_many(self, messages: Sequence[Outgoing], expected: Expected | None = None) -> list[Receipt]:
        await asyncio.sleep(0)
        if self.is_away:
            raise LedgerUnavailableError("NATS is away.")
        if self.refused and any(self.refused.encode() in one.data for one in messages):
            raise EventRefusedError("It is too large.")
        return await super().publish_many(messages, expected)

    async def events(self) -> list[Decoded]:
        return [with_payload(parse(one.data)) async for batch in self.history() for one in batch]


class Place:
    """A recorder and its ledger; `later_s` is how much later it is by the monotonic clock."""

    def __init__(self, ledger: Ledger, bounds: GatewayBounds) -> None:
        self.ledger = ledger
        self.later_s = 0.0
        self.publisher = ReportPublisher(ledger, bounds, lambda: 0.5)
        self.recorder = GatewayRecorder(self.publisher, bounds, clock=lambda: NOW, monotonic=lambda: self.later_s)
        self.recall = Recall(ledger, self.recorder, CheckedPods(), bounds, lambda: NOW)

    async def counts(self) -> list[tuple[str, str, int]]:
        found = []
        for event in await self.ledger.events():
            assert isinstance(event.data, NodeHealthReported)
            found.append((event.subject, event.data.message, event.data.count))
        return found


@asynccontextmanager
async def a_place(ledger: Ledger | None = None, bounds: GatewayBounds = BOUNDS) -> AsyncIterator[Place]:
    place = Place(ledger or Ledger(), bounds)
    running = asyncio.create_task(place.publisher.run())
    try:
        yield place
    finally:
        place.recorder.flush()
        await end([running])
        await place.publisher.drain()


def report(message: str = "m", second: int | None = 0, node: str = "n1", **fields: Any) -> ReportOf:
    at = None if second is None else NOW - timedelta(seconds=60 - second)
    given: dict[str, Any] = {"monitor": "a", "check": "c", "healthy": False, "fatal": True, "message": message} | fields
    return ReportOf(node, HealthReport(NodeHealthReported.model_validate(given | {"first_at": at or NOW}), at))


async def test_the_ledger_has_what_is_acknowledged() -> None:
    async with a_place() as place:
        assert await place.recorder.take([report(), report(node="n2"), report(second=1)]) == [
            RECORDED, RECORDED, COALESCED,
        ]  # fmt: skip
        assert await place.counts() == [("n1", "m", 1), ("n2", "m", 1)]
        place.later_s = REPEAT_WINDOW_S + 1
        place.recorder.close_due()
        await place.recorder.take([report("x")])
        assert ("n1", "m", 1) in (await place.counts())[2:]


async def test_a_repeat_is_not_acknowledged_before_the_report_that_it_repeats() -> None:
    async with a_place() as place:
        place.ledger.is_away = True
        for _ in range(2):
            with pytest.raises(NotDurableError, match=r"did not take the report within 0.02 s \(NATS is away.\)"):
                await place.recorder.take([report()])
        assert place.publisher.trouble
        place.ledger.is_away = False
        assert await place.recorder.take([report()]) == [REPEATED]
        assert await place.counts() == [("n1", "m", 1)]
        assert not place.publisher.trouble


async def test_what_waits_is_bounded_and_what_is_refused_has_no_effect() -> None:
    async with a_place() as place:
        place.ledger.is_away = True
        with pytest.raises(NotDurableError):
            await place.recorder.take([report(str(number), check=str(number)) for number in range(4)])
        with pytest.raises(SpoolFullError):
            await place.recorder.take([report("5", check="5")])
        place.ledger.is_away = False
        assert await place.recorder.take([report("0", check="0")]) == [REPEATED]
        assert await place.recorder.take([report("5", check="5")]) == [RECORDED]
    numbers = [event.number for event in await place.ledger.events()]
    assert numbers == [1, 2, 3, 4, 5]


async def test_an_event_that_the_ledger_refuses_is_not_acknowledged_and_holds_nobody_up() -> None:
    async with a_place() as place:
        place.ledger.refused = "large"
        with pytest.raises(NotDurableError, match="refuses the report"):
            await place.recorder.take([report("a"), report("large", check="d"), report("b", node="n2")])
        assert await place.recorder.take([report("b", node="n2")]) == [REPEATED]
        with pytest.raises(NotDurableError, match="refuses the report"):
            await place.recorder.take([report("large", check="d")])
    assert [message for _, message, _ in await place.counts()] == ["a", "b"]


async def test_the_node_that_reported_longest_ago_makes_room_and_loses_no_count() -> None:
    async with a_place() as place:
        for node in ("n1", "n2", "n3"):
            await place.recorder.take([report(node=node), report(node=node, second=1)])
        await place.recorder.take([report("x", node="n3")])
        assert ("n1", "m", 1) in (await place.counts())[1:]
    assert sum(count for node, message, count in await place.counts() if message == "m") == 6


async def test_a_new_process_recognizes_what_was_recorded_lately() -> None:
    async with a_place() as first:
        await first.recorder.take([report(), report("b", second=3, check="d")])
    async with a_place(first.ledger) as second:
        await second.recall.catch_up()
        assert await second.recorder.take([report(), report("b", second=3, check="d")]) == [REPEATED, REPEATED]
        assert await second.recorder.take([report(second=5)]) == [RECORDED]
    assert len(await first.ledger.events()) == 3


async def test_what_another_replica_contradicts_ends_the_counting() -> None:
    ledger = Ledger()
    async with a_place(ledger) as one, a_place(ledger) as other:
        await one.recorder.take([report(), report(second=1)])
        await other.recorder.take([report("well", second=2, healthy=True, fatal=False)])
        await one.recall.catch_up()
        assert await one.recorder.take([report(second=3)]) == [RECORDED]
        assert [message for _, message, _ in await one.counts()] == ["m", "well", "m", "m"]


async def test_two_that_take_one_report_at_once_record_one_event() -> None:
    ledger = Ledger()
    async with a_place(ledger) as one, a_place(ledger) as other:
        await asyncio.gather(one.recorder.take([report()]), other.recorder.take([report()]))
    first, second = await ledger.events()
    assert (first.id, first.time, first.data) == (second.id, second.time, second.data)
    assert first.epoch != second.epoch


async def test_what_is_news_after_a_contradiction_of_the_same_second_is_an_event_of_its_own() -> None:
    ledger = Ledger()
    well: dict[str, Any] = {"healthy": True, "fatal": False}
    async with a_place(ledger) as one, a_place(ledger) as other:
        assert await one.recorder.take([report(), report("well", **well), report()]) == [RECORDED] * 3
        await other.recall.catch_up()
        assert await other.recorder.take([report()]) == [REPEATED]
        assert await other.recorder.take([report("well", second=1, **well), report(second=1)]) == [RECORDED] * 2
        assert await other.recorder.take([report("well", second=1, **well), report(second=1)]) == [RECORDED] * 2
    ids = [event.id for event in await ledger.events()]
    assert len(ids) == len(set(ids)) == 7


async def test_the_ids_that_are_kept_are_bounded() -> None:
    async with a_place(bounds=replace(BOUNDS, ids_max=2)) as place:
        for second in range(4):
            place.publisher.note(NodeReport("n1", report().report.data, NOW + timedelta(seconds=second)), str(second))
        assert len(place.publisher._ids) == 2
