"""`gpuledger report`: the documented views of the `report` schema by name."""

from typing import Annotated

import typer

from gpuledger.cli.backend import backend, bring_current
from gpuledger.cli.errors import CliError, ExitCode
from gpuledger.cli.options import DataDir, NoHeaders, OutputFormat
from gpuledger.cli.render import Output, View, columns_of, render
from gpuledger.cli.rows import RowDict
from gpuledger.cli.run import run
from gpuledger.db.readonly import query, read_only
from gpuledger.db.views import REPORTS, view_of

Name = Annotated[
    str, typer.Argument(help=f"One of {', '.join(REPORTS)}.", autocompletion=lambda: list(REPORTS), show_default=False)
]


def report(
    name: Name, output: OutputFormat = Output.TABLE, no_headers: NoHeaders = False, data_dir: DataDir = None
) -> None:
    """Show a report. Its columns are described in docs/reports.md and as comments in the database."""
    wanted = name.replace("_", "-")
    if wanted not in REPORTS:
        raise CliError(f"There is no report {name!r}", f"Choose from {', '.join(REPORTS)}", ExitCode.USAGE)
    columns, rows = run(answer(f"SELECT * FROM {view_of(wanted)}", data_dir, f"report {wanted}"))  # noqa: S608 - from our list
    render(rows, View("row", columns_of(columns)), output, headers=not no_headers)


async def answer(statement: str, data_dir: DataDir, command: str) -> tuple[list[str], list[RowDict]]:
    """The columns and rows of one read-only statement, on tables that are up to date."""
    async with backend(data_dir, command) as place:
        await bring_current(place)
        async with read_only(place.database_url) as connection:
            cursor = await query(connection, statement)
            columns = distinct([column.name for column in cursor.description or ()])
            return columns, [dict(zip(columns, row, strict=True)) for row in await cursor.fetchall()]


def distinct(names: list[str]) -> list[str]:
    """The names, those that occur again with a number behind them, so that no column hides another."""
    found: dict[str, None] = {}
    for name in names:
        number, unique = 0, name
        while unique in found:
            number += 1
            unique = f"{name}_{number}"
        found[unique] = None
    return list(found)
