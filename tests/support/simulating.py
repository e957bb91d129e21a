"""A simulated fleet for tests: time that passes as fast as it is waited for, and every recorded event."""

import asyncio
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from gpuledger.edge.kube.client import KubeClient
from gpuledger.events.envelope import Decoded, decode
from gpuledger.ledger.memory import MemoryLedger
from gpuledger.tools.simulation.allocation import Start
from gpuledger.tools.simulation.decide import FleetPlan, Happening
from gpuledger.tools.simulation.fleet import Fleet, FleetSpec
from gpuledger.tools.simulation.preparation import NodeProgress
from gpuledger.tools.simulation.service import run
from gpuledger.tools.simulation.workload import Rates
from support.ledgers import DEADLINE_S, everything


class FastClock:
    """Time passes as fast as it is waited for, and the run is over at its end."""

    def __init__(self, seconds: float, began: datetime = datetime(2026, 1, 1, tzinfo=UTC)) -> None:
        self.time = began
        self.end = began + timedelta(seconds=seconds)

    def now(self) -> datetime:
        return self.time

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(0)
        self.time += timedelta(seconds=seconds)
        if self.time >= self.end:
            raise asyncio.CancelledError


class SteadyClock(FastClock):
    """Time that passes a hundred times as fast as real time, so that others can act meanwhile."""

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds / 100)
        self.time += timedelta(seconds=seconds)


async def simulate(
    client: KubeClient,
    ledger: Any,
    clock: FastClock,
    *,
    spec: FleetSpec,
    rates: Rates,
    speed: float,
    hosts: Path | None = None,
) -> None:
    """Run a fleet until the clock's end, or until cancelled."""
    with suppress(asyncio.CancelledError):
        async with asyncio.timeout(DEADLINE_S):
            await run(
                spec,
                client=client,
                ledger=ledger,
                clock=clock.now,
                sleep=clock.sleep,
                speed=speed,
                seed=1,
                rates=rates,
                hosts=hosts,
            )


async def events_of(ledger: MemoryLedger) -> list[Decoded]:
    """Everything that was said, in order."""
    return [decode(message.data) for message in await everything(ledger)]


def new_fleet(fleet: Fleet) -> Start:
    """A fleet on its first day."""
    slot_ids = fleet.slot_ids()
    cards = {slot_id: fleet.card(slot_id, 0) for slot_id in slot_ids}
    return Start(cards, dict.fromkeys(slot_ids, 0), prepared=dict.fromkeys(fleet.nodes, NodeProgress()))


def happenings(plan: FleetPlan) -> Iterator[Happening]:
    """All happenings, without end."""
    while True:
        yield from plan.advance(plan.due_s, 1)
