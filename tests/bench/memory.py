"""The most memory that a rebuild of a long history takes, in a process of its own."""

import asyncio
import json
import subprocess
import sys
from pathlib import Path

from bench import fleet
from bench.report import Figure
from bench.servers import unsynced_nats
from bench.throughput import fill
from support.ledgers import new_ledger

MEGABYTES_MAX = 500.0
CHILD = Path(__file__).with_name("rebuilding.py")


async def memory(database_url: str, events: int) -> list[Figure]:
    """Megabytes (10^6 bytes) of a process that rebuilds, beside the same process before it begins."""
    with unsynced_nats() as server:
        async with new_ledger(server.url, name="bench") as ledger:
            await fill(ledger, fleet.history(events), "memory")
        usage = await asyncio.to_thread(_rebuild, server.url, database_url)
    name = f"peak memory, {events:,} events, {events // fleet.EVENTS_PER_DEVICE:,} devices"
    imports_mb, peak_mb = usage["imports_kib"] * 1024 / 1e6, usage["peak_kib"] * 1024 / 1e6
    return [
        Figure(name, peak_mb, "MB", "the process after its imports", imports_mb, MEGABYTES_MAX, is_ratio=False),
    ]


def _rebuild(nats_url: str, database_url: str) -> dict[str, float]:
    command = [sys.executable, str(CHILD), nats_url, database_url]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE)
    usage: dict[str, float] = json.loads(done.stdout)
    return usage
