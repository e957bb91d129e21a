"""Waits for what other tasks, processes and servers come to by themselves; every wait has an end."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

WAIT_MAX_S: Final = 60.0


async def eventually(condition: Callable[[], Awaitable[object]], *, interval_s: float = 0.02) -> None:
    """Return when the condition holds.

    Raises:
        TimeoutError: it has not come to hold in `WAIT_MAX_S`.
    """
    async with asyncio.timeout(WAIT_MAX_S):
        while not await condition():  # noqa: ASYNC110 - there is no notification
            await asyncio.sleep(interval_s)
