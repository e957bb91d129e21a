"""Being the one instance that records: a lock in PostgreSQL, held by a connection that is watched.

The lock is lost with its connection, and nowhere else. That is noticed when the connection breaks, or when it does not
answer in time; then whatever runs under the lock is cancelled before anything else happens.
"""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Final

import psycopg

from gpuledger.db.engine import AsyncConnection, connect
from gpuledger.db.locks import lock
from gpuledger.edge.watchers.errors import LockLostError
from gpuledger.edge.watchers.tasks import first_of

LOCK: Final = "watchers"
"""The name of the lock."""


async def while_locked(
    database_url: str, work: Callable[[], Coroutine[Any, Any, None]], *, check_s: float, answer_timeout_s: float
) -> None:
    """Wait for the lock, and run `work` until it ends or the lock is lost.

    Raises:
        LockLostError: the lock is gone.
        DatabaseUnavailableError: there is no connection to be had.
    """
    async with connect(database_url, application_name="gpuledger watchers") as connection:
        await lock(connection, LOCK)
        await first_of(_guard(connection, check_s, answer_timeout_s), work())


async def _guard(connection: AsyncConnection, check_s: float, answer_timeout_s: float) -> None:
    """Return never; raise when the connection, and the lock with it, is lost."""
    try:
        while True:
            # Waiting for notifications is how a broken connection is noticed at once; none are ever sent.
            async for _ in connection.notifies(timeout=check_s):
                pass
            async with asyncio.timeout(answer_timeout_s):
                await connection.execute("SELECT 1")
    except (psycopg.OperationalError, TimeoutError) as error:
        raise LockLostError(
            f"PostgreSQL no longer answers for the lock {LOCK!r} ({str(error).strip() or 'time-out'}). "
            "Nothing more is recorded until it is ours again."
        ) from error
