"""Advisory locks by name, which elect the one process that may write something.

A connection holds a lock, and the lock is gone with it. A lock belongs to one database: the same name in another
database is another lock.
"""

import asyncio
from collections.abc import Callable
from hashlib import sha256
from typing import NamedTuple

import psycopg

from gpuledger.db.engine import AsyncConnection, connect
from gpuledger.db.errors import LockedError, LockLostError
from gpuledger.runtime.tasks import Work, run_until_one_ends

VIEWS_LOCK = "views"
"""Who makes the views anew takes this first, before any table: see `lock_until_commit`."""

_KEY_MASK = (1 << 63) - 1


def lock_key(name: str) -> int:
    """The number that PostgreSQL knows a lock by; the same in every process, 63 bits wide."""
    return int.from_bytes(sha256(f"gpuledger:{name}".encode()).digest()[:8], "big") & _KEY_MASK


async def try_lock(connection: AsyncConnection, name: str) -> bool:
    """Take the lock if nobody holds it; says whether this connection has it now."""
    cursor = await connection.execute("SELECT pg_try_advisory_lock(%s)", [lock_key(name)])
    return await cursor.fetchone() == (True,)


async def lock(connection: AsyncConnection, name: str) -> None:
    """Wait until the lock is ours. Cancelling takes the wait back from the server.

    Raises:
        LockedError: the connection has a `lock_timeout`, and it passed.
    """
    try:
        await connection.execute("SELECT pg_advisory_lock(%s)", [lock_key(name)])
    except psycopg.errors.LockNotAvailable as error:
        raise LockedError(f"Another process holds {name!r}. Stop it, or wait until it ends.") from error


class LockCheck(NamedTuple):
    """How often the connection that holds a lock is checked, and how soon PostgreSQL has to answer."""

    interval_s: float = 1.0
    answer_timeout_s: float = 5.0


async def while_locked(
    database_url: str, name: str, work: Callable[[], Work], *, application_name: str, check: LockCheck
) -> None:
    """Wait for the lock, and run `work` until it ends or the lock is lost, before anything else happens.

    Raises:
        LockLostError: the connection, and the lock with it, is lost.
        DatabaseUnavailableError: no connection can be made.
    """
    async with connect(database_url, application_name=application_name) as connection:
        await lock(connection, name)
        await run_until_one_ends(_watch(connection, name, check), work())


async def _watch(connection: AsyncConnection, name: str, check: LockCheck) -> None:
    """Never return; raise when the connection is lost."""
    try:
        while True:
            # Waiting for notifications reveals a broken connection at once; nobody ever sends one.
            async for _ in connection.notifies(timeout=check.interval_s):
                pass
            async with asyncio.timeout(check.answer_timeout_s):
                await connection.execute("SELECT 1")
    except (psycopg.OperationalError, TimeoutError) as error:
        raise LockLostError(
            f"PostgreSQL no longer answers for the lock {name!r} ({str(error).strip() or 'time-out'}). "
            "Nothing more is written until this process holds it again."
        ) from error


async def unlock(connection: AsyncConnection, name: str) -> bool:
    """Give the lock back; says whether this connection held it."""
    cursor = await connection.execute("SELECT pg_advisory_unlock(%s)", [lock_key(name)])
    return await cursor.fetchone() == (True,)


async def lock_until_commit(connection: AsyncConnection, name: str) -> None:
    """Wait until the lock is ours, for the rest of the transaction under way."""
    await connection.execute("SELECT pg_advisory_xact_lock(%s)", [lock_key(name)])
