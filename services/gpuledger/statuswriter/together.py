"""Tasks that live and die together."""

import asyncio
from collections.abc import Coroutine, Iterable
from typing import Any

CANCEL_AGAIN_S = 1.0
"""How long something that was cancelled has to end before it is cancelled again: the NATS client swallows some."""


async def together(work: Iterable[Coroutine[Any, Any, None]]) -> None:
    """Run all of it until one fails; that failure is raised once the others have ended."""
    tasks = [asyncio.create_task(one) for one in work]
    try:
        await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        pending = set(tasks)
        while pending:
            _, pending = await asyncio.wait(pending, timeout=CANCEL_AGAIN_S)
            for task in pending:
                task.cancel()
