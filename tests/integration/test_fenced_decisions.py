"""A decision is recorded behind all that its decider has recorded, or not at all; a leader alone is never refused."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from itertools import count

import pytest
from structlog.testing import capture_logs

from gpuledger.events.envelope import decode
from gpuledger.events.node import NodeRegistered
from gpuledger.events.position import Offset, number_of
from gpuledger.ledger.api import Expected, Outgoing, Receipt
from gpuledger.ledger.errors import PublishError
from gpuledger.ledger.jetstream import JetStreamLedger
from gpuledger.projection.errors import AnotherLeaderError
from gpuledger.projection.runner import Runner
from gpuledger.runtime.backoff import Backoff
from gpuledger.runtime.clock import system_clock
from support.deciders import AwayProjection
from support.events import event, outgoing
from support.ledger_double import LedgerDouble
from support.projections import QUICK, assert_true, execute, publish, reaches, running
from support.runners import Failing, decided
from support.waiting import eventually


@pytest.fixture(autouse=True)
def many_may_be_away(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("support.deciders.AWAY_MAX", 1_000)


async def register(ledger: JetStreamLedger, *numbers: int) -> int:
    """Register nodes; returns where the head is once each of them is away."""
    facts = [event(NodeRegistered(), f"n{one}", number=one)._replace(time=system_clock()) for one in numbers]
    return await publish(ledger, facts) + len(numbers)


async def follows(url: str, position: int) -> None:
    """Return when the rows are those of a position, and every decision has come back."""
    await reaches(url, "away", position)

    async def is_back() -> bool:
        return not execute(url, "SELECT * FROM gpuledger.outbox WHERE projection = 'away'")

    await eventually(is_back)


async def assert_away(ledger: JetStreamLedger, url: str, *numbers: int) -> None:
    """These nodes are away, each by one decision."""
    assert sorted(one.subject for one in await decided(ledger)) == sorted(f"n{one}" for one in numbers)
    await assert_true(ledger, url, [AwayProjection()])


async def leads(runner: Runner) -> None:
    """Return when it writes."""

    async def writes() -> bool:
        return runner.is_writing

    await eventually(writes)


@asynccontextmanager
async def leading(runner: Runner) -> AsyncIterator[None]:
    """Run it, from the moment when it leads; it must not stop."""
    async with running(runner) as tasks:
        await leads(runner)
        yield
        assert not any(task.done() for task in tasks)


class Outrun(LedgerDouble):
    """A ledger into which another leader records the same decisions, or `some`, just before ours arrive."""

    def __init__(self, ledger: JetStreamLedger, epoch: str, times: int, *, first: int = 2, some: int = 100) -> None:
        super().__init__(ledger)
        self._numbering = ((epoch, number) for number in count(first))
        self._some = some
        self.times = times

    async def publish_many(self, messages: Sequence[Outgoing], expected: Expected | None = None) -> list[Receipt]:
        if self.times and expected is not None:
            self.times -= 1
            same = zip(map(decode, (one.data for one in messages[: self._some])), self._numbering, strict=False)
            numbered = [one._replace(epoch=epoch, number=number) for one, (epoch, number) in same]
            await super().publish_many([outgoing(one)._replace(id=f"of another {one.id}") for one in numbered])
        return await super().publish_many(messages, expected)


@pytest.mark.parametrize("nodes", [1, 3])
async def test_of_two_leaders_that_decide_the_same_at_one_time_one_records_it(
    ledger: JetStreamLedger, url: str, nodes: int
) -> None:
    """What a leader without its lock had on its way arrives after its successor decided, and before that is sent."""
    async with leading(Runner(AwayProjection(), ledger, url, settings=QUICK)):
        await follows(url, await register(ledger, 9))
    (first,) = await decided(ledger)
    outrun = Outrun(ledger, first.epoch, times=1)
    async with leading(Runner(AwayProjection(), outrun, url, settings=QUICK)):
        await follows(url, await register(ledger, *range(1, nodes + 1)))
    assert not outrun.times
    await assert_away(ledger, url, 9, *range(1, nodes + 1))


async def test_a_leader_waits_longer_each_time_that_it_meets_another_one(ledger: JetStreamLedger, url: str) -> None:
    """What the other one has on its way is given time to arrive."""
    async with leading(Runner(AwayProjection(), ledger, url, settings=QUICK)):
        await follows(url, await register(ledger, 9))
    (first,) = await decided(ledger)
    outrun = Outrun(ledger, first.epoch, times=0)
    settings = replace(QUICK, beginnings=Backoff(first_s=0.001, max_s=1.0))
    with capture_logs() as logged:
        async with leading(Runner(AwayProjection(), outrun, url, settings=settings)):
            for node in (1, 2, 3):
                outrun.times = 1
                await follows(url, await register(ledger, node))
    pauses = [one["retry_s"] for one in logged if "another process" in str(one.get("reason"))]
    assert pauses == [0.001, 0.002, 0.004]
    await assert_away(ledger, url, 9, 1, 2, 3)


async def test_who_follows_a_leader_that_met_another_one_publishes_what_that_one_has_not(
    ledger: JetStreamLedger, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other one's epoch is a later one, so nothing counts any more that is published in ours."""
    async with leading(Runner(AwayProjection(), ledger, url, settings=QUICK)):
        head = await register(ledger, 9)
        await follows(url, head)
    outrun = Outrun(ledger, f"1/{head + 1}/other", times=1, first=1, some=1)
    monkeypatch.setattr("gpuledger.projection.runner.BEGINNINGS_MAX", 0)
    stopping = asyncio.create_task((runner := Runner(AwayProjection(), outrun, url, settings=QUICK)).run())
    await leads(runner)
    await register(ledger, 1, 2, 3)
    with pytest.raises(AnotherLeaderError):
        await stopping
    async with leading(Runner(AwayProjection(), ledger, url, settings=QUICK)):
        await follows(url, await register(ledger, 4))
    assert not outrun.times
    await assert_away(ledger, url, 9, 1, 2, 3, 4)


class Late(LedgerDouble):
    """A ledger whose head is read just before a message arrives that was sent long ago."""

    def __init__(self, ledger: JetStreamLedger, late: Sequence[Outgoing]) -> None:
        super().__init__(ledger)
        self.late = late

    async def head(self) -> Offset:
        head = await super().head()
        late, self.late = self.late, ()
        await super().publish_many(late)
        return head


async def test_what_a_leader_had_on_its_way_is_no_other_leaders(
    ledger: JetStreamLedger, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was sent by a leader that ended, and is recorded when the next one has found the head."""
    monkeypatch.setattr("gpuledger.projection.runner.BEGINNINGS_MAX", 0)
    failing = Failing(ledger)
    failing.fails = "before"
    head = await register(ledger, 1)
    with pytest.raises(PublishError):
        await Runner(AwayProjection(), failing, url, settings=QUICK).catch_up(head)
    ((subject, message_id, data),) = execute(url, "SELECT subject, message_id, data FROM gpuledger.outbox")
    late = Late(ledger, [Outgoing(subject, message_id, bytes(data))])
    with capture_logs() as logged:
        async with leading(Runner(AwayProjection(), late, url, settings=QUICK)):
            await follows(url, head)
            await follows(url, await register(ledger, 2))
    assert "did not acknowledge" in str(logged)
    await assert_away(ledger, url, 1, 2)


async def test_an_event_that_changes_nothing_keeps_no_leader_from_deciding(
    ledger: JetStreamLedger, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An earlier build publishes without any condition, so what it had on its way arrives behind its successor's."""
    monkeypatch.setattr("gpuledger.projection.runner.BEGINNINGS_MAX", 0)
    for node in (1, 2):
        async with leading(Runner(AwayProjection(), ledger, url, settings=QUICK)):
            await follows(url, await register(ledger, node))
            if node == 1:
                (first,) = await decided(ledger)
                continue
            await ledger.publish(outgoing(first._replace(id="late", number=2, subject="n9")))
            await follows(url, number_of(await ledger.head()))
            await follows(url, await register(ledger, 3))
    assert sorted(one.subject for one in await decided(ledger)) == ["n1", "n2", "n3", "n9"]
    await assert_true(ledger, url, [AwayProjection()])
