"""`gpuledger sql`: any question to the tables, and no way to change them."""

from typing import Annotated

import typer

from gpuledger.cli.commands.report import answer
from gpuledger.cli.options import DataDir, NoHeaders, OutputFormat
from gpuledger.cli.render import Output, View, columns_of, render
from gpuledger.cli.run import run


def sql(
    statement: Annotated[str, typer.Argument(metavar="QUERY", help="One SQL statement that gives rows.")],
    output: OutputFormat = Output.TABLE,
    no_headers: NoHeaders = False,
    data_dir: DataDir = None,
) -> None:
    """Ask the database, as a role that can only read. The views of `report` and all tables are found by name."""
    columns, rows = run(answer(statement, data_dir, "sql"))
    render(rows, View("row", columns_of(columns)), output, headers=not no_headers)
