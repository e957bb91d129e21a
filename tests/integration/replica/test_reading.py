"""Rows that are read from a standby: awaited, as of a time that is reported, and read again after a conflict."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import nullcontext

import psycopg
import pytest

from gpuledger.db.engine import AsyncConnection
from gpuledger.db.errors import RecoveryConflictError
from gpuledger.db.readonly import read_only
from gpuledger.db.replica import CONFLICT_RETRIES_MAX, past_conflicts, replay_of
from gpuledger.events.device import DeviceFailed, DeviceInserted
from gpuledger.events.envelope import Decoded
from gpuledger.readmodels.projections import DevicesProjection, NodesProjection
from gpuledger.tools.queries.backend import Backend, bring_current, one_session, read
from gpuledger.tools.queries.replica import Replica
from gpuledger.tools.reporting import Silent
from support.events import event
from support.ledgers import jetstream_ledger
from support.projections import execute, publish
from support.standby import StandbyServer, ask, pause_replay, replayed, resume_replay
from support.waiting import eventually

NOBODY = "postgresql://nobody@127.0.0.1:1/nothing"
"""A primary that is away."""

DEVICES = b"SELECT device FROM gpuledger_live.device ORDER BY device"


def failed(device: str, number: int) -> Decoded:
    return event(DeviceFailed(kind="DBE"), device, number=number)


def facts() -> list[Decoded]:
    return [event(DeviceInserted(slot="n1/0"), "d1", at=1, number=1), failed("d1", 2)]


@pytest.fixture
async def backend(clean_nats_url: str, url: str) -> AsyncIterator[Backend]:
    """The primary, which the rows of some facts stand in."""
    async with jetstream_ledger(clean_nats_url) as ledger:
        found = Backend(ledger, url, clean_nats_url, None)
        await publish(ledger, facts())
        await bring_current(found)
        yield found


class Lines(Silent):
    """Keeps the lines."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def message(self, text: str) -> None:
        self.lines.append(text)


def on(replica_url: str, backend: Backend, *, wait_s: float) -> tuple[Backend, Lines]:
    """The same ledger, with a replica that answers, and a primary that nobody reaches."""
    lines = Lines()
    replica = Replica(replica_url, backend.ledger, lines, wait_s=wait_s)
    return Backend(backend.ledger, NOBODY, backend.nats_url, None, lines, replica=replica), lines


async def devices(backend: Backend) -> list[str]:
    async def work(connection: AsyncConnection) -> list[str]:
        return [device for (device,) in await (await connection.execute(DEVICES)).fetchall()]

    await bring_current(backend, [DevicesProjection()])
    return await read(backend, work, application_name="gpuledger test")


async def fall_behind(backend: Backend, url: str, standby: StandbyServer) -> None:
    """Let the primary have an event more than the standby, whose replay pauses."""
    await replayed(url, standby)
    pause_replay(standby)
    await publish(backend.ledger, [failed("d2", 3)])
    await bring_current(backend, [DevicesProjection()])


async def test_rows_are_awaited_on_the_replica(
    backend: Backend, replica_url: str, url: str, standby: StandbyServer
) -> None:
    await fall_behind(backend, url, standby)
    asking, lines = on(replica_url, backend, wait_s=60)
    task = asyncio.create_task(devices(asking))

    async def is_waiting() -> bool:
        query = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'gpuledger test' AND query = 'ROLLBACK'"
        return ask(standby, query) == [(1,)]

    await eventually(is_waiting)
    resume_replay(standby)
    assert await task == ["d1", "d2"]
    assert not lines.lines


async def test_a_replica_that_does_not_get_there_says_how_far_it_is(
    backend: Backend, replica_url: str, url: str, standby: StandbyServer
) -> None:
    await fall_behind(backend, url, standby)
    asking, lines = on(replica_url, backend, wait_s=0)
    assert await devices(asking) == ["d1"]
    behind, replay = lines.lines
    assert (
        "Projection devices is 1 events behind the log; what follows is as of its checkpoint, 1/2, recorded" in behind
    )
    assert "has replayed what was committed by 20" in replay
    assert "its replay is paused" in replay
    assert "Without DATABASE_READ_URL the primary answers" in replay


async def test_projections_with_one_checkpoint_are_one_line(
    backend: Backend, replica_url: str, url: str, standby: StandbyServer
) -> None:
    await replayed(url, standby)
    pause_replay(standby)
    await publish(backend.ledger, [failed("d2", 3)])
    asking, lines = on(replica_url, backend, wait_s=0)
    await bring_current(asking, [DevicesProjection(), NodesProjection()])
    await read(asking, replay_of, application_name="gpuledger test")
    assert lines.lines[0].startswith(
        "Projections devices, nodes are 1 events behind the log; what follows is as of their"
    )


@pytest.mark.parametrize("is_idle", [True, False], ids=["between statements", "within a statement"])
@pytest.mark.parametrize("is_shared", [False, True], ids=["a session each", "one session"])
async def test_what_recovery_cancels_is_asked_again(
    backend: Backend, replica_url: str, url: str, standby: StandbyServer, is_idle: bool, is_shared: bool
) -> None:
    asking, _ = on(replica_url, backend, wait_s=60)
    times = 0

    async def work(connection: AsyncConnection) -> int:
        nonlocal times
        times += 1
        await connection.execute(DEVICES)
        if times == 1:
            await conflict(connection, url, standby, is_idle=is_idle)
        return times

    await bring_current(asking, [DevicesProjection()])
    await replayed(url, standby)
    async with one_session(asking, "gpuledger test") if is_shared else nullcontext(asking) as opened:
        assert await read(opened, work, application_name="gpuledger test") == 2


async def conflict(connection: AsyncConnection, url: str, standby: StandbyServer, *, is_idle: bool) -> None:
    """Have the primary vacuum rows that the transaction may still see, until that cancels it."""
    question = "SELECT 1" if is_idle else "SELECT pg_sleep(600)"
    asking = None if is_idle else asyncio.create_task(connection.execute(question))

    async def is_asking() -> bool:
        return ask(standby, "SELECT 1 FROM pg_stat_activity WHERE query = %s", question) != []

    async def is_canceled() -> bool:
        # Another session of the primary may keep these rows for a moment, and vacuum then leaves them.
        execute(url, "UPDATE gpuledger_live.device SET device = device")
        execute(url, "VACUUM gpuledger_live.device")
        await replayed(url, standby)
        if asking is None:
            await connection.execute("SELECT 1")
        return asking is not None and asking.done()

    if asking is not None:
        await eventually(is_asking)
    await eventually(is_canceled)
    if asking is not None:
        await asking


async def test_what_recovery_cancels_each_time_ends_with_what_to_do(
    backend: Backend, replica_url: str, url: str, standby: StandbyServer
) -> None:
    times, pauses = 0, list[float]()

    async def work() -> None:
        nonlocal times
        times += 1
        async with read_only(replica_url) as connection:
            await connection.execute(DEVICES)
            await conflict(connection, url, standby, is_idle=False)

    async def pause(seconds: float) -> None:
        pauses.append(seconds)

    await replayed(url, standby)
    with pytest.raises(
        RecoveryConflictError, match=r"max_standby_streaming_delay .* hot_standby_feedback = on"
    ) as found:
        await past_conflicts(work, pause=pause)
    assert "User query might have needed to see row versions that must be removed" in str(found.value)
    assert times == CONFLICT_RETRIES_MAX + 1
    assert pauses == sorted(pauses)
    assert len(pauses) == CONFLICT_RETRIES_MAX


async def test_what_has_another_cause_is_not_asked_again(replica_url: str, url: str, standby: StandbyServer) -> None:
    times = 0

    async def work() -> None:
        nonlocal times
        times += 1
        async with read_only(replica_url, statement_timeout_s=1) as connection:
            await connection.execute("SELECT pg_sleep(600)")

    await replayed(url, standby)
    with pytest.raises(psycopg.errors.QueryCanceled):
        await past_conflicts(work)
    assert times == 1
