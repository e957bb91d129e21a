"""Services that run beside a test."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Protocol, TypeVar

from support.projections import stop


class Service(Protocol):
    """Whatever runs until it is cancelled."""

    async def run(self) -> None: ...


S = TypeVar("S", bound=Service)


@asynccontextmanager
async def kept_running(service: S) -> AsyncIterator[S]:
    """A service that runs until the block ends, and no shorter."""
    task = asyncio.create_task(service.run())
    try:
        yield service
        assert not task.done(), task
    finally:
        await stop(task)
