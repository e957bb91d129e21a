"""Advisory locks between connections of a real server."""

import asyncio

import pytest

from gpuledger.db.engine import AsyncConnection, connect
from gpuledger.db.errors import LockedError, LockLostError
from gpuledger.db.locks import LockCheck, lock, lock_key, lock_until_commit, try_lock, unlock, while_locked

DEADLINE_S = 30


def test_keys_are_the_same_everywhere_and_fit_a_bigint() -> None:
    assert lock_key("views") == lock_key("views") == 8040504797291987246
    assert all(0 <= lock_key(name) < 1 << 63 for name in map(str, range(1000)))


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
        await lock(two, "writer")
        assert not await try_lock(one, "writer")


async def test_waiting_can_be_cancelled(database_url: str) -> None:
    async with (
        connect(database_url, application_name="one") as one,
        connect(database_url, application_name="two") as two,
    ):
        await lock(one, "writer")
        waiting = asyncio.create_task(lock(two, "writer"))
        await _until_waiting(one)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        await unlock(one, "writer")
        assert await try_lock(one, "writer")


async def test_a_lock_time_out_is_reported_as_one(database_url: str) -> None:
    hurried = connect(database_url, application_name="two", options="-c lock_timeout=50ms")
    async with connect(database_url, application_name="one") as one, hurried as two:
        await lock(one, "writer")
        with pytest.raises(LockedError, match="'writer'"):
            await lock(two, "writer")


async def test_a_transactions_lock_ends_with_it(database_url: str) -> None:
    async with (
        connect(database_url, application_name="one") as one,
        connect(database_url, application_name="two") as two,
    ):
        async with one.transaction():
            await lock_until_commit(one, "views")
            assert not await try_lock(two, "views")
        assert await try_lock(two, "views")


async def test_work_under_a_lock_ends_when_the_lock_is_lost(database_url: str) -> None:
    turns: list[str] = []
    check = LockCheck(interval_s=0.01)

    async def cut() -> None:
        async with connect(database_url, application_name="cut") as connection:
            await connection.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'leader'"
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


async def _until_waiting(connection: AsyncConnection) -> None:
    async with asyncio.timeout(DEADLINE_S):
        while True:
            cursor = await connection.execute(
                "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted "
                "AND database = (SELECT oid FROM pg_database WHERE datname = current_database())"
            )
            if await cursor.fetchone() == (1,):
                return
