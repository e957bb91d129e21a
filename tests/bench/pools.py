"""Pools over a big fleet: from a person's annotation on a GPUDevice to the device's status, and to the pool's capacity.

The API server, the ledger and the services are processes of their own. The fleet is established before the services
start: a cold start would write each of its objects first, which is another figure. Components that prepare nodes are
switched off, as where somebody else runs them; what the annotation leads to does not depend on them.

The services list everything anew `relist_s` seconds after the last list. In production that is ten minutes; here it is
half of one, and changes are made for a minute, so that full lists of all GPUDevices, and the looks through them, lie
within what is measured.
"""

from bench.pools_edge import CHANGES_PER_S, Edge, PoolsSizes, Seen, established
from bench.pools_fleet import CARDS_PER_NODE
from bench.processes import percentile_ms
from bench.report import Figure
from gpuledger.edge.statuswriter.settings import StatusWriterSettings

P95_MS = 50.0
WRITES_OF_AN_OBJECT = 2
"""Its own part and its status."""

SAID_BY_OTHERS = 2
"""Events of a change that are no decisions: what the person and what the agent says."""

AS_SHIPPED = StatusWriterSettings()
RELIST_S = AS_SHIPPED.relist_period_s

FULL = PoolsSizes()
QUICK = PoolsSizes(25, 20, 10, 1.0)


async def pools(database_url: str, sizes: PoolsSizes = FULL) -> list[Figure]:
    """The beginning, the ways of annotations, what they lead to, and memory."""
    async with established(database_url, sizes) as (edge, changes):
        seen = await edge.change(changes)
        return [*_beginning(edge, sizes), *_latency(sizes, seen), *_cost(edge, sizes)]


def _beginning(edge: Edge, sizes: PoolsSizes) -> list[Figure]:
    name, writes = f"pools, {_size(sizes)}", edge.objects * WRITES_OF_AN_OBJECT
    cold_s = writes / AS_SHIPPED.writes_per_s
    return [
        Figure(f"{name}: making them", edge.made_s, "s", "a cold start's writes", cold_s, None),
        Figure(f"{name}: until the services have started", edge.begun_s, "s", "making them", edge.made_s, None),
        Figure(
            f"{name}: objects that they find as wanted", edge.objects - edge.changed_at_start, "objects", "objects",
            edge.objects, 1.0,
        ),
    ]  # fmt: skip


def _latency(sizes: PoolsSizes, seen: list[Seen]) -> list[Figure]:
    peer, size = "the annotation itself, watched", _size(sizes)
    own = [one.annotated_s - one.begun_s for one in seen]
    shown = [one.waits_s - one.begun_s for one in seen]
    counted = [one.counted_s - one.begun_s for one in seen]
    figures = []
    for name, times, target in (
        (f"annotation -> pool in the GPUDevice's status, {size}", shown, P95_MS),
        (f"annotation -> assigned, and counted by the pool, {size}", counted, None),
    ):
        for percent in (50, 95):
            limit = target if percent == 95 else None
            values = percentile_ms(times, percent), percentile_ms(own, percent)
            figures.append(Figure(f"{name}, p{percent}", values[0], "ms", peer, values[1], limit, is_ratio=False))
    return figures


def _cost(edge: Edge, sizes: PoolsSizes) -> list[Figure]:
    changes, report, size = sizes.changes, edge.report, _size(sizes)
    seconds, name = changes / CHANGES_PER_S, "full lists of GPUDevices"
    return [
        Figure(
            f"events for an annotation, {size}", edge.events / changes, "events", "of people and agents",
            SAID_BY_OTHERS, None,
        ),
        Figure(f"{name} while annotated, {size}", edge.lists, "lists", "in production", seconds / RELIST_S, None),
        Figure(f"{name}, the last one, {size}", report.list_s, "s", "between two", sizes.relist_s, None),
        Figure(
            f"peak memory of these services, {size}", report.peak_kib * 1024 / 1e6, "MB",
            "the process after its imports",
            report.imports_kib * 1024 / 1e6, None,
        ),
    ]  # fmt: skip


def _size(sizes: PoolsSizes) -> str:
    return f"{sizes.pools:,} pools and {sizes.nodes * CARDS_PER_NODE:,} devices"
