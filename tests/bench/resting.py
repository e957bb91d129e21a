"""What all projections of a process cost while nothing happens, beside a loop that only wakes every second."""

import asyncio
from contextlib import suppress
from time import process_time
from typing import NamedTuple

from bench.report import Figure
from bench.servers import unsynced_nats
from gpuledger.ledger.jetstream import connect_ledger
from gpuledger.projection.supervision import Supervision
from gpuledger.tools.queries.backend import all_projections

CPU_PERCENT = 2.0
POLL_S = 0.05


class RestingSizes(NamedTuple):
    """For how long all is watched at rest."""

    rest_s: float = 30.0


FULL = RestingSizes()
QUICK = RestingSizes(1.0)


async def resting(database_url: str, sizes: RestingSizes = FULL) -> list[Figure]:
    """Processor time of the process, without its servers."""
    loop_percent = await _percent(sizes.rest_s)
    with unsynced_nats() as server:
        async with connect_ledger(server.url, name="bench") as ledger:
            supervision = Supervision(all_projections(), ledger, database_url)
            tasks = [asyncio.ensure_future(one) for one in supervision.work()]
            try:
                while not _are_settled(supervision):  # noqa: ASYNC110 - nobody notifies
                    await asyncio.sleep(POLL_S)
                percent = await _percent(sizes.rest_s)
            finally:
                for task in tasks:
                    task.cancel()
                for task in tasks:
                    with suppress(asyncio.CancelledError):
                        await task
    name = f"{len(all_projections())} projections at rest, CPU"
    return [Figure(name, percent, "%", "a loop that wakes every second", loop_percent, CPU_PERCENT, is_ratio=False)]


def _are_settled(supervision: Supervision) -> bool:
    return supervision.healthy and all(
        one.state == "running" and one.lag_events == 0 for one in supervision.health().values()
    )


async def _percent(rest_s: float) -> float:
    began_s = process_time()
    for _ in range(max(1, round(rest_s))):
        await asyncio.sleep(1.0)
    return (process_time() - began_s) / max(1, round(rest_s)) * 100
