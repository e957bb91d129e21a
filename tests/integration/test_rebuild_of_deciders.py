"""A decider's rows change places beside leaders that decide on the others: the log has each decision once."""

from collections.abc import Iterable
from dataclasses import replace
from datetime import timedelta
from typing import Any

import psycopg
import pytest
from structlog.testing import capture_logs

from gpuledger.domain.fact import Fact
from gpuledger.events.envelope import Decoded
from gpuledger.events.node import NodeRegistered
from gpuledger.events.slot import SlotDeclared
from gpuledger.events.source import SourcePositionSkipped
from gpuledger.ledger.api import Outgoing
from gpuledger.ledger.jetstream import JetStreamLedger
from gpuledger.projection import rebuild as rebuilding
from gpuledger.projection.checkpoint import Checkpoint
from gpuledger.projection.definition import Decision
from gpuledger.projection.errors import RebuildBusyError
from gpuledger.projection.outstanding import ChangedDecisions
from gpuledger.projection.rebuild import rebuild, rollback
from gpuledger.projection.runner import Runner
from gpuledger.projection.store import ProjectionStore
from gpuledger.projection.verify import verify
from gpuledger.tools.projections import changed_words
from support.deciders import AwayProjection, AwayState
from support.events import event
from support.projections import QUICK, assert_true, execute, publish, reaches, running
from support.runners import decided


def registered(number: int) -> Decoded:
    return event(NodeRegistered(), f"n{number}", number=number)


async def decide_on(ledger: JetStreamLedger, url: str, number: int) -> int:
    """Have the decider answer a node that asks to be away; where its decision stands."""
    async with running(Runner(AwayProjection(), ledger, url, settings=QUICK)):
        position = await publish(ledger, [registered(number)]) + 1
        await reaches(url, "away", position)
    return position


def lose_rows(url: str) -> None:
    """Leave the database as it was before the decider's first start."""
    for name in ("projection", "seen", "decider", "outbox"):
        execute(url, f"DELETE FROM gpuledger.{name}")
    execute(url, "DELETE FROM gpuledger_live.away")


async def test_a_rebuild_ahead_of_rows_that_were_begun_meanwhile_changes_nothing(
    ledger: JetStreamLedger, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in (1, 2):
        head = await decide_on(ledger, url, number)
    lose_rows(url)
    hold_views = rebuilding._hold_views
    first = Runner(AwayProjection(), ledger, url, settings=replace(QUICK, messages_per_batch=1))

    async def meanwhile(connection: psycopg.AsyncConnection[Any]) -> None:
        assert await first.catch_up(1)
        await hold_views(connection)

    monkeypatch.setattr(rebuilding, "_hold_views", meanwhile)
    with pytest.raises(RebuildBusyError, match=r"`gpuledger up` began projection away .* nothing was changed"):
        await rebuild(AwayProjection(), ledger, url)
    monkeypatch.undo()
    await assert_true(ledger, url, [AwayProjection()])
    async with running(Runner(AwayProjection(), ledger, url, settings=QUICK)):
        await reaches(url, "away", await publish(ledger, [registered(3)]))
    assert await ledger.head() == head + 1, "nothing is published again"
    assert [one.subject for one in await decided(ledger)] == ["n1", "n2"]
    await rebuild(AwayProjection(), ledger, url)
    await assert_true(ledger, url, [AwayProjection()])


async def test_a_leader_that_was_paused_through_a_rebuild_and_its_rollback_publishes_what_it_decided(
    ledger: JetStreamLedger, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    ready = ProjectionStore.ready
    rolled_back: list[Checkpoint] = []

    async def paused(self: ProjectionStore, ours: Checkpoint) -> dict[str, Outgoing]:
        if not rolled_back and execute(url, "SELECT 1 FROM gpuledger.outbox WHERE status = 'ready'"):
            await rebuild(AwayProjection(), ledger, url)
            rolled_back.append(await rollback(AwayProjection(), url))
        return await ready(self, ours)

    monkeypatch.setattr(ProjectionStore, "ready", paused)
    head = await decide_on(ledger, url, 1)
    assert rolled_back
    assert await ledger.head() == head
    await assert_true(ledger, url, [AwayProjection()])


class Later(AwayProjection):
    """A newer version that decides the same an hour later."""

    version = AwayProjection.version + 1

    def decide(self, state: AwayState, fact: Fact) -> Iterable[Decision]:
        for decision in super().decide(state, fact):
            yield decision._replace(time=decision.time + timedelta(hours=1))


async def test_decisions_that_a_newer_version_makes_otherwise_are_counted(ledger: JetStreamLedger, url: str) -> None:
    recorded = [await decide_on(ledger, url, number) for number in (1, 2)]
    with capture_logs() as logs:
        await rebuild(Later(), ledger, url)
    (warning,) = [one for one in logs if one["event"] == "projection.decisions-changed"]
    assert (warning["count"], warning["last"]) == (2, f"1/{recorded[-1]}")
    async with running(Runner(Later(), ledger, url, settings=QUICK)):
        await reaches(
            url, "away", await publish(ledger, [event(SlotDeclared(node="n1"), "s1", number=3), registered(4)]) + 1
        )
    found = await verify(Later(), ledger, url)
    assert (found.differences, found.changed_decisions) == (0, ChangedDecisions(2, recorded[-1])), (
        "what it decided since is its own"
    )
    assert changed_words(found).startswith("2 decisions in the log have another content than this build makes")
    assert f"the last at 1/{recorded[-1]}." in changed_words(found)


async def skip(ledger: JetStreamLedger, position: int) -> None:
    """Have every projection pass over a position, as `gpuledger log skip` does."""
    skipped = SourcePositionSkipped(generation=ledger.generation, sequence=position, reason="It does not fold.")
    await publish(ledger, [event(skipped, "log", source="/services/operators")])


async def test_a_rebuild_does_not_publish_a_decision_again_that_operators_skip(
    ledger: JetStreamLedger, url: str
) -> None:
    await skip(ledger, await decide_on(ledger, url, 1))
    await rebuild(AwayProjection(), ledger, url)
    await assert_true(ledger, url, [AwayProjection()])
    await decide_on(ledger, url, 2)
    assert [one.subject for one in await decided(ledger)] == ["n1", "n2"]
    await assert_true(ledger, url, [AwayProjection()])


async def test_a_rebuild_clears_a_skipped_decision_that_an_earlier_build_kept_in_the_outbox(
    ledger: JetStreamLedger, url: str
) -> None:
    head = await publish(ledger, [registered(1)])
    assert await Runner(AwayProjection(), ledger, url, settings=QUICK).catch_up(head)
    kept = execute(url, "SELECT * FROM gpuledger.outbox")
    await skip(ledger, head + 1)
    await decide_on(ledger, url, 2)
    execute(url, f"INSERT INTO gpuledger.outbox VALUES ({', '.join(['%s'] * len(kept[0]))})", *kept[0])
    await assert_true(ledger, url, [AwayProjection()])
    await rebuild(AwayProjection(), ledger, url)
    assert not execute(url, "SELECT id FROM gpuledger.outbox WHERE projection = 'away'")
    await assert_true(ledger, url, [AwayProjection()])


async def test_a_decision_that_operators_skip_before_it_comes_back_leaves_the_outbox(
    ledger: JetStreamLedger, url: str
) -> None:
    head = await publish(ledger, [registered(1)])
    assert await Runner(AwayProjection(), ledger, url, settings=QUICK).catch_up(head)
    assert execute(url, "SELECT status, sequence FROM gpuledger.outbox") == [("sent", head + 1)]
    await skip(ledger, head + 1)
    await decide_on(ledger, url, 2)
    assert not execute(url, "SELECT id FROM gpuledger.outbox")
    await assert_true(ledger, url, [AwayProjection()])
