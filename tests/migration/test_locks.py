"""Advisory locks between connections of a real server."""

import asyncio
import os
import socket
from datetime import timedelta

import psycopg
import pytest

from gpuledger.db import locks
from gpuledger.db.engine import UNACKNOWLEDGED_MAX_S, connect
from gpuledger.db.errors import DatabaseUnavailableError, LockLostError
from gpuledger.db.locks import (
    APPLICATION_NAME_BYTES_MAX,
    HeldLock,
    LockCheck,
    leading_name,
    lock_holders,
    lock_key,
    lock_until_commit,
    stand_by,
    try_hold,
    try_lock,
    unlock,
    while_locked,
)
from gpuledger.runtime.clock import system_clock
from support.postgres_proxies import SilentProxy
from support.projections import dead_rows_kept, execute
from support.waiting import eventually

QUICK_S = 0.02
LONG_NAME = "gpuledger statuswriter"


def test_keys_are_the_same_everywhere_and_fit_a_bigint() -> None:
    assert lock_key("views") == lock_key("views") == 8040504797291987246
    assert all(0 <= lock_key(name) < 1 << 63 for name in map(str, range(1000)))


def test_a_holder_that_is_cut_off_stops_before_postgresql_gives_its_lock_away() -> None:
    check = LockCheck()
    assert check.interval_s + check.answer_timeout_s < UNACKNOWLEDGED_MAX_S - check.interval_s


async def test_a_lock_is_held_by_one_connection(database_url: str) -> None:
    async with (
        connect(database_url, application_name="one") as one,
        connect(database_url, application_name="two") as two,
    ):
        assert await try_lock(one, "writer")
        assert not await try_lock(two, "writer")
        assert await try_lock(two, "another")
        assert await unlock(one, "writer")
        assert not await unlock(one, "writer")
        await stand_by(two, "writer")
        assert not await try_lock(one, "writer")


async def test_who_stands_by_takes_over_and_can_be_cancelled(database_url: str) -> None:
    async with (
        connect(database_url, application_name="one") as one,
        connect(database_url, application_name="two") as two,
        connect(database_url, application_name="three") as three,
    ):
        assert await try_lock(one, "writer")
        waiting = asyncio.create_task(stand_by(two, "writer", interval_s=QUICK_S))
        await _has_asked(database_url, "two")
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        # Who is cancelled while it asks has no connection any more.
        again = asyncio.create_task(stand_by(three, "writer", interval_s=QUICK_S))
        await _has_asked(database_url, "three")
        assert not again.done()
        await unlock(one, "writer")
        await (await again).beat()
        assert not await try_lock(one, "writer")


async def test_nobody_leads_on_a_server_that_takes_no_writes(database_url: str) -> None:
    """A standby gives its locks to whoever asks, and refuses everything that the leader writes."""
    async with connect(
        database_url, application_name="one", settings={"default_transaction_read_only": "on"}
    ) as connection:
        with pytest.raises(DatabaseUnavailableError, match=r"takes no writes.*target_session_attrs=read-write"):
            await stand_by(connection, "writer")
        await connection.execute("SET default_transaction_read_only = off")
        await (await stand_by(connection, "writer")).beat()


async def test_who_stands_by_keeps_no_row_from_vacuum(database_url: str) -> None:
    async with (
        connect(database_url, application_name="one") as one,
        connect(database_url, application_name="two") as two,
    ):
        await one.execute("CREATE TABLE churned AS SELECT generate_series(1, 1000) AS number")
        assert await try_lock(one, "writer")
        waiting = asyncio.create_task(stand_by(two, "writer", interval_s=QUICK_S))
        await _has_asked(database_url, "two")
        await one.execute("DELETE FROM churned")
        await _has_asked(database_url, "two")

        async def has_no_snapshot() -> bool:
            query = "SELECT backend_xmin FROM pg_stat_activity WHERE application_name = 'two'"
            return execute(database_url, query) == [(None,)]

        await eventually(has_no_snapshot)  # but for the moments in which it asks
        assert dead_rows_kept(database_url, "churned") == 0
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting


async def test_a_transactions_lock_ends_with_it(database_url: str) -> None:
    async with (
        connect(database_url, application_name="one") as one,
        connect(database_url, application_name="two") as two,
    ):
        async with one.transaction():
            await lock_until_commit(one, "views")
            assert not await try_lock(two, "views")
        assert await try_lock(two, "views")


async def test_a_transaction_waits_for_a_lock_within_a_bound(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(locks, "LOCK_WAIT_MAX_S", 0.05)
    async with (
        connect(database_url, application_name="one") as one,
        connect(database_url, application_name="two") as two,
    ):
        assert await try_lock(one, "views")
        with pytest.raises(psycopg.errors.LockNotAvailable):
            async with two.transaction():
                await lock_until_commit(two, "views")
        assert await (await two.execute("SHOW lock_timeout")).fetchone() == ("0",)


async def test_a_lock_says_who_holds_it_since_when_and_nobody_after_a_crash(database_url: str) -> None:
    before = system_clock()
    async with connect(database_url, application_name="watching") as watching:
        async with connect(database_url, application_name="gpuledger devices") as one:
            assert await try_hold(one, "writer") is not None
            assert await try_lock(one, "unnamed")
            found = await lock_holders(watching, ["writer", "another"])
            holder = found["writer"]
            assert holder is not None
            assert (holder.application, holder.process) == (
                "gpuledger devices",
                f"{socket.gethostname()[-20:]}/{os.getpid()}",
            )
            assert holder.since is not None
            assert abs(holder.since - before) < timedelta(minutes=1)
            assert found["another"] is None
            execute(database_url, "SELECT pg_terminate_backend(%s)", one.info.backend_pid)

            async def is_free() -> bool:
                return await lock_holders(watching, ["writer"]) == {"writer": None}

            await eventually(is_free)
        async with connect(database_url, application_name="by hand") as other:
            assert await try_lock(other, "writer")
            found = await lock_holders(watching, ["writer"])
            assert found["writer"] == ("by hand", f"session {other.info.backend_pid}", None)


def test_a_long_host_name_keeps_the_end_that_tells_pods_apart() -> None:
    host = "a-release-with-a-very-long-name-gpuledger-7c9d8b6f5-x2x4z"
    name = leading_name(LONG_NAME, host, 1)
    assert name.endswith("7c9d8b6f5-x2x4z/1")
    assert len(f"{name} 20260101T000000Z") == APPLICATION_NAME_BYTES_MAX
    assert leading_name("gpuledger pools", "node-1", 4242) == "gpuledger pools node-1/4242"


async def test_work_under_a_lock_ends_when_the_lock_is_lost(database_url: str) -> None:
    turns: list[str] = []
    check = LockCheck(interval_s=0.01)

    async def cut() -> None:
        async with connect(database_url, application_name="cut") as connection:
            await connection.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name LIKE 'leader %'"
            )

    async def work() -> None:
        turns.append("leads")
        try:
            await cut()
            await asyncio.Event().wait()
        finally:
            turns.append("ended")

    with pytest.raises(LockLostError, match="'writer'"):
        await while_locked(database_url, "writer", work, application_name="leader", check=check)
    assert turns == ["leads", "ended"]

    async def ends() -> None:
        turns.append("leads again")

    await while_locked(database_url, "writer", ends, application_name="leader", check=check)
    assert turns[-1] == "leads again"


async def test_work_under_a_lock_ends_when_packets_stop(database_url: str) -> None:
    """The proxy's own kernel goes on acknowledging, so that nothing but the heartbeat can notice."""
    turns: list[str] = []
    check = LockCheck(interval_s=0.01, answer_timeout_s=0.2)
    with SilentProxy(database_url) as proxy:

        async def work() -> None:
            proxy.swallow()
            turns.append("cut off")
            try:
                await asyncio.Event().wait()
            finally:
                turns.append("ended")

        with pytest.raises(LockLostError, match=r"'writer' \(time-out\)"):
            await while_locked(proxy.url, "writer", work, application_name="leader", check=check)
    assert turns == ["cut off", "ended"]


async def test_who_stands_by_gives_up_a_server_that_falls_silent(database_url: str) -> None:
    """Otherwise its session could get the lock and keep it, and nobody would know."""
    asked = asyncio.Event()

    async def asks() -> None:
        asked.set()

    check = LockCheck(answer_timeout_s=0.2)
    with SilentProxy(database_url) as proxy:
        async with (
            connect(database_url, application_name="leader") as leader,
            connect(proxy.url, application_name="standby") as standby,
        ):
            assert await try_lock(leader, "writer")
            standing_by = asyncio.create_task(stand_by(standby, "writer", check, interval_s=0.01, before_each=asks))
            await asked.wait()
            proxy.swallow()
            with pytest.raises(DatabaseUnavailableError, match="does not answer who holds the lock 'writer'"):
                await standing_by


async def test_a_lock_whose_session_changed_is_lost(database_url: str) -> None:
    async with connect(database_url, application_name="one") as one:
        assert await try_lock(one, "writer")
        held = HeldLock(one, "writer", one.info.backend_pid + 1, LockCheck())
        with pytest.raises(LockLostError, match="another session answers"):
            await held.beat()


async def _has_asked(database_url: str, application: str) -> None:
    """Return when a session has asked for a lock twice more."""
    times: set[object] = set()

    async def asked() -> bool:
        found = execute(
            database_url,
            "SELECT query_start FROM pg_stat_activity WHERE application_name = %s AND query LIKE '%%try_advisory%%'",
            application,
        )
        times.update(found)
        return len(times) > 2

    await eventually(asked)


def test_a_proxy_that_closes_takes_no_more_connections(database_url: str) -> None:
    with SilentProxy(database_url) as proxy:
        proxy.connect()
    with pytest.raises(ConnectionAbortedError):
        proxy.connect()
