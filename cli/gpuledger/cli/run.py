"""Runs a command's coroutine, and turns every error that a user can meet into one sentence and an exit code.

This is the only place that knows the error trees of all packages. No command prints a traceback.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Final, TypeVar

import psycopg

from gpuledger.cli.errors import CliError, ExitCode
from gpuledger.cli.render import message
from gpuledger.db.errors import DatabaseError, DatabaseUnavailableError
from gpuledger.edge.kube.errors import KubeConfigError, KubeError, UnavailableError
from gpuledger.events.errors import EventError
from gpuledger.ledger.errors import LedgerError, LedgerUnavailableError
from gpuledger.local.servers.errors import DataDirBusyError, EmbeddedError
from gpuledger.projection.errors import ProjectionError, RebuildBusyError
from gpuledger.runtime.objects import ObjectsError, ObjectsUrlError
from gpuledger.runtime.settings import SettingsError
from gpuledger.runtime.telemetry_http import ListenError
from gpuledger.tools.errors import RequestError, ToolBusyError, ToolError
from gpuledger.tools.importers.errors import ImporterError

T = TypeVar("T")

_CODES: tuple[tuple[type[Exception], ExitCode], ...] = (
    (RequestError, ExitCode.USAGE),
    (ToolBusyError, ExitCode.BUSY),
    (ToolError, ExitCode.ERROR),
    (DataDirBusyError, ExitCode.BUSY),
    (LedgerUnavailableError, ExitCode.UNAVAILABLE),
    (DatabaseUnavailableError, ExitCode.UNAVAILABLE),
    (ObjectsUrlError, ExitCode.USAGE),
    (ObjectsError, ExitCode.UNAVAILABLE),
    (SettingsError, ExitCode.USAGE),
    (EmbeddedError, ExitCode.ERROR),
    (ListenError, ExitCode.ERROR),
    (LedgerError, ExitCode.ERROR),
    (DatabaseError, ExitCode.ERROR),
    (RebuildBusyError, ExitCode.BUSY),
    (ProjectionError, ExitCode.ERROR),
    (ImporterError, ExitCode.ERROR),
    (EventError, ExitCode.ERROR),
    (KubeConfigError, ExitCode.USAGE),
    (UnavailableError, ExitCode.UNAVAILABLE),
    (KubeError, ExitCode.ERROR),
)


AWAY: Final = (LedgerUnavailableError, DatabaseUnavailableError)
"""The errors of servers that may be only starting."""

ATTEMPT_INTERVAL_S: Final = 2.0


async def patiently(work: Callable[[], Awaitable[T]], wait_s: float, errors: tuple[type[Exception], ...]) -> T:
    """Try again after these errors for so long; the last one is raised."""
    clock = asyncio.get_running_loop().time
    ends_s = clock() + wait_s
    while True:
        try:
            return await work()
        except errors as error:
            if clock() >= ends_s:
                raise
            message(f"Waiting: {error}")
        await asyncio.sleep(ATTEMPT_INTERVAL_S)


def run(work: Coroutine[Any, Any, T]) -> T:
    """Run a command to its end.

    Raises:
        CliError: it failed in a way that the user can do something about.
    """
    try:
        return asyncio.run(work)
    except CliError:
        raise
    except Exception as error:
        shown = as_cli_error(error)
        if shown is None:
            raise
        raise shown from error


def as_cli_error(error: Exception) -> CliError | None:
    """The error as the user sees it; None for a defect in the code."""
    for kind, code in _CODES:
        if isinstance(error, kind):
            return CliError(str(error), code=code)
    if isinstance(error, psycopg.OperationalError):
        lost = f"The connection to PostgreSQL was lost: {_first_line(error)}"
        return CliError(lost, "Run the command again once it is back", ExitCode.UNAVAILABLE)
    if isinstance(error, psycopg.Error):
        return CliError(f"PostgreSQL refused: {_first_line(error)}", "Look into its log, or run `gpuledger doctor`")
    if isinstance(error, OSError):
        return CliError(f"The system refused: {error.strerror or error}", "Make room or name another file, and repeat")
    return None


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]
