"""The process in which `gpuledger up` takes snapshots of folds: it folds beside the services, and not between them.

It finds the servers in the environment, takes what is due, and ends. `--clean` has it also delete what is not kept.
"""

import asyncio
import os
import sys
from pathlib import Path
from typing import Final

from gpuledger.db.errors import DatabaseError
from gpuledger.ledger.errors import LedgerError
from gpuledger.ledger.jetstream import connect_ledger
from gpuledger.runtime.clock import system_clock
from gpuledger.runtime.settings import Settings, read_settings
from gpuledger.runtime.tasks import run_until_one_ends
from gpuledger.tools.archive.past import ArchivedGenerations
from gpuledger.tools.errors import ToolBusyError, ToolError
from gpuledger.tools.queries.backend import Backend
from gpuledger.tools.snapshots import clean, take

CLEAN: Final = "--clean"
NICENESS: Final = 10
"""The services go first."""

BUSY: Final = 75
"""The exit code where another process takes snapshots."""

PARENT_CHECK_S: Final = 1.0
"""How soon it notices that whoever started it is gone."""


async def take_due(settings: Settings, *, cleans: bool) -> int:
    """Take the snapshots that are due; returns how many were written.

    Raises:
        ToolError: the object store cannot be used, another process is at it, or a fold stopped.
        LedgerError: the log cannot be read.
    """
    servers = settings.servers
    assert servers is not None, "whoever starts this process names them"
    opening = connect_ledger(
        servers.nats_url, name="gpuledger snapshots", identity=servers.nats_identity, archives=ArchivedGenerations()
    )
    async with opening as ledger:
        backend = Backend(
            ledger,
            servers.database_url,
            servers.nats_url,
            None,
            nats_identity=servers.nats_identity,
            objects_url=settings.objects_url,
        )
        taken = await take(backend, [], also_last=False)
        if cleans:
            await clean(backend, system_clock())
    if taken.stopped:
        raise ToolError(str(taken.stopped[0]))
    return taken.snapshots


async def _until_orphaned(parent: int) -> None:
    while os.getppid() == parent:  # noqa: ASYNC110 - nobody notifies
        await asyncio.sleep(PARENT_CHECK_S)


async def _run() -> None:
    async def work() -> None:
        await take_due(read_settings(os.environ, Path(os.devnull)), cleans=CLEAN in sys.argv[1:])

    await run_until_one_ends(work(), _until_orphaned(os.getppid()))


def main() -> None:
    """Run until what is due is taken; an error is one line on stderr."""
    os.nice(NICENESS)
    try:
        asyncio.run(_run())
    except ToolBusyError:
        sys.exit(BUSY)
    except (ToolError, LedgerError, DatabaseError) as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
