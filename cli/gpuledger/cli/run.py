"""Runs a command's coroutine, and turns every error a user can meet into one sentence and an exit code.

The one place where the packages' error trees meet the command line; nothing below it prints a traceback.
"""

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

import psycopg

from gpuledger.cli.errors import CliError, ExitCode
from gpuledger.db.errors import DatabaseError, DatabaseUnavailableError
from gpuledger.embedded.errors import DataDirBusyError, EmbeddedError
from gpuledger.events.errors import EventError
from gpuledger.importers.errors import ImporterError
from gpuledger.ledger.errors import LedgerError, LedgerUnavailableError
from gpuledger.projection.errors import ProjectionError
from gpuledger.settings import SettingsError

T = TypeVar("T")

_CODES: tuple[tuple[type[Exception], ExitCode], ...] = (
    (DataDirBusyError, ExitCode.BUSY),
    (LedgerUnavailableError, ExitCode.UNAVAILABLE),
    (DatabaseUnavailableError, ExitCode.UNAVAILABLE),
    (SettingsError, ExitCode.USAGE),
    (EmbeddedError, ExitCode.ERROR),
    (LedgerError, ExitCode.ERROR),
    (DatabaseError, ExitCode.ERROR),
    (ProjectionError, ExitCode.ERROR),
    (ImporterError, ExitCode.ERROR),
    (EventError, ExitCode.ERROR),
)


def run(work: Coroutine[Any, Any, T]) -> T:
    """Run a command to its end.

    Raises:
        CliError: it failed in a way that the user can do something about.
    """
    try:
        return asyncio.run(work)
    except tuple(kind for kind, _ in _CODES) as error:
        raise CliError(str(error), code=next(code for kind, code in _CODES if isinstance(error, kind))) from error
    except psycopg.OperationalError as error:
        raise CliError(
            f"The connection to PostgreSQL was lost: {_first_line(error)}",
            "Run the command again once it is back",
            ExitCode.UNAVAILABLE,
        ) from error


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]
