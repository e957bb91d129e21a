"""How long it takes to fold what was recorded up to a moment of the past, from a snapshot and from the start."""

import random
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import NamedTuple

from bench import fleet
from bench.processes import percentile_ms
from bench.report import Figure
from bench.servers import unsynced_nats
from bench.throughput import fill
from gpuledger.readmodels.projections import DevicesProjection
from gpuledger.tools import snapshots
from gpuledger.tools.queries.backend import Backend, folded, folded_past
from support.ledgers import new_ledger

P95_MS_MAX = 3_000.0
MOMENTS = 40
FOLDS_FROM_START = 3


class AsRecordedSizes(NamedTuple):
    """How many events the log has; one device for every ten of them."""

    events: int = 1_000_000


FULL = AsRecordedSizes()
QUICK = AsRecordedSizes(3_000)


async def as_recorded(database_url: str, sizes: AsRecordedSizes = FULL) -> list[Figure]:
    """The 95th percentile at moments picked at random, beside a fold from the first event to the same ones."""
    with unsynced_nats() as server, TemporaryDirectory(prefix="gl-objects-") as folder:
        async with new_ledger(server.url, name="bench") as ledger:
            await fill(ledger, fleet.history(sizes.events), "as-recorded")
            backend = Backend(ledger, database_url, server.url, None, objects_url=folder)
            began = perf_counter()
            await snapshots.take(backend, [DevicesProjection.name], also_last=False)
            taken_per_s = sizes.events / (perf_counter() - began)
            moments = random.Random(fleet.SEED).sample(range(1, sizes.events), MOMENTS)
            from_snapshot_s, from_start_s = [], []
            for number, until in enumerate(moments):
                began = perf_counter()
                await folded_past(backend, DevicesProjection(), until)
                from_snapshot_s.append(perf_counter() - began)
                if number < FOLDS_FROM_START:
                    began = perf_counter()
                    await folded(backend, DevicesProjection(), until)
                    from_start_s.append((perf_counter() - began) / until)
            store_mb = _size(Path(folder)) / 1e6
            log_mb = await _log_bytes(backend) / 1e6
    name, fold_s = f"as recorded, {sizes.events:,} events", sorted(from_start_s)[1]
    p95_ms, whole_ms = percentile_ms(from_snapshot_s, 95), fold_s * sizes.events * 1e3
    return [
        Figure(f"{name}, p95", p95_ms, "ms", "a fold of the whole log", whole_ms, P95_MS_MAX, is_ratio=False),
        Figure(f"{name}, p50", percentile_ms(from_snapshot_s, 50), "ms", "p95", p95_ms, None),
        Figure(f"{name}, snapshots taken", taken_per_s, "events/s", "a fold in memory", 1 / fold_s, None),
        Figure(f"{name}, snapshots", store_mb, "MB", "messages of the log", log_mb, None),
    ]


async def _log_bytes(backend: Backend) -> int:
    total = 0
    async for messages in backend.ledger.history():
        total += sum(len(message.data) for message in messages)
    return total


def _size(folder: Path) -> int:
    return sum(one.stat().st_size for one in folder.rglob("*") if one.is_file())
