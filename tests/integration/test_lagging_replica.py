"""PostgreSQL fails over to a replica that lags: a decider's rows, numbers and outbox go back, and the log does not.

The replica is a copy of the database from before some decisions, put in its place.
"""

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from itertools import count
from urllib.parse import urlsplit

import pytest
from prometheus_client import REGISTRY

from gpuledger.deciders.sources.projection import SourcesProjection
from gpuledger.events.envelope import Decoded, decode
from gpuledger.events.node import NodeDecommissioned, NodeRegistered
from gpuledger.events.position import number_of
from gpuledger.events.slot import SlotDeclared
from gpuledger.ledger.api import Expected, Outgoing, Receipt
from gpuledger.ledger.errors import PublishError
from gpuledger.ledger.jetstream import JetStreamLedger
from gpuledger.projection.errors import AnotherLeaderError, DecisionConflictError, DecisionLostError
from gpuledger.projection.rebuild import rebuild
from gpuledger.projection.runner import Runner
from gpuledger.projection.supervision import Supervision
from gpuledger.projection.verify import verify
from gpuledger.runtime.clock import system_clock
from support import servers
from support.deciders import AWAY_AT_MOST, AwayProjection
from support.events import event, outgoing
from support.ledger_double import LedgerDouble
from support.ledgers import everything
from support.projections import QUICK, assert_true, execute, publish, reaches, running, stop, table
from support.runners import Failing, Moving, decided
from support.waiting import eventually


def registered(number: int) -> Decoded:
    return event(NodeRegistered(), f"n{number}", number=number)._replace(time=system_clock())


def back(node: str, number: int) -> Decoded:
    return event(SlotDeclared(node=node), f"slot-{node}", number=number)._replace(time=system_clock())


@contextmanager
def copied(server_url: str, url: str) -> Iterator[str]:
    """A copy of the database as it is now; nobody may be connected to it."""
    with servers.fresh_database(server_url, urlsplit(url).path.removeprefix("/")) as copy:
        yield copy


async def all_are_back(url: str) -> None:
    """Return when no decision is on its way."""

    async def is_empty() -> bool:
        return not execute(url, "SELECT * FROM gpuledger.outbox WHERE projection = 'away'")

    await eventually(is_empty)


async def run_until(ledger: JetStreamLedger, url: str, events: list[Decoded], decisions: int) -> None:
    """Publish events, and run the decider until it has made so many decisions and all have come back."""
    async with running(Runner(AwayProjection(), ledger, url, settings=QUICK)):
        head = await publish(ledger, events)
        await reaches(url, "away", head + decisions)
        await all_are_back(url)


async def time_gives_back(ledger: JetStreamLedger, url: str) -> None:
    """Run the decider until it has brought a node back because of the time alone."""
    clock, head = Moving(), number_of(await ledger.head())
    async with running(Runner(AwayProjection(), ledger, url, settings=QUICK, clock=clock)):
        clock.ahead = AWAY_AT_MOST + timedelta(hours=1)
        await reaches(url, "away", head + 1)
        await all_are_back(url)


def epoch(url: str) -> str:
    """The epoch of the decider's leader."""
    ((found,),) = execute(url, "SELECT epoch FROM gpuledger.decider WHERE projection = 'away'")
    return str(found)


def numbers_by_epoch(events: list[Decoded]) -> list[list[int]]:
    """The numbers of each epoch, in the order of the log."""
    epochs: dict[str, list[int]] = {}
    for one in events:
        epochs.setdefault(one.epoch, []).append(one.number)
    return list(epochs.values())


async def test_decisions_of_a_leader_whose_rows_were_lost_are_kept_and_new_ones_are_not_dropped(
    ledger: JetStreamLedger, url: str, postgres_server_url: str
) -> None:
    """What time alone decided is not decided again from the log, so both leaders would give the same number twice."""
    await run_until(ledger, url, [registered(1)], 1)
    with copied(postgres_server_url, url) as replica:
        await time_gives_back(ledger, url)
        assert [one.data for one in await decided(ledger)] == [NodeDecommissioned(), SlotDeclared(node="n1")]
        await run_until(ledger, replica, [registered(2), registered(3)], 2)
        events = await decided(ledger)
        assert [one.subject for one in events] == ["n1", "slot-of-n1", "n2", "n3"]
        assert numbers_by_epoch(events) == [[1], [1], [1, 2]]
        assert [row[0] for row in table(replica, "away", "node, since") if row[1]] == ["n2", "n3"]
        await assert_true(ledger, replica, [AwayProjection()])
        head = await ledger.head()
        await Runner(SourcesProjection(), ledger, replica, settings=QUICK).catch_up(head)
        assert set(table(replica, "source", "missing, duplicates")) == {(0, 0)}


async def test_decisions_that_follow_again_are_recorded_once(
    ledger: JetStreamLedger, url: str, postgres_server_url: str
) -> None:
    await run_until(ledger, url, [registered(1)], 1)
    with copied(postgres_server_url, url) as replica:
        await run_until(ledger, url, [registered(2), registered(3), back("n1", 4), back("n2", 5)], 2)
        before = await decided(ledger)
        await run_until(ledger, replica, [registered(6), back("n3", 7)], 1)
        assert await decided(ledger) == [*before, (await decided(ledger))[-1]]
        assert [one.subject for one in await decided(ledger)] == ["n1", "n2", "n3", "n6"]
        await assert_true(ledger, replica, [AwayProjection()])


async def test_a_decision_on_its_way_in_both_databases_is_recorded_once(
    ledger: JetStreamLedger, url: str, postgres_server_url: str
) -> None:
    failing = Failing(ledger)
    failing.fails = "before"
    head = await publish(ledger, [registered(1)])
    with pytest.raises(PublishError):
        await Runner(AwayProjection(), failing, url, settings=QUICK).catch_up(head)
    with copied(postgres_server_url, url) as replica:
        await run_until(ledger, url, [registered(2)], 2)
        await run_until(ledger, replica, [back("n1", 3), registered(4)], 1)
        assert [one.subject for one in await decided(ledger)] == ["n1", "n2", "n4"]
        await assert_true(ledger, replica, [AwayProjection()])


async def test_of_many_leaders_one_epoch_is_kept_and_what_comes_late_of_the_others_changes_nothing(
    ledger: JetStreamLedger, url: str
) -> None:
    for number in range(1, 4):
        await run_until(ledger, url, [registered(number), back(f"n{number}", 10 + number)], 1)
    first, _, last = await decided(ledger)
    late = first._replace(id="late", number=2, subject="n9")
    await ledger.publish(outgoing(late))
    repeated = outgoing(first)._replace(id="another message id")
    await ledger.publish(repeated)
    await run_until(ledger, url, [registered(4)], 1)
    head = await ledger.head()
    for projection in (AwayProjection(), SourcesProjection()):
        await Runner(projection, ledger, url, settings=QUICK).catch_up(head)
        await assert_true(ledger, url, [projection])
    newest = (await decided(ledger))[-1].epoch
    assert newest not in (first.epoch, last.epoch)
    kept = execute(url, "SELECT epoch FROM gpuledger.numbers_seen WHERE source = '/services/away'")
    assert kept == [(newest,)]
    rows = [row[1:] for row in table(url, "source", "source, epoch, events, duplicates") if row[0] == "/services/away"]
    assert rows == [(newest, 4, 0)]


async def test_a_leader_goes_on_behind_what_its_predecessor_had_on_its_way(ledger: JetStreamLedger, url: str) -> None:
    await run_until(ledger, url, [registered(1), registered(2)], 2)
    before, (first, second) = epoch(url), await decided(ledger)
    async with running(Runner(AwayProjection(), ledger, url, settings=QUICK)) as tasks:

        async def leads() -> bool:
            return epoch(url) != before

        await eventually(leads)
        late = second._replace(
            id="late", number=3, data=SlotDeclared(node="n1"), subject="slot-n1", type=SlotDeclared.TYPE
        )
        met, begun = await ledger.publish(outgoing(late._replace(causation_id=first.id))), epoch(url)

        async def has_begun_again() -> bool:
            return epoch(url) != begun

        await eventually(has_begun_again)
        await publish(ledger, [registered(3)])
        await reaches(url, "away", number_of(met.sequence) + 2)
        await all_are_back(url)
        assert not any(task.done() for task in tasks)
    assert [one.subject for one in await decided(ledger)] == ["n1", "n2", "slot-n1", "n3"]
    await assert_true(ledger, url, [AwayProjection()])


async def test_of_two_leaders_with_a_database_each_one_stops_after_so_many_beginnings(
    ledger: JetStreamLedger, url: str, postgres_server_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("support.deciders.AWAY_MAX", 1_000)
    await run_until(ledger, url, [registered(1)], 1)
    with copied(postgres_server_url, url) as replica:
        runners = [Runner(AwayProjection(), ledger, one, settings=QUICK) for one in (url, replica)]
        async with running(*runners) as tasks:

            async def one_has_stopped() -> bool:
                await publish(ledger, [registered(next(nodes))])
                return any(task.done() for task in tasks)

            nodes = count(2)
            await eventually(one_has_stopped)
            stopped = next(task for task in tasks if task.done())
            assert isinstance(stopped.exception(), AnotherLeaderError)
            assert "with another database" in str(stopped.exception())
        last = next(nodes)
        async with running(Runner(AwayProjection(), ledger, replica, settings=QUICK)):
            await publish(ledger, [registered(last)])

            async def the_last_is_decided() -> bool:
                return f"n{last}" in [one.subject for one in await decided(ledger)]

            await eventually(the_last_is_decided)
            await all_are_back(replica)
        assert {one.subject for one in await decided(ledger)} == {f"n{number}" for number in range(1, last + 1)}
        await assert_true(ledger, replica, [AwayProjection()])


async def test_a_number_that_was_given_twice_stops_and_a_rebuild_records_the_decision_anew(
    ledger: JetStreamLedger, url: str
) -> None:
    """As an earlier build left it behind: its epoch lived as long as the database, and not as its leader."""
    failing = Failing(ledger)
    failing.fails = "before"
    head = await publish(ledger, [registered(1)])
    with pytest.raises(PublishError):
        await Runner(AwayProjection(), failing, url, settings=QUICK).catch_up(head)
    ((raw,),) = execute(url, "SELECT data FROM gpuledger.outbox")
    twin = decode(bytes(raw))._replace(
        id="decided by the other leader", data=SlotDeclared(node="n7"), subject="slot-n7"
    )
    await ledger.publish(outgoing(twin._replace(type=SlotDeclared.TYPE)))
    runner = Runner(AwayProjection(), ledger, url, settings=QUICK)
    with pytest.raises(DecisionLostError, match=r"its number was given to another decision before.*replay away"):
        await runner.run()
    with pytest.raises(DecisionLostError):
        await runner.run()
    await rebuild(AwayProjection(), ledger, url)
    await run_until(ledger, url, [registered(2)], 2)
    found = await decided(ledger)
    assert [one.subject for one in found] == ["slot-n7", "n1", "n1", "n2"]
    assert found[1].epoch != found[2].epoch
    await assert_true(ledger, url, [AwayProjection()])


async def test_a_decision_that_did_not_come_back_stops_and_is_a_difference(ledger: JetStreamLedger, url: str) -> None:
    await run_until(ledger, url, [registered(1)], 1)
    lost = decode((await everything(ledger))[-1].data)._replace(id="lost", number=2)
    execute(
        url,
        "INSERT INTO gpuledger.outbox (projection, id, subject, data, number, status, sequence) "
        "VALUES ('away', 'lost', %s, %s, 2, 'sent', 2)",
        outgoing(lost).subject,
        outgoing(lost).data,
    )
    found = await verify(AwayProjection(), ledger, url)
    assert found.differences == 2, "the decision, and the row that it was folded into"
    execute(url, "UPDATE gpuledger_live.away SET times = 2")
    found = await verify(AwayProjection(), ledger, url)
    assert (found.differences, found.first and (found.first.table, found.first.key)) == (1, ("outbox", ("lost",)))
    for sequence in (2, None):
        execute(url, "UPDATE gpuledger.outbox SET sequence = %s", sequence)
        await publish(ledger, [registered(2 + bool(sequence))])
        with pytest.raises(DecisionLostError, match="recorded at 1/"):
            await Runner(AwayProjection(), ledger, url, settings=QUICK).run()


async def test_another_content_under_a_decisions_id_stops(
    ledger: JetStreamLedger, url: str, postgres_server_url: str
) -> None:
    await run_until(ledger, url, [registered(1)], 1)
    with copied(postgres_server_url, url) as replica:
        await run_until(ledger, url, [registered(2)], 1)
        execute(replica, "UPDATE gpuledger.decider SET settle_until = 0")

        class Later(AwayProjection):
            """Decides the same, an hour later."""

            def decide(self, state, fact):  # type: ignore[no-untyped-def]
                for one in super().decide(state, fact):
                    yield one._replace(time=one.time + timedelta(hours=1))

        with pytest.raises(DecisionConflictError, match="another content"):
            await Runner(Later(), ledger, replica, settings=QUICK).run()


class Forgetful(LedgerDouble):
    """A ledger that acknowledges a decision and keeps nothing of it, as one that was restored from a back-up."""

    def __init__(self, ledger: JetStreamLedger) -> None:
        super().__init__(ledger)

    async def publish_many(self, messages: Sequence[Outgoing], expected: Expected | None = None) -> list[Receipt]:
        head = number_of(await self.head())
        return [Receipt(head + number, duplicate=False) for number in range(1, len(messages) + 1)]


async def test_a_decision_that_an_idle_log_does_not_have_stops(
    ledger: JetStreamLedger, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gpuledger.projection.returns.IDLE_TICKS_MAX", 3)
    await publish(ledger, [registered(1)])
    with pytest.raises(DecisionLostError, match="the log has no event there"):
        await Runner(AwayProjection(), Forgetful(ledger), url, settings=QUICK).run()


async def test_decisions_that_have_not_come_back_are_measured(ledger: JetStreamLedger, url: str) -> None:
    failing = Failing(ledger)
    failing.fails = "before"
    head = await publish(ledger, [registered(1)])
    with pytest.raises(PublishError):
        await Runner(AwayProjection(), failing, url, settings=QUICK).catch_up(head)
    execute(url, "UPDATE gpuledger.outbox SET decided_at = decided_at - interval '1 hour'")
    supervision = Supervision([AwayProjection()], failing, url, check_interval_s=0.02)
    tasks = [asyncio.create_task(work) for work in supervision.work()]

    async def waits(events: int, longer_than_s: float) -> bool:
        return metric("outbox_events") == events and (metric("outbox_seconds") or 0) >= longer_than_s

    try:
        await eventually(lambda: waits(1, 3600))
        failing.fails = None
        await eventually(lambda: waits(0, 0))
        assert metric("outbox_seconds") == 0
    finally:
        for task in tasks:
            await stop(task)


def metric(name: str) -> float | None:
    return REGISTRY.get_sample_value(f"gpuledger_projection_{name}", {"projection": "away"})
