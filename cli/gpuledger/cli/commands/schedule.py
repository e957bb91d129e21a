"""`gpuledger schedule`: tries strategies of sharing GPUs on lists of nodes and pods. It needs no server."""

from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Annotated, Final

import typer

from gpuledger.cli.errors import CliError, ExitCode
from gpuledger.cli.options import NoHeaders, OutputFormat
from gpuledger.cli.render import Column, Output, View, message, progress, render
from gpuledger.cli.run import as_cli_error

if TYPE_CHECKING:
    from gpuledger.tools.queries.found_rows import RowDict

app = typer.Typer(no_args_is_help=True)

ALL: Final = "all"
INFLATION_MAX: Final = 10.0

Nodes = Annotated[
    Path, typer.Option("--nodes", metavar="FILE", help="The node list of the openb trace.", show_default=False)
]
Pods = Annotated[
    Path, typer.Option("--pods", metavar="FILE", help="The pod list of the openb trace.", show_default=False)
]
Strategies = Annotated[
    list[str],
    typer.Option("--strategy", metavar="NAME", help="A strategy, or `all`; may be repeated.", show_default=False),
]
Inflate = Annotated[
    float | None,
    typer.Option(
        "--inflate",
        metavar="FACTOR",
        min=0.0,
        max=INFLATION_MAX,
        help="Draw pods from the list until they ask for FACTOR times the GPUs. By default each comes once.",
        show_default=False,
    ),
]
Seed = Annotated[int, typer.Option("--seed", help="The seed of what is drawn: pods, and nodes by `Random`.")]
Learn = Annotated[
    bool,
    typer.Option("--learn", help="Fragmentation gradient descent learns which pods to expect, in place of knowing it."),
]

_OUTCOMES = View(
    "strategy",
    (
        Column("strategy"),
        Column("pods", right=True),
        Column("placed", right=True),
        Column("gpus", right=True),
        Column("asked", right=True),
        Column("allocated", right=True),
        Column("rate", right=True),
        Column("unallocated", right=True),
        Column("fragment", right=True),
        Column("lacks gpu", right=True, wide=True),
        Column("lacks cpu", right=True, wide=True),
        Column("lacks both", right=True, wide=True),
        Column("no gpu", right=True, wide=True),
        Column("seconds", right=True, wide=True),
        Column("pods/s", "pods_per_second", right=True),
    ),
    name_key="strategy",
    plural="strategies",
)


@app.callback()
def schedule() -> None:
    """Try strategies of sharing GPUs, without a cluster."""


@app.command()
def simulate(
    nodes: Nodes,
    pods: Pods,
    strategy: Strategies,
    inflate: Inflate = None,
    seed: Seed = 1,
    learn: Learn = False,
    output: OutputFormat = Output.TABLE,
    no_headers: NoHeaders = False,
) -> None:
    """Schedule a list of pods on a list of nodes by the code of the scheduler's extender, once for each strategy.

    Pods come one after the other and stay; one that fits nowhere is given up. CPU and memory count as well. FRAGMENT is
    how many of the unallocated GPUs the pods of the list cannot use, on average (Weng et al., USENIX ATC 2023).
    """
    render(_outcomes(nodes, pods, strategy, inflate, seed, learn=learn), _OUTCOMES, output, headers=not no_headers)


def _outcomes(
    nodes: Path, pods: Path, strategies: list[str], inflate: float | None, seed: int, *, learn: bool
) -> "list[RowDict]":
    from gpuledger.tools.errors import ToolError  # noqa: PLC0415 - and the code of the scheduler, only for this command
    from gpuledger.tools.scheduling.comparison import Comparison  # noqa: PLC0415 - likewise

    names = _named(strategies)
    try:
        comparison = Comparison.read(nodes, pods, inflate=inflate, seed=seed, learn=learn)
    except ToolError as error:
        raise as_cli_error(error) or error from error
    for note in comparison.notes:
        message(note)
    rows: list[RowDict] = []
    for name in names:
        began = perf_counter()
        with progress(f"Scheduling by {name}", total=len(comparison.arrivals)) as advance:
            outcome = comparison.outcome(name, advance.to)
        rows.append(comparison.row(outcome, perf_counter() - began))
    return rows


def _named(strategies: list[str]) -> list[str]:
    from gpuledger.tools.scheduling.strategies import STRATEGIES  # noqa: PLC0415 - likewise

    if ALL in strategies:
        return list(STRATEGIES)
    if unknown := [name for name in strategies if name not in STRATEGIES]:
        hint = f"Name {', '.join(STRATEGIES)}, or {ALL}"
        raise CliError(f"There is no strategy {unknown[0]}", hint, ExitCode.USAGE)
    return list(dict.fromkeys(strategies))
