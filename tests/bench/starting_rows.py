"""A process that starts a projection behind its rows and prints how long it took, and its memory; see `bench.past`."""

import asyncio
import json
import sys
from time import perf_counter, process_time

from bench.rebuilding import peak_kib
from gpuledger.ledger.jetstream import connect_ledger
from gpuledger.projection.runner import Runner
from gpuledger.readmodels.projections import DevicesProjection
from gpuledger.runtime.garbage import seldom_collected
from gpuledger.runtime.telemetry import configure_logging


async def main(nats_url: str, database_url: str) -> None:
    """Load what is open, find nothing new in the log, and print what it took as JSON."""
    imports_kib, began, began_busy = peak_kib(), perf_counter(), process_time()
    with seldom_collected():
        async with connect_ledger(nats_url, name="bench start") as ledger:
            assert await Runner(DevicesProjection(), ledger, database_url).catch_up(await ledger.head())
    took = {"wall_s": perf_counter() - began, "busy_s": process_time() - began_busy}
    print(json.dumps(took | {"imports_kib": imports_kib, "peak_kib": peak_kib()}))


if __name__ == "__main__":
    configure_logging()
    asyncio.run(main(*sys.argv[1:]))
