"""One connection for what is looked up again and again, instead of a new one each time."""

import asyncio

from gpuledger.db.engine import AsyncConnection, open_connection
from gpuledger.db.errors import DatabaseError
from gpuledger.runtime.backoff import Backoff, Jitter, Retries, system_jitter

RECONNECT = Backoff(first_s=0.5, max_s=5.0)
"""How soon another connection is tried after one that could not be made."""


class LastingConnection:
    """Opened at the first use and kept; a lost one is replaced at the next use, as soon as its backoff allows.

    Transactions commit by themselves, so nothing stands open between two uses.
    """

    def __init__(
        self, url: str, *, application_name: str, backoff: Backoff = RECONNECT, jitter: Jitter = system_jitter
    ) -> None:
        self._url = url
        self._application_name = application_name
        self._retries = Retries(backoff, jitter)
        self._connection: AsyncConnection | None = None
        self._failure: DatabaseError | None = None
        self._not_before_s = 0.0
        self._opening = asyncio.Lock()

    async def get(self) -> AsyncConnection:
        """The connection.

        Raises:
            DatabaseError: none can be made, or the last attempt failed too short a while ago for another one.
        """
        async with self._opening:
            if self._connection is None or self._connection.closed:
                self._connection = await self._open()
            return self._connection

    async def close(self) -> None:
        """Close it; the next use would open another."""
        if self._connection is not None:
            await self._connection.close()

    async def _open(self) -> AsyncConnection:
        now = asyncio.get_running_loop().time
        if self._failure is not None and now() < self._not_before_s:
            raise self._failure.with_traceback(None)
        try:
            connection = await open_connection(self._url, application_name=self._application_name)
        except DatabaseError as error:
            self._failure = error
            self._not_before_s = now() + self._retries.pause_s()
            raise
        self._failure = None
        self._retries.reset()
        return connection
