"""One ledger connection per agent, which all of its parts share: ten thousand nodes open ten thousand connections.

The first user opens it and the last one closes it. A connection that is no longer usable is replaced for the next user;
those that still hold the old one notice by their own errors.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar


class Usable(Protocol):
    """A connection that knows whether it can still be used."""

    @property
    def is_usable(self) -> bool:
        """Whether it can serve another user."""
        ...


C = TypeVar("C", bound=Usable)


@dataclass(slots=True)
class _Open(Generic[C]):
    connection: C
    closing: AsyncExitStack
    users: int = 0


class SharedConnection(Generic[C]):
    """A shared connection; `connect()` lends it for the length of a block."""

    def __init__(self, connect: Callable[[], AbstractAsyncContextManager[C]]) -> None:
        self._connect = connect
        self._opening = asyncio.Lock()
        self._open: _Open[C] | None = None

    @asynccontextmanager
    async def connect(self) -> AsyncIterator[C]:
        """The connection, opened if need be; raises what connecting raises."""
        async with self._opening:
            lent = await self._usable()
            lent.users += 1
        try:
            yield lent.connection
        finally:
            lent.users -= 1
            if not lent.users:
                if self._open is lent:
                    self._open = None
                await lent.closing.aclose()

    async def _usable(self) -> _Open[C]:
        if self._open is None or not self._open.connection.is_usable:
            async with AsyncExitStack() as closing:
                connection = await closing.enter_async_context(self._connect())
                self._open = _Open(connection, closing.pop_all())
        return self._open
