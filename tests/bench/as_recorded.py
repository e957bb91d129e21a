"""How long folds take that begin at a snapshot instead of the first event: of the past, of a query, of a rebuild."""

import random
from collections.abc import Awaitable
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter, process_time
from typing import NamedTuple

from bench import fleet
from bench.processes import percentile_ms
from bench.report import Figure
from bench.servers import unsynced_nats
from bench.throughput import fill
from gpuledger.cli.get.nouns import NOUNS
from gpuledger.projection.rebuild import rebuild
from gpuledger.readmodels.projections import DevicesProjection
from gpuledger.tools import snapshots
from gpuledger.tools.queries.backend import Backend, folded
from gpuledger.tools.queries.moments import PointInTime
from gpuledger.tools.queries.rows import rows_as_recorded
from gpuledger.tools.queries.sql import result_then
from support.ledgers import new_ledger

P95_MS_MAX = 3_000.0
REBUILD_S_MAX = 60.0
FOLDS_FROM_START = 3
QUERY = "SELECT count(*) FROM installation"


class AsRecordedSizes(NamedTuple):
    """How many events the log has, of how many devices, and at how many moments it is asked."""

    events: int = 300_000
    devices: int = 100_000
    moments: int = 25


FULL = AsRecordedSizes()
QUICK = AsRecordedSizes(3_000, 300, 5)


async def as_recorded(database_url: str, sizes: AsRecordedSizes = FULL) -> list[Figure]:
    """All devices at moments picked at random, a query and a rebuild, each beside a fold from the first event."""
    with unsynced_nats() as server, TemporaryDirectory(prefix="gl-objects-") as folder:
        async with new_ledger(server.url, name="bench") as ledger:
            await fill(ledger, fleet.history_of(sizes.devices, sizes.events), "as-recorded")
            backend = Backend(ledger, database_url, server.url, None, objects_url=folder)
            taking_s = await _seconds(snapshots.take(backend, [DevicesProjection.name], also_last=False))
            return [
                *await _asking(backend, sizes, sizes.events / taking_s),
                await _querying(backend, sizes),
                await _rebuilding(backend, sizes),
                Figure(
                    f"{_name(sizes)}, snapshots",
                    _size(Path(folder)) / 1e6,
                    "MB",
                    "messages of the log",
                    await _log_bytes(backend) / 1e6,
                    None,
                ),
            ]


async def _asking(backend: Backend, sizes: AsRecordedSizes, taken_per_s: float) -> list[Figure]:
    source, projection = NOUNS["devices"].source, DevicesProjection()
    moments = random.Random(fleet.SEED).sample(range(1, sizes.events), sizes.moments)
    from_snapshot_s, from_start_s, busy_s = [], [], []
    for number, until in enumerate(moments):
        began_s = process_time()
        from_snapshot_s.append(await _seconds(rows_as_recorded(backend, source, until)))
        busy_s.append(process_time() - began_s)
        if number < FOLDS_FROM_START:
            from_start_s.append(await _seconds(folded(backend, projection, until)) / until)
    fold_s = sorted(from_start_s)[len(from_start_s) // 2]
    p95_ms, whole_ms = percentile_ms(from_snapshot_s, 95), fold_s * sizes.events * 1e3
    return [
        Figure(f"{_name(sizes)}, p95", p95_ms, "ms", "a fold of the whole log", whole_ms, P95_MS_MAX, is_ratio=False),
        Figure(f"{_name(sizes)}, processor time, p95", percentile_ms(busy_s, 95), "ms", "p95", p95_ms, None),
        Figure(f"{_name(sizes)}, p50", percentile_ms(from_snapshot_s, 50), "ms", "p95", p95_ms, None),
        Figure(f"{_name(sizes)}, snapshots taken", taken_per_s, "events/s", "a fold in memory", 1 / fold_s, None),
    ]


async def _querying(backend: Backend, sizes: AsRecordedSizes) -> Figure:
    """To the first row, at the end of the log."""
    moment, from_start = PointInTime(recorded=(None, sizes.events)), _without_snapshots(backend)
    found_s = await _seconds(result_then(backend, QUERY, moment))
    peer_s = await _seconds(result_then(from_start, QUERY, moment))
    return Figure(f"sql {_name(sizes)}", found_s, "s", "from the first event", peer_s, None)


async def _rebuilding(backend: Backend, sizes: AsRecordedSizes) -> Figure:
    projection, ledger, url = DevicesProjection(), backend.ledger, backend.database_url
    peer_s = await _seconds(rebuild(projection, ledger, url))
    found_s = await _seconds(rebuild(projection, ledger, url, snapshots=backend.snapshots))
    name = f"rebuild from a snapshot, {sizes.events:,} events"
    return Figure(name, found_s, "s", "from the first event", peer_s, REBUILD_S_MAX, is_ratio=False)


def _name(sizes: AsRecordedSizes) -> str:
    return f"as recorded, {sizes.devices:,} devices, {sizes.events:,} events"


def _without_snapshots(backend: Backend) -> Backend:
    return Backend(backend.ledger, backend.database_url, backend.nats_url, None)


async def _seconds(work: Awaitable[object]) -> float:
    began = perf_counter()
    await work
    return perf_counter() - began


async def _log_bytes(backend: Backend) -> int:
    total = 0
    async for messages in backend.ledger.history():
        total += sum(len(message.data) for message in messages)
    return total


def _size(folder: Path) -> int:
    return sum(one.stat().st_size for one in folder.rglob("*") if one.is_file())
