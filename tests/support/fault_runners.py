"""Projections in a process of their own, to be killed.

Each line that it answers is a JSON object: a projection stopped, and why. A line to it is `go on`, after which those
that stopped try again, or `ahead SECONDS`, which sets the clock.
"""

import asyncio
import json
import sys
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import NamedTuple

from gpuledger.deciders.bootstrap.projection import BootstrapProjection
from gpuledger.deciders.inventory.projection import InventoryProjection
from gpuledger.deciders.pools.projection import PoolsProjection
from gpuledger.deciders.seals import decide as seals
from gpuledger.deciders.seals.projection import SealsProjection
from gpuledger.deciders.sources.projection import SourcesProjection
from gpuledger.ledger.errors import LedgerUnavailableError
from gpuledger.ledger.jetstream import JetStreamLedger, connect_ledger
from gpuledger.projection.definition import Projection
from gpuledger.projection.runner import Runner
from gpuledger.projection.supervision import STOPS
from gpuledger.readmodels.projections import DevicesProjection
from support import deciders
from support.deciders import AwayProjection
from support.fault_processes import Starter, StoryProcess
from support.ledgers import HEARTBEAT_S
from support.projections import QUICK_SERVICE
from support.runners import Moving

MESSAGES_PER_SEAL = 100
"""Fewer than the product's, so that a short story has several seals."""

AWAY_AT_MOST = timedelta(hours=1)
"""Less than the toy decider's, so that a clock that jumps leads to decisions and not yet to impossible times."""

AWAY_MAX = 25
"""More than the toy decider's, so that most of a story's nodes lead to a decision at once, and the others by time."""

CONNECT_AGAIN_S = 0.1

SETTINGS = replace(QUICK_SERVICE, tick_s=0.2)
"""Idle projections ask less often than elsewhere: there are many, and what comes wakes them anyway."""


class Stop(NamedTuple):
    """A projection of one of the processes stopped."""

    projection: str
    error: str
    reason: str


class Runners(StoryProcess):
    """A process with all projections, and what it reported."""

    def __init__(self, nats_url: str, database_url: str, log: Path) -> None:
        super().__init__(project, (nats_url, database_url), log)
        self.stops: list[Stop] = []

    def hear(self, line: bytes) -> None:
        self.stops.append(Stop(**json.loads(line)))


def projections() -> list[Projection]:
    """A read model, and every way to decide: by facts, by time, about sources, the log itself and others' decisions."""
    vars(deciders)["AWAY_AT_MOST"] = AWAY_AT_MOST
    vars(deciders)["AWAY_MAX"] = AWAY_MAX
    vars(seals)["MESSAGES_PER_SEAL"] = MESSAGES_PER_SEAL
    of_cluster = [InventoryProjection(), BootstrapProjection(), PoolsProjection()]
    return [DevicesProjection(), SourcesProjection(), SealsProjection(), AwayProjection(), *of_cluster]


class _Process:
    def __init__(self, starter: Starter, database_url: str) -> None:
        self._starter = starter
        self._database_url = database_url
        self._clock = Moving()
        self._go_on = asyncio.Event()

    async def obey(self) -> None:
        """Do what each line says."""
        async for words in self._starter.lines():
            match words:
                case ["ahead", seconds]:
                    self._clock.ahead = timedelta(seconds=float(seconds))
                case _:
                    go_on, self._go_on = self._go_on, asyncio.Event()
                    go_on.set()

    async def keep_running(self, ledger: JetStreamLedger, projection: Projection) -> None:
        """Run the projection; where it stops, report it and wait."""
        while True:
            runner = Runner(projection, ledger, self._database_url, settings=SETTINGS, clock=self._clock)
            go_on = self._go_on
            try:
                await runner.run()
            except STOPS as error:
                stop = Stop(projection.name, type(error).__name__, str(error))
                self._starter.answer(json.dumps(stop._asdict()))
                await go_on.wait()


async def project(starter: Starter, nats_url: str, database_url: str) -> None:
    """Run the projections until killed."""
    process = _Process(starter, database_url)
    async with asyncio.TaskGroup() as group:
        group.create_task(process.obey())
        while True:
            try:
                async with connect_ledger(
                    nats_url, name="runners", heartbeat_s=HEARTBEAT_S, puts_in_order=True
                ) as ledger:
                    await asyncio.gather(*(process.keep_running(ledger, one) for one in projections()))
            except LedgerUnavailableError as error:
                print(error, file=sys.stderr, flush=True)
                await asyncio.sleep(CONNECT_AGAIN_S)
