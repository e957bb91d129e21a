"""Ending tasks for certain."""

import asyncio
from collections.abc import Collection
from typing import Any, Final

CANCEL_AGAIN_S: Final = 1.0
"""How long something that was cancelled has to end before it is cancelled again."""


async def end(tasks: Collection["asyncio.Task[Any]"]) -> None:
    """Cancel tasks and return when all have ended, whatever came of them.

    A cancellation can get lost: `asyncio.wait_for` of Python 3.11, which the NATS client uses, swallows one that
    comes with the result that it waits for. So it is repeated.
    """
    pending = {task for task in tasks if not task.done()}
    for task in pending:
        if not task.cancelling():  # a second cancellation would interrupt an orderly end
            task.cancel()
    while pending:
        _, pending = await asyncio.wait(pending, timeout=CANCEL_AGAIN_S)
        for task in pending:
            task.cancel()
