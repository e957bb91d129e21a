"""A decider of a newer version takes over while the old leader publishes: each decision counts once.

The new rows publish nothing before the swap; what the old leader has read from the outbox until then it may still
publish, and nothing that the new rows decided.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence

import pytest

from gpuledger.domain.fact import Fact
from gpuledger.events.node import NodeDecommissioned, NodeRegistered
from gpuledger.events.slot import SlotDeclared
from gpuledger.ledger.api import Expected, Outgoing, Receipt
from gpuledger.ledger.jetstream import JetStreamLedger
from gpuledger.projection.checkpoint import Checkpoint
from gpuledger.projection.definition import Decision
from gpuledger.projection.errors import VersionError
from gpuledger.projection.rebuild import rebuild, rollback
from gpuledger.projection.runner import Runner
from gpuledger.projection.store import ProjectionStore
from support.deciders import AwayProjection, AwayState
from support.events import event
from support.ledger_double import LedgerDouble
from support.projections import QUICK, assert_true, execute, publish, reaches, running
from support.runners import Failing, decided
from support.waiting import eventually

NODES = 6
AWAY_MAX = 4


class NewerAway(AwayProjection):
    """The decider of a newer build: more nodes may be away at once."""

    version = AwayProjection.version + 1

    def decide(self, state: AwayState, fact: Fact) -> Iterable[Decision]:
        for row in list(state.away.rows.values()):
            if row.since is None and state.count() < AWAY_MAX:
                yield Decision(row.registered_by, None, row.node, fact.event.time, NodeDecommissioned())


class Interrupted(LedgerDouble):
    """The ledger; something else happens while the first decisions are on their way, or when they have arrived."""

    def __init__(
        self, ledger: JetStreamLedger, meanwhile: Callable[[], Awaitable[None]], *, arrives_first: bool
    ) -> None:
        super().__init__(ledger)
        self._meanwhile: Callable[[], Awaitable[None]] | None = meanwhile
        self._arrives_first = arrives_first

    async def publish_many(self, messages: Sequence[Outgoing], expected: Expected | None = None) -> list[Receipt]:
        meanwhile, self._meanwhile = self._meanwhile, None
        if meanwhile is not None and not self._arrives_first:
            await meanwhile()
        receipts = await super().publish_many(messages, expected)
        if meanwhile is not None and self._arrives_first:
            await meanwhile()
        return receipts


async def assert_decided_once(ledger: JetStreamLedger, url: str, count: int) -> None:
    """So many decisions are in the log, each once by its id and by its number, and none waits."""
    events = await decided(ledger)
    assert len({one.id for one in events}) == len({(one.epoch, one.number) for one in events}) == len(events) == count
    assert not execute(url, "SELECT id FROM gpuledger.outbox WHERE projection = 'away'")


async def register(ledger: JetStreamLedger) -> int:
    """Nodes that ask to be away."""
    return await publish(ledger, [event(NodeRegistered(), f"n{number}", number=number) for number in range(1, NODES)])


async def newer_takes_over(ledger: JetStreamLedger, url: str, position: int) -> None:
    """The newer build leads, decides once more, and has all its decisions back."""
    async with running(Runner(NewerAway(), ledger, url, settings=QUICK)):
        await reaches(url, "away", position)
        await publish(ledger, [event(NodeRegistered(), f"n{NODES}", number=NODES)])
        await reaches(url, "away", position + 1)


@pytest.mark.parametrize("arrives_first", [False, True], ids=["on their way", "recorded, and not noted"])
async def test_the_old_leader_publishes_its_decisions_while_the_new_rows_take_their_place(
    ledger: JetStreamLedger, url: str, *, arrives_first: bool
) -> None:
    swapped: list[object] = []

    async def swap() -> None:
        swapped.append(await rebuild(NewerAway(), ledger, url))

    old = Interrupted(ledger, swap, arrives_first=arrives_first)
    task = asyncio.create_task(Runner(AwayProjection(), old, url, settings=QUICK).run())
    head = await register(ledger)
    with pytest.raises(VersionError):
        await task
    assert swapped
    assert await ledger.head() == head + 2, "the new rows' own decisions wait for their leader"
    await newer_takes_over(ledger, url, head + AWAY_MAX)
    await assert_decided_once(ledger, url, AWAY_MAX)
    await assert_true(ledger, url, [NewerAway()])


async def test_the_old_leader_publishes_nothing_that_the_new_rows_decided(
    ledger: JetStreamLedger, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    ready = ProjectionStore.ready
    swapped: list[object] = []

    async def interrupted(self: ProjectionStore, ours: Checkpoint) -> dict[str, Outgoing]:
        if not swapped and execute(url, "SELECT 1 FROM gpuledger.outbox WHERE status = 'ready'"):
            swapped.append(await rebuild(NewerAway(), ledger, url))
        return await ready(self, ours)

    monkeypatch.setattr(ProjectionStore, "ready", interrupted)
    task = asyncio.create_task(Runner(AwayProjection(), ledger, url, settings=QUICK).run())
    await reaches(url, "away", await publish(ledger, [event(SlotDeclared(node="n0"), "s0", number=1000)]))
    head = await register(ledger)
    with pytest.raises(VersionError):
        await task
    assert swapped
    assert await ledger.head() == head, "who was fenced publishes nothing"
    await newer_takes_over(ledger, url, head + AWAY_MAX)
    await assert_decided_once(ledger, url, AWAY_MAX)
    await assert_true(ledger, url, [NewerAway()])


async def test_a_rollback_while_the_newer_leader_publishes_decides_nothing_twice(
    ledger: JetStreamLedger, url: str
) -> None:
    async with running(Runner(AwayProjection(), ledger, url, settings=QUICK)):
        await reaches(url, "away", await publish(ledger, [event(NodeRegistered(), "n0", number=1000)]) + 1)
    await rebuild(NewerAway(), ledger, url)

    async def roll_back() -> None:
        await rollback(AwayProjection(), url)

    newer = Interrupted(ledger, roll_back, arrives_first=False)
    task = asyncio.create_task(Runner(NewerAway(), newer, url, settings=QUICK).run())
    head = await register(ledger)
    with pytest.raises(VersionError):
        await task
    assert await ledger.head() == head + AWAY_MAX - 1
    async with running(Runner(AwayProjection(), ledger, url, settings=QUICK)):
        await reaches(url, "away", await publish(ledger, [event(NodeRegistered(), "n9", number=9)]))
    await assert_decided_once(ledger, url, AWAY_MAX)
    await assert_true(ledger, url, [AwayProjection()])


async def test_what_the_old_leader_could_not_publish_goes_before_what_the_new_rows_decided(
    ledger: JetStreamLedger, url: str
) -> None:
    failing = Failing(ledger)
    async with running(Runner(AwayProjection(), failing, url, settings=QUICK)):
        await reaches(url, "away", await register(ledger) + 2)
        failing.fails = "before"
        head = await publish(ledger, [event(SlotDeclared(node="n1"), "s1", number=1000)])
        await reaches(url, "away", head)
        await eventually(lambda: _began_another_epoch(url))
    assert outbox(url) == [("ready", 3)]
    await rebuild(NewerAway(), ledger, url)
    assert outbox(url) == [("held", 4), ("held", 5), ("ready", 3)]
    await newer_takes_over(ledger, url, head + 3)
    await assert_decided_once(ledger, url, 5)
    await assert_true(ledger, url, [NewerAway()])


async def _began_another_epoch(url: str) -> bool:
    """Whether a leader has begun since the one that made what is ready."""
    return execute(url, "SELECT next_number FROM gpuledger.decider") == [(1,)]


def outbox(url: str) -> list[tuple[object, ...]]:
    """The decisions that wait, by their statuses and numbers."""
    return execute(url, "SELECT status, number FROM gpuledger.outbox WHERE projection = 'away' ORDER BY 1, 2")
