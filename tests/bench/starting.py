"""A process that starts a service's fold, and tells how long it took and its memory; started by `bench.restarting`."""

import asyncio
import json
import sys
from time import perf_counter

from bench.rebuilding import peak_kib
from gpuledger.edge.admission.cache import CacheProjection
from gpuledger.edge.statuswriter.desired.fold import DesiredProjection
from gpuledger.edge.statuswriter.desired.state import DesiredState
from gpuledger.events.position import events_up_to
from gpuledger.ledger.jetstream import connect_ledger
from gpuledger.projection.fold import Fold
from gpuledger.projection.kept_fold import KeptFold
from gpuledger.runtime.garbage import seldom_collected
from gpuledger.runtime.tasks import end

POLL_S = 0.05
PROJECTIONS = {one.name: one for one in (CacheProjection, DesiredProjection)}


async def main(nats_url: str, database_url: str, service: str) -> None:
    """Fold to the head as the service does, leave the snapshots that are due, and print what it took as JSON."""
    async with connect_ledger(nats_url, name="bench start") as ledger:
        began, read = perf_counter(), 0
        kept = KeptFold(PROJECTIONS[service](), ledger, database_url)
        writing = asyncio.create_task(kept.run())
        fold = await kept.load()
        with seldom_collected():
            async for messages in ledger.history(after=fold.sequence):
                fold.apply_all(messages)
                kept.folded(fold)
                read += len(messages)
        work = _work(fold)
        took_s, peak = perf_counter() - began, peak_kib()
        while not kept.is_idle:  # noqa: ASYNC110 - nothing else waits for it
            await asyncio.sleep(POLL_S)
        await end([writing])
    usage = {"took_s": took_s, "peak_kib": peak, "read": read, "log": events_up_to(fold.sequence), "work": work}
    print(json.dumps(usage))


def _work(fold: Fold) -> int:
    """How many objects the service has to look at, as far as it follows from the fold."""
    if not isinstance(fold.state, DesiredState):
        return 0
    fold.state.take_changed()
    return len(list(fold.state.keys())) + len(fold.state.take_occurrences())


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
