"""Somebody else takes the id under which a service is about to publish: the event is recorded all the same."""

import pytest

from gpuledger.deciders.sources.projection import SourcesProjection
from gpuledger.edge.watchers.decide import NewFact
from gpuledger.edge.watchers.journal import Journal
from gpuledger.events.envelope import Decoded, decode
from gpuledger.events.ids import derived_id
from gpuledger.events.node import NodeObserved
from gpuledger.events.position import Offset, next_after
from gpuledger.events.source import SourceMessageIdTaken, SourceRejected
from gpuledger.ledger.errors import PublishError
from gpuledger.ledger.jetstream import JetStreamLedger
from gpuledger.projection.runner import Runner
from support.events import AGENT, START, outgoing
from support.ledgers import everything
from support.one_watcher import NODES
from support.projections import QUICK, assert_true, execute, reaches, running, table
from support.runners import Failing, decided, failures, unfit

REJECTIONS = 20
"""More than go one by one: they are published in an atomic batch."""


def rejection_id(sequence: Offset) -> str:
    """The id of the decision that follows from a bad event, which anybody can compute."""
    return derived_id(f"rejected/{sequence}", SourceRejected.TYPE, "log")


async def taken_by_agent(ledger: JetStreamLedger, ids: list[str], first: int = 1) -> None:
    """An agent records failures under message ids of its choice."""
    messages = [
        outgoing(one)._replace(id=message_id)
        for one, message_id in zip(failures(range(first, first + len(ids))), ids, strict=True)
    ]
    assert not any(receipt.duplicate for receipt in await ledger.publish_many(messages))


async def rejections(ledger: JetStreamLedger) -> list[int]:
    """The positions that `sources` recorded as rejected."""
    return [one.data.sequence for one in await decided(ledger) if isinstance(one.data, SourceRejected)]


async def incidents(ledger: JetStreamLedger) -> list[Decoded]:
    """The recorded incidents."""
    events = [decode(one.data) for one in await everything(ledger) if one.subject.endswith(".message-id-taken")]
    assert all(isinstance(one.data, SourceMessageIdTaken) for one in events)
    return events


async def test_an_id_that_can_be_computed_keeps_no_decision_out(ledger: JetStreamLedger, url: str) -> None:
    await taken_by_agent(ledger, [rejection_id(2)])
    bad = (await ledger.publish(unfit(2, AGENT))).sequence
    async with running(Runner(SourcesProjection(), ledger, url, settings=QUICK)):
        await reaches(url, "sources", next_after(bad))
    assert await rejections(ledger) == [bad]
    assert not execute(url, "SELECT * FROM gpuledger.outbox")
    await assert_true(ledger, url, [SourcesProjection()])


async def waiting_in_the_outbox(ledger: JetStreamLedger, url: str, count: int) -> list[str]:
    """Decisions that are about to be published; returns their ids."""
    failing = Failing(ledger)
    failing.fails = "before"
    bad = await ledger.publish_many([unfit(number, AGENT) for number in range(1, count + 1)])
    with pytest.raises(PublishError):
        await Runner(SourcesProjection(), failing, url, settings=QUICK).catch_up(bad[-1].sequence)
    return [rejection_id(receipt.sequence) for receipt in bad]


@pytest.mark.one_stream("an id that another origin took clashes in one stream alone")
@pytest.mark.parametrize("count", [1, REJECTIONS])
async def test_a_row_of_the_build_before_whose_id_was_taken_is_recorded_with_the_incident(
    ledger: JetStreamLedger, url: str, count: int
) -> None:
    ids = await waiting_in_the_outbox(ledger, url, count)
    execute(url, "UPDATE gpuledger.outbox SET message_id = NULL")
    await taken_by_agent(ledger, ids[-1:], first=count + 1)
    async with running(Runner(SourcesProjection(), ledger, url, settings=QUICK)):
        await reaches(url, "sources", 2 * count + 2)
    assert await rejections(ledger) == list(range(1, count + 1))
    (one,) = await incidents(ledger)
    assert isinstance(one.data, SourceMessageIdTaken)
    assert (one.data.event, one.data.message_id, one.data.sequence) == (ids[-1], ids[-1], count + 1)
    assert one.data.nats_subject.startswith("ledger.node.n1.device.")
    assert table(url, "source", "source, taken") == [("/nodes/n1/agent", 0), ("/services/sources", 0), (one.source, 1)]
    assert not execute(url, "SELECT * FROM gpuledger.outbox")
    await assert_true(ledger, url, [SourcesProjection()])


async def test_the_message_id_is_kept_for_a_repeat(ledger: JetStreamLedger, url: str) -> None:
    await waiting_in_the_outbox(ledger, url, 1)
    failing = Failing(ledger)
    failing.fails = "behind"
    with pytest.raises(PublishError):
        await Runner(SourcesProjection(), failing, url, settings=QUICK).catch_up(2)
    async with running(Runner(SourcesProjection(), failing, url, settings=QUICK)):
        failing.fails = None
        await reaches(url, "sources", 2)
    assert await rejections(ledger) == [1]
    assert await ledger.head() == 2
    assert not set(failing.tried[0]) & {rejection_id(1)}
    assert await incidents(ledger) == []


@pytest.mark.one_stream("an id that another origin took clashes in one stream alone")
async def test_a_crash_between_recording_again_and_noting_it_leaves_one_decision_and_one_incident(
    ledger: JetStreamLedger, url: str
) -> None:
    ids = await waiting_in_the_outbox(ledger, url, 1)
    execute(url, "UPDATE gpuledger.outbox SET message_id = NULL")
    await taken_by_agent(ledger, ids, first=2)
    failing = Failing(ledger)
    failing.fails_after = 3
    with pytest.raises(PublishError):
        await Runner(SourcesProjection(), failing, url, settings=QUICK).catch_up(3)
    assert [len(ids) for ids in failing.tried] == [1, 1, 1]
    async with running(Runner(SourcesProjection(), ledger, url, settings=QUICK)):
        await reaches(url, "sources", await ledger.head())
    assert table(url, "rejection", "position, generation") == [(1, 1)]
    assert [row for row in table(url, "source", "taken, events") if row[0]] == [(1, 1)]
    await assert_true(ledger, url, [SourcesProjection()])


@pytest.mark.one_stream("an id that another origin took clashes in one stream alone")
async def test_a_watchers_fact_is_recorded_though_its_id_was_taken(ledger: JetStreamLedger) -> None:
    await taken_by_agent(ledger, ["foreseen"])
    ids = iter(["foreseen", "drawn anew", "the incident"])
    journal = Journal(ledger, NODES, lambda: "e", new_message_id=lambda: next(ids))
    assert await journal.record([NewFact("w1", START, NodeObserved(uid="u"))]) == {"w1"}
    assert journal.recorded["w1"].time == START
    (one,) = await incidents(ledger)
    assert (one.source, one.subject) == (NODES.source, NODES.source)
