"""Tasks that live and die together."""

import asyncio
from collections.abc import Coroutine, Iterable
from typing import Any

from gpuledger.runtime.tasks import end


async def together(work: Iterable[Coroutine[Any, Any, None]]) -> None:
    """Run all of it until one fails; that failure is raised once the others have ended."""
    tasks = [asyncio.create_task(one) for one in work]
    try:
        await asyncio.gather(*tasks)
    finally:
        await end(tasks)
