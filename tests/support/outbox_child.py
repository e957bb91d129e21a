"""A process that records facts in an outbox, one after the other, for tests that kill it or fill its disk.

It prints `kept N` for each fact on disk, and `held N` for each in memory alone. Where the disk is bounded,
the ledger gets nothing in the first half of the way, so that something waits.
"""

import asyncio
import resource
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from gpuledger.agent.outbox.outbox import open_outbox
from gpuledger.ledger.api import Ledger
from gpuledger.ledger.errors import LedgerUnavailableError
from gpuledger.ledger.jetstream import connect_ledger
from gpuledger.runtime.clock import system_clock
from gpuledger.runtime.tasks import end
from support.outbox import NODE, fact

DRAIN_S = 50.0


async def main(folder: Path, url: str, first: int, count: int, file_size_max: int) -> None:
    recorded = 0

    @asynccontextmanager
    async def connect() -> AsyncIterator[Ledger]:
        if recorded < count // 2 and (file_size_max or "full" in folder.parts):
            raise LedgerUnavailableError("not yet")
        async with connect_ledger(url, name="agent", connect_timeout_s=1.0, publish_timeout_s=1.0) as ledger:
            yield ledger

    async with open_outbox(folder, NODE, version="1.0", hardware="simulated") as outbox:
        if file_size_max:
            resource.setrlimit(resource.RLIMIT_FSIZE, (file_size_max, resource.RLIM_INFINITY))
        recording = asyncio.create_task(outbox.run(connect))
        for number in range(first, first + count):
            await outbox.record([fact(number, at=system_clock(), size=500)])
            recorded += 1
            sys.stdout.write(f"{'kept' if outbox.status.durable else 'held'} {number}\n")
            sys.stdout.flush()
        async with asyncio.timeout(DRAIN_S):
            while outbox.status.waiting:  # noqa: ASYNC110 - it ends when all is there, and not before
                await asyncio.sleep(0.01)
        await end([recording])


def run() -> None:
    """Do it as the arguments say: folder, URL, first number, count, and how large a file may get (0: any size)."""
    folder, url, *numbers = sys.argv[1:]
    first, count, file_size_max = map(int, numbers)
    asyncio.run(main(Path(folder), url, first, count, file_size_max))
