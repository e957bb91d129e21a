"""Advisory locks by name: who may write what. They are held by a connection, and gone with it.

A lock belongs to one database: the same name in another database is another lock.
"""

from hashlib import sha256

import psycopg

from gpuledger.db.engine import AsyncConnection
from gpuledger.db.errors import LockedError

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


async def unlock(connection: AsyncConnection, name: str) -> bool:
    """Give the lock back; says whether this connection held it."""
    cursor = await connection.execute("SELECT pg_advisory_unlock(%s)", [lock_key(name)])
    return await cursor.fetchone() == (True,)


async def lock_until_commit(connection: AsyncConnection, name: str) -> None:
    """Wait until the lock is ours, for the rest of the transaction under way."""
    await connection.execute("SELECT pg_advisory_xact_lock(%s)", [lock_key(name)])
