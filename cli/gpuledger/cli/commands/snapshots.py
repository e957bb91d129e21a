"""`gpuledger snapshots`: where folds of the past begin; lists, takes, checks and cleans up snapshots of all folds."""

from collections.abc import Iterator
from typing import Annotated

import typer

from gpuledger.cli.backend import open_backend
from gpuledger.cli.errors import CliError
from gpuledger.cli.options import DataDir, NoHeaders, OutputFormat
from gpuledger.cli.render import Column, Output, View, message, render
from gpuledger.cli.run import run
from gpuledger.cli.times import format_time
from gpuledger.projection.fold_snapshots.check import CheckedSnapshot
from gpuledger.projection.fold_snapshots.retention import Collected
from gpuledger.runtime.clock import system_clock
from gpuledger.tools import snapshots
from gpuledger.tools.queries.found_rows import RowDict

app = typer.Typer(help="Snapshots of all folds, where --as-recorded and what-if begin.", no_args_is_help=True)

_STORED = View(
    "snapshot",
    (
        Column("projection"),
        Column("position"),
        Column("recorded"),
        Column("rows", right=True),
        Column("bytes", right=True),
        Column("build", wide=True),
    ),
)
_CHECKED = View(
    "snapshot",
    (
        Column("projection"),
        Column("position"),
        Column("since"),
        Column("rows", right=True),
        Column("differences", right=True),
        Column("first", "first_difference"),
    ),
)

Projections = Annotated[
    list[str] | None,
    typer.Argument(metavar="[PROJECTION]...", help="The projections; all by default.", show_default=False),
]
Due = Annotated[bool, typer.Option("--due", help="Only those that are due, as `gpuledger up` takes them.")]


@app.command("list")
def list_(
    projections: Projections = None,
    output: OutputFormat = Output.TABLE,
    no_headers: NoHeaders = False,
    data_dir: DataDir = None,
) -> None:
    """List the snapshots that this build can begin at, the last ones first."""
    render(run(_list(projections or [], data_dir)), _STORED, output, headers=not no_headers)


@app.command()
def take(projections: Projections = None, due: Due = False, data_dir: DataDir = None) -> None:
    """Take a snapshot at the end of the log, and those that are due on the way there."""
    taken = run(_take(projections or [], data_dir, due=due))
    message(f"{taken.snapshots} snapshots taken.")
    if taken.stopped:
        raise CliError(str(taken.stopped[0]), "The other projections' snapshots were taken")


@app.command()
def check(
    projections: Projections = None,
    output: OutputFormat = Output.TABLE,
    no_headers: NoHeaders = False,
    data_dir: DataDir = None,
) -> None:
    """Compare each snapshot with a fold from the one before, the first one with a fold of the log from its start.

    Exits with 1 if one differs or cannot be used. `gpuledger verify` compares the tables with a fold from the start.
    """
    found = run(_check(projections or [], data_dir))
    render(map(_checked_row, found), _CHECKED, output, headers=not no_headers)
    for one in found:
        if one.problem is not None:
            message(f"{one.projection} at {one.at}: {one.problem}")
    wrong = [one for one in found if not one.is_right]
    if wrong:
        what = f"{len(wrong)} snapshots are not what the log says, or cannot be used"
        raise CliError(what, "Folds begin at another one; delete the objects of these if it bothers")
    message(f"Every snapshot is as the log says: {len(found)} checked.")


@app.command()
def clean(data_dir: DataDir = None) -> None:
    """Delete the snapshots that are not kept, and what they alone had."""
    collected = run(_clean(data_dir))
    message(f"{collected.manifests} snapshots and {collected.pieces} pieces of {collected.bytes} bytes deleted.")


async def _list(names: list[str], data_dir: DataDir) -> list[RowDict]:
    async with open_backend(data_dir, "snapshots") as backend:
        return list(_rows(await snapshots.stored(backend, names)))


async def _take(names: list[str], data_dir: DataDir, *, due: bool) -> snapshots.Taken:
    async with open_backend(data_dir, "snapshots") as backend:
        return await snapshots.take(backend, names, also_last=not due)


async def _check(names: list[str], data_dir: DataDir) -> list[CheckedSnapshot]:
    async with open_backend(data_dir, "snapshots") as backend:
        return [one async for one in snapshots.checked(backend, names)]


async def _clean(data_dir: DataDir) -> Collected:
    async with open_backend(data_dir, "snapshots") as backend:
        return await snapshots.clean(backend, system_clock())


def _rows(found: list[snapshots.StoredSnapshot]) -> Iterator[RowDict]:
    for one in found:
        yield {
            "projection": one.projection,
            "position": str(one.at),
            "recorded": format_time(one.recorded_at),
            "rows": one.rows,
            "bytes": one.size,
            "build": one.build,
        }


def _checked_row(one: CheckedSnapshot) -> RowDict:
    return {
        "projection": one.projection,
        "position": str(one.at),
        "since": str(one.since),
        "rows": one.rows,
        "differences": one.differences,
        "first_difference": one.first or one.problem,
    }
