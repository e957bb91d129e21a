"""A process that rebuilds the devices projection and tells its own memory; started by `bench.memory`."""

import asyncio
import json
import re
import resource
import sys
from pathlib import Path
from time import perf_counter

from gpuledger.ledger.jetstream import connect_ledger
from gpuledger.projection.rebuild import rebuild
from gpuledger.readmodels.projections import DevicesProjection
from gpuledger.runtime.telemetry import configure_logging

_STATUS = Path("/proc/self/status")


def peak_kib() -> int:
    """The peak so far. Linux carries `ru_maxrss` over from the parent, so its own account is asked first."""
    if _STATUS.exists() and (found := re.search(r"VmHWM:\s+(\d+) kB", _STATUS.read_text())):
        return int(found[1])
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak // 1024 if sys.platform == "darwin" else peak


async def main(nats_url: str, database_url: str) -> None:
    """Rebuild, and print what it took as JSON."""
    imports_kib, began = peak_kib(), perf_counter()
    async with connect_ledger(nats_url, name="bench rebuild") as ledger:
        result = await rebuild(DevicesProjection(), ledger, database_url)
    took_s = perf_counter() - began
    print(
        json.dumps(
            {
                "imports_kib": imports_kib,
                "peak_kib": peak_kib(),
                "events": result.events,
                "events_per_s": result.events / took_s,
            }
        )
    )


if __name__ == "__main__":
    configure_logging()
    asyncio.run(main(*sys.argv[1:]))
