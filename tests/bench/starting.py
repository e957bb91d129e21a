"""A process that starts admission's fold and tells how long that took and its memory; started by `bench.restarting`."""

import asyncio
import json
import sys
from time import perf_counter

from bench.rebuilding import peak_kib
from gpuledger.edge.admission.cache import CacheProjection
from gpuledger.events.position import events_up_to
from gpuledger.ledger.jetstream import connect_ledger
from gpuledger.projection.kept_fold import KeptFold
from gpuledger.runtime.garbage import seldom_collected
from gpuledger.runtime.tasks import end

POLL_S = 0.05


async def main(nats_url: str, database_url: str) -> None:
    """Fold to the head as admission does, leave the snapshots that are due, and print what it took as JSON."""
    async with connect_ledger(nats_url, name="bench start") as ledger:
        began, read = perf_counter(), 0
        kept = KeptFold(CacheProjection(), ledger, database_url)
        writing = asyncio.create_task(kept.run())
        fold = await kept.load()
        with seldom_collected():
            async for messages in ledger.history(after=fold.sequence):
                fold.apply_all(messages)
                kept.folded(fold)
                read += len(messages)
        took_s, peak = perf_counter() - began, peak_kib()
        while not kept.is_idle:  # noqa: ASYNC110 - nothing else waits for it
            await asyncio.sleep(POLL_S)
        await end([writing])
    print(json.dumps({"took_s": took_s, "peak_kib": peak, "read": read, "log": events_up_to(fold.sequence)}))


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
