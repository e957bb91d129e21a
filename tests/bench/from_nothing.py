"""Every projection rebuilt from the first event of a log of agents' events, beside the same log read and parsed once.

By the clock, and in processor time of the process that rebuilds: what the two servers take beside it is not in that.
"""

from collections import defaultdict
from collections.abc import Awaitable, Callable
from functools import partial
from statistics import median
from time import perf_counter, process_time
from typing import NamedTuple

from bench.all_projections import publish, read_once
from bench.report import Figure
from bench.rounds import medians
from bench.servers import unsynced_nats
from gpuledger.ledger.api import Ledger
from gpuledger.ledger.jetstream import connect_ledger
from gpuledger.projection.definition import Projection
from gpuledger.projection.rebuild import rebuild
from gpuledger.tools.queries.backend import all_projections

EVENT_US_MAX = round(1_000_000 / 30_000, 1)
"""How long an event may take where 30,000 a second are rebuilt."""

Work = Callable[[], Awaitable[object]]

CEILING = "the log read and parsed once"


class FromNothingSizes(NamedTuple):
    """How many agents record how many events."""

    agents: int = 12_500
    events: int = 100_000


FULL = FromNothingSizes()
QUICK = FromNothingSizes(200, 2_000)


async def from_nothing(database_url: str, sizes: FromNothingSizes = FULL, rounds: int = 3) -> list[Figure]:
    """Microseconds an event until the new rows serve, of each projection."""
    with unsynced_nats() as server:
        async with connect_ledger(server.url, name="bench", puts_in_order=True) as ledger:
            await publish(ledger, sizes.agents, sizes.events)
            processor_s: dict[str, list[float]] = defaultdict(list)
            works: dict[str, Work] = {CEILING: partial(read_once, ledger, sizes.events)}
            for one in all_projections():
                works[one.name] = partial(_rebuild, one, ledger, database_url)
            measures = {name: partial(_timed, work, processor_s[name]) for name, work in works.items()}
            by_clock_s = await medians(measures, rounds)
    by_processor_s = {name: median(times_s) for name, times_s in processor_s.items()}
    return [
        Figure(
            f"rebuild of {name} from nothing, {of}", took * us, "µs/event", CEILING, found[CEILING] * us, most, False
        )
        for us in [1_000_000 / sizes.events]
        for of, found, most in (("by the clock", by_clock_s, EVENT_US_MAX), ("of its processor", by_processor_s, None))
        for name, took in found.items()
        if name != CEILING
    ]


async def _timed(work: Work, processor_s: list[float], _round: int) -> float:
    """Seconds by the clock; those of the processor join the others."""
    began, began_processor = perf_counter(), process_time()
    await work()
    processor_s.append(process_time() - began_processor)
    return perf_counter() - began


async def _rebuild(projection: Projection, ledger: Ledger, database_url: str) -> None:
    await rebuild(projection, ledger, database_url)
