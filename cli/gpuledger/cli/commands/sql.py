"""`gpuledger sql`: any query, now, on every table and view as it was, or on an archive of the log."""

import sys
from datetime import datetime
from pathlib import Path
from typing import Annotated

import typer

from gpuledger.cli.backend import open_backend
from gpuledger.cli.errors import CliError, ExitCode
from gpuledger.cli.options import ArchiveLocation, AsRecorded, At, DataDir, NoHeaders, OutputFormat
from gpuledger.cli.render import Output, View, columns_of, render
from gpuledger.cli.run import run
from gpuledger.cli.times import format_time, parse_as_recorded, parse_time
from gpuledger.db.readonly import STATEMENT_TIMEOUT_S
from gpuledger.runtime.clock import system_clock
from gpuledger.tools.archive.bounds import ARCHIVE_MEMORY_MIB_MAX, BOUNDS, ArchiveBounds
from gpuledger.tools.queries.moments import NOW, PointInTime
from gpuledger.tools.queries.sql import SCRATCH_MIB_MAX, Bounds, Result, result_now, result_then

STDIN = "-"

Query = Annotated[
    str | None,
    typer.Argument(metavar="QUERY", help="One SQL statement that returns rows; - reads it from stdin."),
]
File = Annotated[
    str | None, typer.Option("--file", "-f", metavar="FILE", help="Read the query from a file, or from stdin (-).")
]
Timeout = Annotated[int, typer.Option("--timeout", min=1, metavar="SECONDS", help="How long the query may run.")]
ScratchMax = Annotated[
    int,
    typer.Option(
        "--scratch-max",
        min=1,
        metavar="MIB",
        help="How much room the tables of the past may take in the database, or a query on an archive on the disk.",
    ),
]
MemoryMax = Annotated[
    int, typer.Option("--memory-max", min=16, metavar="MIB", help="How much memory a query on an archive may take.")
]


def sql(
    statement: Query = None,
    file: File = None,
    at: At = None,
    as_recorded: AsRecorded = None,
    output: OutputFormat = Output.TABLE,
    no_headers: NoHeaders = False,
    timeout: Timeout = STATEMENT_TIMEOUT_S,
    scratch_max: ScratchMax = SCRATCH_MIB_MAX,
    archive: ArchiveLocation = None,
    memory_max: MemoryMax = ARCHIVE_MEMORY_MIB_MAX,
    data_dir: DataDir = None,
) -> None:
    """Run an SQL query as a role that can only read. The views of `report` and all tables are found by name.

    --at shows every table and view as it was at a time, by everything recorded to date; --as-recorded as it was known
    then; both together, what was known then of that time. The past is folded from the log, which takes a while.
    --archive asks an archive with DuckDB: `events` has every event, and tables and reports are as when it was written.
    """
    text = _text(statement, file)
    moment = _moment(at, as_recorded, system_clock())
    if archive is None:
        columns, rows = run(_result(text, moment, Bounds(timeout, scratch_max), data_dir))
    else:
        _refuse_moment(moment)
        columns, rows = run(answer_of_archive(archive, text, ArchiveBounds(timeout, memory_max, scratch_max)))
    render(rows, View("row", columns_of(columns)), output, headers=not no_headers)


async def _result(statement: str, moment: PointInTime, bounds: Bounds, data_dir: Path | None) -> Result:
    async with open_backend(data_dir, "sql", asks=True) as backend:
        if moment == NOW:
            return await result_now(backend, statement, bounds)
        return await result_then(backend, statement, moment, bounds)


async def answer_of_archive(location: str, statement: str, bounds: ArchiveBounds = BOUNDS) -> Result:
    """The result of one query on an archive."""
    from gpuledger.tools.archive.query import ask_archive  # noqa: PLC0415 - DuckDB takes a while to import
    from gpuledger.tools.archive.store import open_archive  # noqa: PLC0415

    return await ask_archive(open_archive(location), statement, bounds)


def _refuse_moment(moment: PointInTime) -> None:
    if moment != NOW:
        hint = "Select events by `time` or `position`, or ask the ledger without --archive"
        raise CliError("--archive does not go with --at or --as-recorded", hint, ExitCode.USAGE)


def _text(statement: str | None, file: str | None) -> str:
    """The query, from where it is."""
    if (statement is None) == (file is None):
        raise CliError("There must be one query", "Write it, or name its file with -f", ExitCode.USAGE)
    if STDIN in (statement, file):
        return sys.stdin.read()
    if file is None:
        return statement or ""
    try:
        return Path(file).read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise CliError(f"{file} cannot be read: {error}", "Name a text file", ExitCode.USAGE) from error


def _moment(at: str | None, as_recorded: str | None, now: datetime) -> PointInTime:
    """The moment of the options.

    Raises:
        CliError: one cannot be parsed, or lies in the future.
    """
    moment = PointInTime(
        None if at is None else parse_time(at, now),
        None if as_recorded is None else parse_as_recorded(as_recorded, now),
    )
    for option, when in zip(("--at", "--as-recorded"), moment, strict=True):
        if isinstance(when, datetime) and when > now:
            what = f"{option} {format_time(when)} lies in the future"
            raise CliError(what, "A ledger has only a past; name a time up to now", ExitCode.USAGE)
    return moment
