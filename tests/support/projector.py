"""All projections in a process of their own, to be killed: `python -m support.projector NATS_URL DATABASE_URL`.

Every flush is one line on stdout. It ends by itself only where a projection stops, which is an error.
"""

import asyncio
import sys

from gpuledger.ledger.errors import LedgerUnavailableError
from gpuledger.projection.runner import Runner, RunnerSettings
from gpuledger.runtime.backoff import Backoff
from gpuledger.tools.queries.backend import all_projections
from support.ledgers import jetstream_ledger

SETTINGS = RunnerSettings(messages_per_batch=200, tick_s=0.1, backoff=Backoff(first_s=0.02, max_s=0.2))


async def project(nats_url: str, database_url: str) -> None:
    """Run every projection until killed."""
    while True:
        try:
            async with jetstream_ledger(nats_url) as ledger, asyncio.TaskGroup() as group:
                for projection in all_projections():
                    runner = Runner(projection, ledger, database_url, settings=SETTINGS, on_flush=_print)
                    group.create_task(runner.run())
        except LedgerUnavailableError as error:
            print(error, file=sys.stderr, flush=True)


def _print(checkpoint: object) -> None:
    print(checkpoint, flush=True)


if __name__ == "__main__":
    asyncio.run(project(*sys.argv[1:]))
