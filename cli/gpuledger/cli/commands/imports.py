"""`gpuledger import`: records histories from files. Importing a file again adds nothing."""

from collections.abc import Awaitable, Callable
from contextlib import nullcontext
from datetime import datetime
from pathlib import Path
from typing import Annotated

import typer

from gpuledger.cli.backend import open_backend
from gpuledger.cli.errors import CliError, ExitCode
from gpuledger.cli.options import DataDir
from gpuledger.cli.render import message, progress
from gpuledger.cli.run import run
from gpuledger.cli.times import parse_time
from gpuledger.db.readonly import read_only
from gpuledger.ledger.api import Ledger
from gpuledger.runtime.clock import system_clock
from gpuledger.tools.importers.draft import Reject
from gpuledger.tools.importers.rejects import reject_file
from gpuledger.tools.importers.run import ImportResult, Progress, RejectSink, import_jsonl, import_openb, import_titan
from gpuledger.tools.queries.backend import Backend, bring_current

app = typer.Typer(no_args_is_help=True, help="Import the history of a fleet. Exits with 3 if rows were rejected.")

File = Annotated[Path, typer.Argument(help="The file to import.", show_default=False)]
Rejects = Annotated[
    Path | None,
    typer.Option("--rejects", metavar="FILE", help="Write rejected rows to this file, as JSON lines."),
]

REJECTS_SHOWN_MAX = 10

Importing = Callable[[Ledger, RejectSink, Progress], Awaitable[ImportResult]]


@app.command()
def titan(file: File, rejects: Rejects = None, data_dir: DataDir = None) -> None:
    """Import GPU lifetimes in the format of the Titan data set (Ostrouchov et al., SC20)."""
    now = system_clock()
    _import(
        lambda ledger, sink, bar: import_titan(ledger, file, now=now, rejects=sink, on_progress=bar),
        "titan",
        rejects,
        data_dir,
        file,
    )


@app.command()
def openb(
    nodes: Annotated[Path, typer.Argument(help="The node list.", show_default=False)],
    pods: Annotated[Path, typer.Argument(help="The pod list.", show_default=False)],
    start: Annotated[
        str, typer.Option("--start", metavar="TIME", help="The time of second 0 of the trace.")
    ] = "2023-01-01T00:00:00Z",
    rejects: Rejects = None,
    data_dir: DataDir = None,
) -> None:
    """Import the openb trace (Weng et al., USENIX ATC 2023): its node list and its pod list."""
    now = system_clock()
    began: datetime = parse_time(start, now)
    _import(
        lambda ledger, sink, bar: import_openb(
            ledger, nodes, pods, now=now, rejects=sink, start=began, on_progress=bar
        ),
        "openb",
        rejects,
        data_dir,
        nodes,
        pods,
    )


@app.command()
def jsonl(file: File, rejects: Rejects = None, data_dir: DataDir = None) -> None:
    """Import events from JSON lines with the type, subject, time and data of each."""
    now = system_clock()
    _import(
        lambda ledger, sink, bar: import_jsonl(ledger, file, now=now, rejects=sink, on_progress=bar),
        "jsonl",
        rejects,
        data_dir,
        file,
    )


def _import(importing: Importing, name: str, rejects: Path | None, data_dir: Path | None, *inputs: Path) -> None:
    if rejects is not None and rejects.exists() and any(file.exists() and rejects.samefile(file) for file in inputs):
        raise CliError(f"{rejects} is the file to import", "Name another file for the rejects", ExitCode.USAGE)
    with nullcontext(_FirstRejects()) if rejects is None else reject_file(rejects) as sink:
        try:
            result = run(_work(importing, name, sink, data_dir))
        except KeyboardInterrupt:
            message("Interrupted. Run the command again to go on; nothing will be recorded twice.")
            raise
    message(
        f"{name}: {result.published} events recorded, {result.already_recorded} had been recorded before, "
        f"{result.rejects} rows rejected."
    )
    if result.rejects:
        if rejects is not None:
            message(f"The rejected rows are in {rejects}.")
        raise typer.Exit(ExitCode.REJECTS)


async def _work(importing: Importing, name: str, sink: RejectSink, data_dir: Path | None) -> ImportResult:
    async with open_backend(data_dir, f"import {name}", begins=True, records=True) as backend:
        with progress(f"Importing {name}", total=None) as advance:
            result = await importing(backend.ledger, sink, advance.to)
        await bring_current(backend)
        if result.published and name != "jsonl" and await _has_other_import(backend, result):
            message(
                f"Another {name} file is in the log as well: rows of both are recorded twice, and failures count "
                "twice. Import repaired rows in a file of their own."
            )
        return result


async def _has_other_import(backend: Backend, result: ImportResult) -> bool:
    async with read_only(backend.database_url, application_name="gpuledger import") as connection:
        query = "SELECT 1 FROM gpuledger_live.source WHERE source = %s AND epoch <> %s LIMIT 1"
        return await (await connection.execute(query, (result.source, result.epoch))).fetchone() is not None


class _FirstRejects:
    """Shows the first rejects on stderr, if they go to no file."""

    def __init__(self) -> None:
        self._count = 0

    def __call__(self, reject: Reject) -> None:
        self._count += 1
        if self._count <= REJECTS_SHOWN_MAX:
            message(f"{reject.file}:{reject.line}: {reject.reason}")
        elif self._count == REJECTS_SHOWN_MAX + 1:
            message("More rows are rejected; name a file for all of them with --rejects FILE.")
