"""What a runner decides on real servers: published once, with the same ids after a crash, and taken back."""

from datetime import timedelta

import pytest

from gpuledger.events.envelope import Decoded
from gpuledger.events.node import NodeDecommissioned, NodeRegistered
from gpuledger.events.position import Offset
from gpuledger.events.slot import SlotDeclared
from gpuledger.ledger.api import Outgoing
from gpuledger.ledger.errors import PublishError
from gpuledger.ledger.jetstream import JetStreamLedger
from gpuledger.projection import writer
from gpuledger.projection.checkpoint import Checkpoint
from gpuledger.projection.runner import Runner
from gpuledger.projection.store import ProjectionStore
from gpuledger.runtime.clock import system_clock
from support.deciders import AWAY_AT_MOST, AWAY_MAX, AwayProjection
from support.events import event
from support.projections import QUICK, assert_true, checkpoint, execute, publish, reaches, running, table
from support.runners import Failing, Moving, decided


def registered(number: int) -> Decoded:
    return event(NodeRegistered(), f"n{number}", number=number)


async def test_decisions_are_published_and_taken_back(ledger: JetStreamLedger, url: str) -> None:
    async with running(Runner(AwayProjection(), ledger, url, settings=QUICK)):
        head = await publish(ledger, [registered(number) for number in range(1, 6)])
        await reaches(url, "away", head + AWAY_MAX)
    assert [(one.subject, one.number) for one in await decided(ledger)] == [("n1", 1), ("n2", 2)]
    assert len(table(url, "away")) == 5
    assert not execute(url, "SELECT * FROM gpuledger.outbox")
    await assert_true(ledger, url, [AwayProjection()])


async def test_the_outbox_is_asked_for_what_is_ready_only_behind_a_decision(
    ledger: JetStreamLedger, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked, ready = list[Offset](), ProjectionStore.ready

    async def counting(store: ProjectionStore, ours: Checkpoint) -> dict[str, Outgoing]:
        asked.append(ours.position)
        return await ready(store, ours)

    monkeypatch.setattr(ProjectionStore, "ready", counting)
    async with running(Runner(AwayProjection(), ledger, url, settings=QUICK)):
        head = await publish(ledger, [registered(1), registered(2)]) + AWAY_MAX
        await reaches(url, "away", head)
        before = len(asked)
        for number in range(3, 6):  # nobody else may be away
            head = await publish(ledger, [registered(number)])
            await reaches(url, "away", head)
        assert len(asked) == before
        back = event(SlotDeclared(node="n1"), "s1", number=6)
        await reaches(url, "away", await publish(ledger, [back]) + 1)
        assert len(asked) > before
    assert [one.subject for one in await decided(ledger)] == ["n1", "n2", "n3"]


@pytest.mark.parametrize(("fails", "attempts"), [("before", 2), ("behind", 1)])
async def test_a_crash_before_publishing_was_noted_publishes_only_what_is_not_there(
    ledger: JetStreamLedger, url: str, fails: str, attempts: int
) -> None:
    failing = Failing(ledger)
    failing.fails = fails
    head = await publish(ledger, [registered(number) for number in range(1, 6)])
    with pytest.raises(PublishError):
        await Runner(AwayProjection(), failing, url, settings=QUICK).catch_up(head)
    found = await checkpoint(url, "away")
    assert found is not None
    assert found.position == head
    failing.fails = None
    async with running(Runner(AwayProjection(), failing, url, settings=QUICK)):
        await reaches(url, "away", head + AWAY_MAX)
    assert failing.tried == [failing.tried[0]] * attempts
    assert [one.subject for one in await decided(ledger)] == ["n1", "n2"]
    assert [row[1] is None for row in table(url, "away", "node, since")].count(False) == AWAY_MAX
    await assert_true(ledger, url, [AwayProjection()])


async def test_who_publishes_an_earlier_leaders_decisions_decides_in_a_later_epoch(
    ledger: JetStreamLedger, url: str
) -> None:
    """Both found the same head, because the earlier one could publish nothing; it would close the later one's epoch."""
    failing = Failing(ledger)
    failing.fails = "before"
    head = await publish(ledger, [registered(number) for number in range(1, 6)])
    with pytest.raises(PublishError):
        await Runner(AwayProjection(), failing, url, settings=QUICK).catch_up(head)
    async with running(Runner(AwayProjection(), ledger, url, settings=QUICK)) as (leader,):
        await reaches(url, "away", head + AWAY_MAX)
        head = await publish(ledger, [event(SlotDeclared(node="n1"), "s", number=6)])
        await reaches(url, "away", head + 1)
        assert not leader.done()
    found = await decided(ledger)
    assert [(one.subject, one.number) for one in found] == [("n1", 1), ("n2", 2), ("n3", 1)]
    assert len({one.epoch for one in found}) == 2
    assert not execute(url, "SELECT * FROM gpuledger.outbox")
    await assert_true(ledger, url, [AwayProjection()])


async def test_who_publishes_many_decisions_goes_on_behind_those_that_were_acknowledged(
    ledger: JetStreamLedger, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer, "DECISIONS_PER_PUBLISH", 1)
    failing = Failing(ledger)
    failing.fails_after = 2
    head = await publish(ledger, [registered(number) for number in range(1, 6)])
    with pytest.raises(PublishError):
        await Runner(AwayProjection(), failing, url, settings=QUICK).catch_up(head)
    assert execute(url, "SELECT status FROM gpuledger.outbox ORDER BY number") == [("sent",), ("ready",)]
    async with running(Runner(AwayProjection(), failing, url, settings=QUICK)):
        await reaches(url, "away", head + AWAY_MAX)
    assert [len(one) for one in failing.tried] == [1, 1]
    assert [one.subject for one in await decided(ledger)] == ["n1", "n2"]
    await assert_true(ledger, url, [AwayProjection()])


async def test_the_limit_holds_though_decisions_are_recorded_behind_other_requests(
    ledger: JetStreamLedger, url: str
) -> None:
    failing = Failing(ledger)
    failing.comes_first = [registered(number) for number in range(2, 8)]
    async with running(Runner(AwayProjection(), failing, url, settings=QUICK)):
        await publish(ledger, [registered(1)])
        await reaches(url, "away", 9)
        head = await publish(ledger, [event(SlotDeclared(node="n2"), "s", number=8)])
        await reaches(url, "away", head + 1)
    assert [one.subject for one in await decided(ledger)] == ["n1", "n2", "n3"]
    await assert_true(ledger, url, [AwayProjection()])


async def test_what_time_alone_decides_is_recorded_once(ledger: JetStreamLedger, url: str) -> None:
    clock = Moving()
    async with running(Runner(AwayProjection(), ledger, url, settings=QUICK, clock=clock)):
        head = await publish(ledger, [registered(1)._replace(time=system_clock())])
        await reaches(url, "away", head + 1)
        clock.ahead = AWAY_AT_MOST + timedelta(hours=1)
        await reaches(url, "away", head + 2)
    assert [one.data for one in await decided(ledger)] == [NodeDecommissioned(), SlotDeclared(node="n1")]
    assert not table(url, "away")
    await assert_true(ledger, url, [AwayProjection()])


async def test_a_new_database_decides_nothing_twice_and_numbers_without_holes(
    ledger: JetStreamLedger, url: str
) -> None:
    async with running(Runner(AwayProjection(), ledger, url, settings=QUICK)):
        head = await publish(ledger, [registered(number) for number in range(1, 6)])
        await reaches(url, "away", head + AWAY_MAX)
    for name in ("projection", "seen", "decider", "outbox"):
        execute(url, f"DELETE FROM gpuledger.{name}")
    execute(url, "DELETE FROM gpuledger_live.away")
    async with running(Runner(AwayProjection(), ledger, url, settings=QUICK)):
        head = await publish(ledger, [event(SlotDeclared(node="n1"), "s", number=6)])
        await reaches(url, "away", head + 1)
    found = await decided(ledger)
    assert [one.subject for one in found] == ["n1", "n2", "n3"]
    assert [one.number for one in found] == [1, 2, 1]
    assert found[0].epoch == found[1].epoch != found[2].epoch
    await assert_true(ledger, url, [AwayProjection()])


async def test_a_log_that_was_restored_meanwhile_is_not_waited_for(ledger: JetStreamLedger, url: str) -> None:
    """A decider that started on a longer log must not hold its decisions back until this one has grown as long."""
    longer = Failing(ledger)
    longer.longer_by = 1_000
    head = await publish(ledger, [registered(number) for number in range(1, 6)])
    async with running(Runner(AwayProjection(), longer, url, settings=QUICK)):
        await reaches(url, "away", head)
        longer.longer_by = 0
        await reaches(url, "away", head + AWAY_MAX)
    assert [one.subject for one in await decided(ledger)] == ["n1", "n2"]
    await assert_true(ledger, url, [AwayProjection()])
