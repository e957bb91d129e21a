"""A decider that fails, or decides what NATS does not take: it alone stops, and each way out works on real servers."""

import asyncio
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from prometheus_client import REGISTRY

from gpuledger.domain.fact import Fact
from gpuledger.events.envelope import Decoded
from gpuledger.events.node import NodeRegistered
from gpuledger.events.source import SourcePositionSkipped
from gpuledger.events.workload import DeviceShare, WorkloadScheduled
from gpuledger.ledger.errors import PublishError
from gpuledger.ledger.jetstream import JetStreamLedger
from gpuledger.local.servers.nats import NatsServer
from gpuledger.projection.definition import Decision, Projection
from gpuledger.projection.errors import DecisionRefusedError
from gpuledger.projection.rebuild import rebuild
from gpuledger.projection.runner import Runner
from gpuledger.projection.supervision import Supervision
from gpuledger.readmodels.projections import NodesProjection
from support.deciders import AwayProjection, AwayState
from support.events import AGENT, event
from support.ledgers import jetstream_ledger
from support.projections import QUICK, assert_true, checkpoint, execute, publish, reaches, running, stop, table
from support.runners import Failing, decided
from support.waiting import eventually

SMALL_PAYLOAD_BYTES = 24 * 1024
"""Leaves 16 KiB for an event, which is less than the large decision has."""

LARGE = WorkloadScheduled(gpu_milli=1, devices=tuple(DeviceShare(device=f"d{at}", gpu_milli=1) for at in range(800)))


class FailsAtTwo(AwayProjection):
    def decide(self, state: AwayState, fact: Fact) -> Iterable[Decision]:
        if fact.event.subject == "n2":
            raise ZeroDivisionError("oh")
        return super().decide(state, fact)


class DecidesLarge(AwayProjection):
    """Its decision about the second node is large."""

    def decide(self, state: AwayState, fact: Fact) -> Iterable[Decision]:
        if fact.event.subject == "n2" and isinstance(fact.event.data, NodeRegistered):
            yield Decision(fact.event.id, None, "w1", fact.event.time, LARGE)


def registered(number: int) -> Decoded:
    return event(NodeRegistered(), f"n{number}", number=number, source=AGENT)


@asynccontextmanager
async def supervised(ledger: JetStreamLedger, url: str, *projections: Projection) -> AsyncIterator[Supervision]:
    """Projections as `gpuledger up` runs them."""
    supervision = Supervision(projections, ledger, url, check_interval_s=0.02)
    tasks = [asyncio.create_task(work) for work in supervision.work()]
    try:
        yield supervision
        assert not [task for task in tasks if task.done()], "the process would have ended"
    finally:
        for task in tasks:
            await stop(task)


def is_stopped(name: str) -> float | None:
    """What the alert about stopped projections asks for."""
    return REGISTRY.get_sample_value("gpuledger_projection_stopped", {"projection": name})


async def stops(supervision: Supervision, name: str) -> str:
    """Why the projection stopped, once it has."""

    async def has_stopped() -> bool:
        return supervision.health()[name].state == "stopped"

    await eventually(has_stopped)
    return supervision.health()[name].reason or ""


async def test_a_decider_that_fails_stops_alone_until_its_position_is_skipped(
    ledger: JetStreamLedger, url: str
) -> None:
    head = await publish(ledger, [registered(number) for number in (1, 2, 3)])
    async with supervised(ledger, url, FailsAtTwo(), NodesProjection()) as supervision:
        reason = await stops(supervision, "away")
        assert "stopped at 1/2 " in reason
        assert "`decide` raised ZeroDivisionError('oh')" in reason
        assert "gpuledger log skip 1/2" in reason
        assert (is_stopped("away"), is_stopped("nodes")) == (1, 0)
        await reaches(url, "nodes", head)
        assert not supervision.healthy
        skip = SourcePositionSkipped(generation=1, sequence=2, reason="it cannot be decided")
        head = await publish(ledger, [event(skip, "log", source="/operators/eva")])
        await reaches(url, "away", head)
        assert is_stopped("away") == 0
    assert [row[0] for row in table(url, "away", "node")] == ["n1", "n3"]
    await assert_true(ledger, url, [FailsAtTwo()])


async def test_a_newer_build_goes_on_where_the_older_one_failed(ledger: JetStreamLedger, url: str) -> None:
    head = await publish(ledger, [registered(number) for number in (1, 2, 3)])
    async with supervised(ledger, url, FailsAtTwo()) as supervision:
        await stops(supervision, "away")
    async with supervised(ledger, url, AwayProjection()):
        await reaches(url, "away", head)
    assert [row[0] for row in table(url, "away", "node")] == ["n1", "n2", "n3"]


async def test_a_decision_too_large_is_not_committed_and_larger_payloads_let_it_through(url: str, root: Path) -> None:
    with NatsServer(root / "nats", max_payload_bytes=SMALL_PAYLOAD_BYTES) as small:
        async with jetstream_ledger(small.url) as ledger:
            head = await publish(ledger, [registered(number) for number in (1, 2, 3)])
            async with supervised(ledger, url, DecidesLarge()) as supervision:
                reason = await stops(supervision, "away")
                assert f"The decision {LARGE.TYPE} on 'w1' has " in reason
                assert not execute(url, "SELECT * FROM gpuledger.outbox")
                small.stop()
                with NatsServer(root / "nats"):
                    await reaches(url, "away", head + 1)
                    assert [one.data for one in await decided(ledger)] == [LARGE]


async def test_what_nats_no_longer_takes_stops_and_a_rebuild_leaves_it_out(url: str, root: Path) -> None:
    with NatsServer(root / "nats") as large:
        async with jetstream_ledger(large.url) as ledger:
            failing = Failing(ledger)
            failing.fails = "before"
            head = await publish(ledger, [registered(number) for number in (1, 2, 3)])
            with pytest.raises(PublishError):
                await Runner(DecidesLarge(), failing, url, settings=QUICK).catch_up(head)
    assert len(execute(url, "SELECT * FROM gpuledger.outbox WHERE status = 'ready'")) == 1
    with NatsServer(root / "nats", max_payload_bytes=SMALL_PAYLOAD_BYTES) as small:
        async with jetstream_ledger(small.url) as ledger:
            with pytest.raises(DecisionRefusedError, match=r"max_payload.*`gpuledger replay away`"):
                await Runner(DecidesLarge(), ledger, url, settings=QUICK).run()
            await rebuild(AwayProjection(), ledger, url)
            async with running(Runner(AwayProjection(), ledger, url, settings=QUICK)):
                await reaches(url, "away", head + 2)
            assert [one.subject for one in await decided(ledger)] == ["n1", "n2"]
            await assert_true(ledger, url, [AwayProjection()])
    found = await checkpoint(url, "away")
    assert found is not None
    assert found.events == head + 2
