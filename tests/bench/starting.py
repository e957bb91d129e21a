"""A process that starts folds of services, and tells how long it took and its memory; started by `bench.restarting`."""

import asyncio
import json
import sys
from time import perf_counter

from bench.rebuilding import peak_kib
from gpuledger.edge.admission.cache import CacheProjection
from gpuledger.edge.statuswriter.desired.fold import DesiredProjection
from gpuledger.edge.statuswriter.desired.state import DesiredState
from gpuledger.events.position import events_up_to, is_after, order
from gpuledger.ledger.jetstream import connect_ledger
from gpuledger.projection.fold import Fold
from gpuledger.projection.kept_fold import KeptFold
from gpuledger.runtime.garbage import seldom_collected
from gpuledger.runtime.tasks import end
from gpuledger.runtime.telemetry import configure_logging

POLL_S = 0.05
PROJECTIONS = {one.name: one for one in (CacheProjection, DesiredProjection)}


async def main(nats_url: str, database_url: str, *services: str) -> None:
    """Fold to the head as the services do, leave the snapshots that are due, and print what it took as JSON.

    Several services read and check the log once, which is how a long log is folded for all of them in time.
    """
    async with connect_ledger(nats_url, name="bench start") as ledger:
        began, read = perf_counter(), 0
        kept = [KeptFold(PROJECTIONS[one](), ledger, database_url) for one in services]
        writing = [asyncio.create_task(one.run()) for one in kept]
        folds = [await one.load() for one in kept]
        first = min(folds, key=lambda fold: order(fold.sequence))
        with seldom_collected():
            async for messages in ledger.history(after=first.sequence):
                checked = first.check_all(messages)
                for one, fold in zip(kept, folds, strict=True):
                    fold.apply_all_checked(new for new in checked if is_after(new.message.sequence, fold.sequence))
                    one.folded(fold)
                read += len(messages)
            work = sum(map(_work, folds))
        took_s, peak = perf_counter() - began, peak_kib()
        while not all(one.is_idle for one in kept):  # noqa: ASYNC110 - nothing else waits for it
            await asyncio.sleep(POLL_S)
        await end(writing)
    log = events_up_to(first.sequence)
    print(json.dumps({"took_s": took_s, "peak_kib": peak, "read": read, "log": log, "work": work}))


def _work(fold: Fold) -> int:
    """How many objects the service has to look at, as far as it follows from the fold."""
    if not isinstance(fold.state, DesiredState):
        return 0
    fold.state.take_changed()
    return len(list(fold.state.keys())) + len(fold.state.take_occurrences())


if __name__ == "__main__":
    configure_logging()
    asyncio.run(main(*sys.argv[1:]))
