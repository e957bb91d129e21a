"""One connection to the ledger for all parts of the agent: ten thousand nodes have ten thousand agents.

Whoever uses it knows nothing of the others: it is opened by the first and closed by the last, and one that will not
serve again is replaced for whoever comes next, while those who still have it find out by themselves.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from typing import Generic, Protocol, TypeVar


class Usable(Protocol):
    """A connection that knows whether it is worth anything."""

    @property
    def is_usable(self) -> bool:
        """Whether it may serve again."""
        ...


C = TypeVar("C", bound=Usable)


class _Held(Generic[C]):
    """A connection that is open, and how many use it."""

    def __init__(self, connection: C, closing: AsyncExitStack) -> None:
        self.connection = connection
        self.closing = closing
        self.users = 0


class Link(Generic[C]):
    """A connection to be shared; `link.connect()` gives it for the length of a block."""

    def __init__(self, connect: Callable[[], AbstractAsyncContextManager[C]]) -> None:
        self._connect = connect
        self._opening = asyncio.Lock()
        self._held: _Held[C] | None = None

    @asynccontextmanager
    async def connect(self) -> AsyncIterator[C]:
        """The connection; raises what connecting raises."""
        async with self._opening:
            held = await self._hold()
            held.users += 1
        try:
            yield held.connection
        finally:
            held.users -= 1
            if not held.users:
                if self._held is held:
                    self._held = None
                await held.closing.aclose()

    async def _hold(self) -> _Held[C]:
        if self._held is None or not self._held.connection.is_usable:
            async with AsyncExitStack() as closing:
                connection = await closing.enter_async_context(self._connect())
                self._held = _Held(connection, closing.pop_all())
        return self._held
