"""Projections in a process of their own, to be killed: `python -m support.fault_runners NATS_URL DATABASE_URL`.

Each line on stdout is a JSON object: a projection stopped, and why; the log is on stderr. A line on stdin is `go on`,
after which those that stopped try again, or `ahead SECONDS`, which sets the clock.
"""

import asyncio
import json
import os
import sys
from datetime import timedelta

import structlog

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


def projections() -> list[Projection]:
    """A read model, and every way to decide: about sources, about the log itself, by facts and by time."""
    vars(deciders)["AWAY_AT_MOST"] = AWAY_AT_MOST
    vars(deciders)["AWAY_MAX"] = AWAY_MAX
    vars(seals)["MESSAGES_PER_SEAL"] = MESSAGES_PER_SEAL
    return [DevicesProjection(), SourcesProjection(), SealsProjection(), AwayProjection()]


class _Process:
    def __init__(self, database_url: str) -> None:
        self._database_url = database_url
        self._clock = Moving()
        self._go_on = asyncio.Event()

    async def obey(self) -> None:
        """Do what each line on stdin says."""
        reader = asyncio.StreamReader()
        await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
        async for line in reader:
            match line.decode().split():
                case ["ahead", seconds]:
                    self._clock.ahead = timedelta(seconds=float(seconds))
                case _:
                    go_on, self._go_on = self._go_on, asyncio.Event()
                    go_on.set()
        os._exit(0)  # whoever started it is gone

    async def keep_running(self, ledger: JetStreamLedger, projection: Projection) -> None:
        """Run the projection; where it stops, report it and wait."""
        while True:
            runner = Runner(projection, ledger, self._database_url, settings=QUICK_SERVICE, clock=self._clock)
            go_on = self._go_on
            try:
                await runner.run()
            except STOPS as error:
                stop = {"projection": projection.name, "error": type(error).__name__, "reason": str(error)}
                print(json.dumps(stop), flush=True)
                await go_on.wait()


async def project(nats_url: str, database_url: str) -> None:
    """Run the projections until killed."""
    process = _Process(database_url)
    async with asyncio.TaskGroup() as group:
        group.create_task(process.obey())
        while True:
            try:
                async with connect_ledger(nats_url, name="runners", heartbeat_s=HEARTBEAT_S) as ledger:
                    await asyncio.gather(*(process.keep_running(ledger, one) for one in projections()))
            except LedgerUnavailableError as error:
                print(error, file=sys.stderr, flush=True)
                await asyncio.sleep(CONNECT_AGAIN_S)


if __name__ == "__main__":
    structlog.configure(logger_factory=structlog.PrintLoggerFactory(sys.stderr))
    asyncio.run(project(*sys.argv[1:]))
