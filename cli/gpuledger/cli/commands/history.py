"""`gpuledger history`: since when each history is kept, and how to shorten one for good."""

from pathlib import Path
from typing import Annotated

import typer

from gpuledger.cli.backend import open_backend
from gpuledger.cli.log.skip import Yes, confirm
from gpuledger.cli.options import DataDir, NoHeaders, OutputFormat
from gpuledger.cli.render import Column, Output, View, message, render
from gpuledger.cli.run import run
from gpuledger.cli.times import format_time, parse_time
from gpuledger.runtime.clock import system_clock
from gpuledger.tools import history_retention
from gpuledger.tools.queries.found_rows import RowDict

app = typer.Typer(help="Since when histories are kept; shorten them.", no_args_is_help=True)

_KEPT = View(
    "history", (Column("history"), Column("kept since", "since"), Column("holds"), Column("projection", wide=True))
)

Name = Annotated[str, typer.Argument(metavar="HISTORY", help="The history, as `history list` names it.")]
Before = Annotated[
    str,
    typer.Option(
        "--before", metavar="TIME", help="Drop what ended before: RFC 3339, a date, or relative such as -52w."
    ),
]


@app.command("list")
def list_(output: OutputFormat = Output.TABLE, no_headers: NoHeaders = False, data_dir: DataDir = None) -> None:
    """List the histories that can be shortened, and since when each is kept."""
    render(run(_list(data_dir)), _KEPT, output, headers=not no_headers)


@app.command()
def shorten(name: Name, before: Before, yes: Yes = False, data_dir: DataDir = None) -> None:
    """Drop what ended before a time from a history, and reject what happened before and is recorded from now on.

    It cannot be undone: nothing of before comes back by a rebuild. The log keeps its events, and day totals stay.
    """
    run(_shorten(data_dir, name, before, yes=yes))


async def _list(data_dir: Path | None) -> list[RowDict]:
    async with open_backend(data_dir, "history list") as backend:
        return [
            {
                "history": one.history.name,
                "since": None if one.since is None else format_time(one.since),
                "holds": one.history.holds,
                "projection": one.projection,
            }
            for one in await history_retention.kept_histories(backend)
        ]


async def _shorten(data_dir: Path | None, name: str, before: str, *, yes: bool) -> None:
    now = system_clock()
    begins = parse_time(before, now).replace(microsecond=0)
    async with open_backend(data_dir, "history shorten", records=True) as backend:
        history = await history_retention.check_request(backend, name, begins, now)
        confirm(f"Drop what ended before {format_time(begins)} from {name}, for good?", confirmed=yes)
        recorded = await history_retention.shorten(backend, history, begins)
        message(
            f"{name} is kept since {format_time(begins)}; recorded at {recorded}. What ended before is deleted slowly."
        )
