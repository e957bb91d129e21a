"""Running things side by side, and looking up from what one waits for. Every wait here can be cancelled."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Coroutine
from typing import Any, TypeVar

from gpuledger.runtime.tasks import end

T = TypeVar("T")


async def first_of(*works: Coroutine[Any, Any, None]) -> None:
    """Run until one ends, and cancel the others before anything else happens; raises what the first one raised."""
    tasks = [asyncio.create_task(work) for work in works]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        await end(tasks)
    for task in tasks:
        if task in done:
            task.result()


async def ticking(items: AsyncIterator[T], interval_s: float) -> AsyncGenerator[T | None]:
    """The items as they come, and None whenever none came for `interval_s`."""
    while True:
        following = asyncio.create_task(_next(items))
        try:
            while not (await asyncio.wait([following], timeout=interval_s))[0]:
                yield None
        finally:
            await end([following])
        try:
            item = following.result()
        except StopAsyncIteration:
            return
        yield item


async def _next(items: AsyncIterator[T]) -> T:
    return await anext(items)
