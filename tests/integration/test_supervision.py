"""What is measured of projections that run, wait or have just begun, on real servers."""

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import UTC, datetime

import pytest
from prometheus_client import REGISTRY

from gpuledger.compose.up import health_of
from gpuledger.db.engine import connect
from gpuledger.db.locks import try_hold, try_lock
from gpuledger.events.device import DeviceFailed
from gpuledger.ledger.jetstream import JetStreamLedger
from gpuledger.projection.runner import Runner, writer_lock
from gpuledger.projection.supervision import Supervision
from gpuledger.readmodels.projections import DevicesProjection
from gpuledger.runtime.clock import Clock, system_clock
from gpuledger.runtime.telemetry import ProjectionMetrics
from support.events import event
from support.ledgers import everything
from support.projections import execute, publish, reaches, stop
from support.servers import database_name
from support.waiting import eventually

LATER = datetime(2100, 1, 1, tzinfo=UTC)


def metric(name: str) -> float | None:
    return REGISTRY.get_sample_value(f"gpuledger_projection_{name}", {"projection": "devices"})


async def becomes(name: str, value: float) -> None:
    async def is_it() -> bool:
        return metric(name) == pytest.approx(value)

    await eventually(is_it)


@asynccontextmanager
async def supervised(
    ledger: JetStreamLedger, url: str, *locks: str, clock: Clock = lambda: LATER
) -> AsyncIterator[Supervision]:
    """The devices projection, sampled often, at a time that stands still unless there is a `clock`."""
    supervision = Supervision([DevicesProjection()], ledger, url, clock, check_interval_s=0.02, other_locks=locks)
    tasks = [asyncio.create_task(work) for work in supervision.work()]
    try:
        yield supervision
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
        assert await try_lock(connection, writer_lock("devices"))
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


async def test_health_has_one_connection_and_replaces_it_when_it_is_lost(ledger: JetStreamLedger, url: str) -> None:
    sessions: list[int] = []
    times: set[object] = set()

    async def looked_often() -> bool:
        query = "SELECT pid, query_start FROM pg_stat_activity WHERE application_name = 'gpuledger health'"
        for pid, time in execute(url, query):
            if pid not in sessions:
                sessions.append(pid)
            times.add(time)
        return len(times) > 10

    async with supervised(ledger, url) as supervision:
        await eventually(looked_often)
        assert len(sessions) == 1
        supervision.checked_at = None
        execute(url, "SELECT pg_terminate_backend(%s)", sessions[0])
        times.clear()
        await eventually(looked_often)
        assert len(sessions) == 2
        assert supervision.reachable


async def test_a_stopped_projection_is_looked_at_over_the_same_connection(ledger: JetStreamLedger, url: str) -> None:
    await publish(ledger, [event(DeviceFailed(kind="DBE"), "d1")])
    await Runner(DevicesProjection(), ledger, url).catch_up(1)
    execute(url, "UPDATE gpuledger.projection SET generation = generation + 1")
    async with supervised(ledger, url) as supervision:

        async def stopped() -> bool:
            return supervision.health()["devices"].state == "stopped"

        await eventually(stopped)
        times: set[object] = set()

        async def looked_often() -> bool:
            times.update(
                execute(url, "SELECT query_start FROM pg_stat_activity WHERE application_name = 'gpuledger health'")
            )
            return len(times) > 10

        await eventually(looked_often)
        names = execute(
            url,
            "SELECT application_name FROM pg_stat_activity WHERE datname = current_database() "
            "AND application_name LIKE 'gpuledger%%' ORDER BY 1",
        )
        assert names == [("gpuledger health",)]


async def test_health_is_that_of_this_supervision_whatever_else_the_process_measures(
    ledger: JetStreamLedger, url: str
) -> None:
    """Two builds side by side in one process share their metrics."""
    async with supervised(ledger, url) as supervision:

        async def runs() -> bool:
            return supervision.health()["devices"].state == "running"

        await eventually(runs)
        ProjectionMetrics("devices").standing_by()
        assert supervision.health()["devices"].state == "running"


async def test_projections_wait_for_a_server_that_takes_writes(
    ledger: JetStreamLedger, url: str, postgres_server_url: str
) -> None:
    """As after a failover, when a proxy names a standby before it is promoted."""
    database = database_name(url)

    async def has_state(state: str) -> bool:
        return supervision.health()["devices"].state == state

    async with supervised(ledger, url) as supervision:
        await reaches(url, "devices", await publish(ledger, [event(DeviceFailed(kind="DBE"), "d1")]))
        execute(postgres_server_url, f"ALTER DATABASE {database} SET default_transaction_read_only = on")
        disconnect(postgres_server_url, database)
        try:
            await eventually(lambda: has_state("waiting"))
            head = await publish(ledger, [event(DeviceFailed(kind="DBE"), "d1", number=2)])
        finally:
            execute(postgres_server_url, f"ALTER DATABASE {database} RESET default_transaction_read_only")
        disconnect(postgres_server_url, database)
        await reaches(url, "devices", head)
        await eventually(lambda: has_state("running"))


async def test_health_says_who_leads_and_since_when(ledger: JetStreamLedger, url: str) -> None:
    await publish(ledger, [event(DeviceFailed(kind="DBE"), "d1")])
    async with supervised(ledger, url, "statuswriter") as supervision:

        async def says_since_when() -> bool:
            leader = supervision.leaders.get("devices")
            return leader is not None and leader.since is not None  # it has the lock a moment before it says so

        await eventually(says_since_when)
        leader = supervision.leaders["devices"]
        assert leader is not None
        assert leader.process.endswith(f"/{os.getpid()}")
        assert leader.since is not None
        assert supervision.leaders["statuswriter"] is None
        document = health_of(supervision, None).document["leaders"]
        assert document == {
            "devices": {"process": leader.process, "since": leader.since.isoformat()},
            "statuswriter": None,
        }
        labels = {"lock": "devices", "process": leader.process}
        assert REGISTRY.get_sample_value("gpuledger_leader", {"lock": "devices"}) == 1
        assert REGISTRY.get_sample_value("gpuledger_leader", {"lock": "statuswriter"}) == 0
        since = REGISTRY.get_sample_value("gpuledger_leader_since_timestamp_seconds", labels)
        assert since == leader.since.timestamp()
        async with connect(url, application_name="gpuledger statuswriter") as connection:
            assert await try_hold(connection, "statuswriter") is not None

            async def both() -> bool:
                return supervision.leaders["statuswriter"] is not None

            await eventually(both)


def disconnect(server_url: str, database: str) -> None:
    """End every session in a database."""
    execute(server_url, "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s", database)


async def test_nobody_is_shown_as_leader_while_postgres_does_not_answer(
    ledger: JetStreamLedger, url: str, postgres_server_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A metric that stood still would say for ever that all is well."""
    monkeypatch.setattr("gpuledger.projection.supervision.CHECK_AGE_MAX_S", 0.0)
    database = database_name(url)

    async def leads() -> bool:
        shown = REGISTRY.get_sample_value("gpuledger_leader", {"lock": "devices"})
        return shown == 1 and supervision.leaders.get("devices") is not None and answered() >= begun and lag() == 0

    def lag() -> float | None:
        return REGISTRY.get_sample_value("gpuledger_projection_lag_seconds", {"projection": "devices"})

    async def unknown() -> bool:
        return REGISTRY.get_sample_value("gpuledger_leader", {"lock": "devices"}) is None and lag() is None

    def answered() -> float:
        return REGISTRY.get_sample_value("gpuledger_servers_answered_timestamp_seconds") or 0

    begun = system_clock().timestamp()
    async with supervised(ledger, url, clock=system_clock) as supervision:
        await eventually(leads)
        execute(postgres_server_url, f"ALTER DATABASE {database} ALLOW_CONNECTIONS false")
        disconnect(postgres_server_url, database)
        await eventually(unknown)
        begun = system_clock().timestamp()
        execute(postgres_server_url, f"ALTER DATABASE {database} ALLOW_CONNECTIONS true")
        await eventually(leads)
