"""`gpuledger verify`: prove that the tables are what the log says, or name the first row that is not."""

from typing import Annotated

import typer

from gpuledger.cli.backend import backend, bring_current, named_projections
from gpuledger.cli.errors import CliError
from gpuledger.cli.options import DataDir, NoHeaders, OutputFormat
from gpuledger.cli.render import Column, Output, View, message, progress, render
from gpuledger.cli.rows import RowDict
from gpuledger.cli.run import run
from gpuledger.projection.verify import Difference, Verification
from gpuledger.projection.verify import verify as verify_projection

Projections = Annotated[
    list[str] | None, typer.Argument(metavar="[PROJECTION]...", help="Only these.", show_default=False)
]

_VIEW = View(
    "projection",
    (
        Column("projection"),
        Column("position"),
        Column("rows", right=True),
        Column("differences", right=True),
        Column("first", "first_difference"),
    ),
    "projection",
)


def verify(
    projections: Projections = None,
    output: OutputFormat = Output.TABLE,
    no_headers: NoHeaders = False,
    data_dir: DataDir = None,
) -> None:
    """Fold the log from its start and compare every row with PostgreSQL. Exits with 1 if one differs."""
    found = run(_verify(projections or [], data_dir))
    render([_row(result) for result in found], _VIEW, output, headers=not no_headers)
    wrong = [result for result in found if result.differences]
    for result in wrong:
        assert result.first is not None
        message(f"{result.projection}: {describe(result.first)}")
    if wrong:
        raise CliError(
            f"{sum(result.differences for result in wrong)} rows differ from the ledger",
            f"Rebuild them with `gpuledger replay {' '.join(result.projection for result in wrong)}`",
        )
    message(f"Every row is as the ledger says: {sum(result.rows for result in found)} rows compared.")


async def _verify(names: list[str], data_dir: DataDir) -> list[Verification]:
    results = []
    async with backend(data_dir, "verify") as place:
        await bring_current(place, named_projections(names))
        for projection in named_projections(names):
            with progress(f"Verifying {projection.name}", total=None) as advance:
                results.append(
                    await verify_projection(
                        projection, place.ledger, place.database_url, lambda done, _total: advance.to(done)
                    )
                )
    return results


def describe(difference: Difference) -> str:
    """A difference in words."""
    key = ", ".join(str(part) for part in difference.key)
    return (
        f"{difference.table} ({key}): the ledger says {_shown(difference.expected)}, "
        f"the table holds {_shown(difference.found)}."
    )


def _shown(row: tuple[object, ...] | None) -> str:
    return "no such row" if row is None else f"({', '.join(str(value) for value in row)})"


def _row(result: Verification) -> RowDict:
    first = result.first
    return {
        "projection": result.projection,
        "position": str(result.position),
        "rows": result.rows,
        "differences": result.differences,
        "first_difference": None if first is None else f"{first.table}/{'/'.join(str(part) for part in first.key)}",
    }
