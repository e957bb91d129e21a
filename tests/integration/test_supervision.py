"""What is measured of projections that run, wait or have just begun, on real servers."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import UTC, datetime

import pytest
from prometheus_client import REGISTRY

from gpuledger.db.engine import connect
from gpuledger.db.locks import lock
from gpuledger.events.device import DeviceFailed
from gpuledger.ledger.jetstream import JetStreamLedger
from gpuledger.projection.runner import writer_lock
from gpuledger.projection.supervision import Supervision
from gpuledger.readmodels.projections import DevicesProjection
from gpuledger.runtime.telemetry import ProjectionMetrics
from support.events import event
from support.ledgers import everything
from support.projections import publish, stop
from support.waiting import eventually

LATER = datetime(2100, 1, 1, tzinfo=UTC)


def metric(name: str) -> float | None:
    return REGISTRY.get_sample_value(f"gpuledger_projection_{name}", {"projection": "devices"})


async def becomes(name: str, value: float) -> None:
    async def is_it() -> bool:
        return metric(name) == pytest.approx(value)

    await eventually(is_it)


@asynccontextmanager
async def supervised(ledger: JetStreamLedger, url: str) -> AsyncIterator[None]:
    """The devices projection, sampled often, at a time that stands still."""
    supervision = Supervision([DevicesProjection()], ledger, url, lambda: LATER, check_interval_s=0.02)
    tasks = [asyncio.create_task(work) for work in supervision.work()]
    try:
        yield
    finally:
        for task in tasks:
            await stop(task)


async def test_the_lag_of_a_projection_that_waits_is_the_age_of_what_it_has_to_take_first(
    ledger: JetStreamLedger, url: str
) -> None:
    await publish(ledger, [event(DeviceFailed(kind="DBE"), "d1", number=number) for number in (1, 2, 3)])
    first = (await everything(ledger))[0]
    async with AsyncExitStack() as stack:
        connection = await stack.enter_async_context(connect(url, application_name="another writer"))
        await lock(connection, writer_lock("devices"))
        async with supervised(ledger, url):
            await becomes("lag_seconds", LATER.timestamp() - first.recorded_ns / 1e9)
            assert metric("lag_events") == 3
            await stack.aclose()
            await becomes("lag_seconds", 0)
            assert metric("lag_events") == 0


async def test_the_position_is_known_before_anything_new_comes(ledger: JetStreamLedger, url: str) -> None:
    head = await publish(ledger, [event(DeviceFailed(kind="DBE"), "d1", number=number) for number in (1, 2, 3)])
    async with supervised(ledger, url):
        await becomes("sequence", head)
    ProjectionMetrics("devices").writing(0)
    async with supervised(ledger, url):
        await becomes("sequence", head)
