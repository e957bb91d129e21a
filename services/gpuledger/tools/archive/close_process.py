"""The process in which `gpuledger up` closes a generation that is due: it archives beside the services.

It finds servers, archive and policy in the environment, closes what is due or goes on with what was begun, and ends.
"""

import asyncio
import os
import sys
from pathlib import Path
from typing import Final

from gpuledger.db.errors import DatabaseError
from gpuledger.ledger.errors import LedgerError
from gpuledger.runtime.clock import system_clock
from gpuledger.runtime.objects import ObjectsError, ObjectsUrlError
from gpuledger.runtime.settings import Settings, read_settings
from gpuledger.tools.archive.close import ClosedLog, close_generation
from gpuledger.tools.archive.due import parse_policy
from gpuledger.tools.archive.store import open_archive
from gpuledger.tools.errors import ToolBusyError, ToolError
from gpuledger.tools.reporting import SILENT

NICENESS: Final = 10
"""The services go first."""

BUSY: Final = 75
"""The exit code where another process changes archives."""


async def close_due(settings: Settings) -> ClosedLog | None:
    """Close the generation if that is due; None where it is not.

    Raises:
        ToolError: the archive cannot be used, or another process is at it.
        LedgerError: the log cannot be read or changed.
    """
    servers, archive = settings.servers, settings.archive
    assert servers is not None, "whoever starts this process names them"
    assert archive is not None, "whoever starts this process names it"
    policy, now = parse_policy(archive.close), system_clock()
    return await close_generation(servers, open_archive(archive.url), SILENT, now, policy)


def main() -> None:
    """Run until what is due is closed; an error is one line on stderr."""
    os.nice(NICENESS)
    try:
        asyncio.run(close_due(read_settings(os.environ, Path(os.devnull))))
    except ToolBusyError:
        sys.exit(BUSY)
    except (ToolError, LedgerError, DatabaseError, ObjectsError, ObjectsUrlError) as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
