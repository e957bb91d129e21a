"""`gpuledger what-if`: shows what a change would do. It records, writes and changes nothing."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gpuledger.cli.backend import open_backend
from gpuledger.cli.commands.what_if_rollout import rollout
from gpuledger.cli.options import DataDir, NoHeaders, OutputFormat
from gpuledger.cli.render import Column, View, message, render
from gpuledger.cli.render import Output as RowOutput
from gpuledger.cli.render.page import AnswerOutput, Document, Output, show_answer
from gpuledger.cli.render.what_if_page import what_if_page
from gpuledger.cli.run import run
from gpuledger.cli.times import is_duration, parse_as_recorded
from gpuledger.runtime.clock import system_clock

if TYPE_CHECKING:
    from gpuledger.events.quarantine import QuarantineRulesApplied
    from gpuledger.tools.whatif.pool import Manifest
    from gpuledger.tools.whatif.quarantine import QuarantineAnswer
    from gpuledger.tools.whatif.strategy import StrategyAnswer

app = typer.Typer(no_args_is_help=True)

File = Annotated[
    str, typer.Option("--file", "-f", metavar="FILE", help="The manifest of the pool; - for stdin.", show_default=False)
]
Since = Annotated[
    str | None,
    typer.Option(
        "--since",
        metavar="POSITION|TIME",
        help="Assume the definition since this position (0 is the start of the log) or time of recording.",
        show_default="now",
    ),
]
Namespace = Annotated[
    str | None,
    typer.Option("--namespace", "-n", help="The namespace of a GPUPool, if its manifest has none.", show_default=False),
]


Rules = Annotated[
    str, typer.Option("--file", "-f", metavar="FILE", help="The document of rules; - for stdin.", show_default=False)
]
Past = Annotated[
    str,
    typer.Option(
        "--since",
        metavar="POSITION|TIME|DURATION",
        help="Judge what was recorded since this position, time or (30d) duration before now.",
    ),
]

_SET_ASIDE = View(
    "node",
    (
        Column("node"),
        Column("would be", "would"),
        Column("since", "would_since"),
        Column("until", "would_until"),
        Column("pods", right=True),
        Column("drained", wraps=True),
        Column("was", "was"),
        Column("was since", wide=True),
        Column("was until", wide=True),
    ),
)


_PLACEMENTS = View(
    "placement",
    (
        Column("placement"),
        Column("pods", right=True),
        Column("placed", right=True),
        Column("waited hours", right=True),
        Column("gpus", right=True),
        Column("allocated", right=True),
        Column("rate", right=True),
        Column("fragment", right=True),
        Column("fragment at end", right=True, wide=True),
    ),
)


@app.callback()
def what_if() -> None:
    """Show what a change would do, without changing anything."""


@app.command()
def pool(
    file: File,
    since: Since = None,
    namespace: Namespace = None,
    output: Output = AnswerOutput.TABLE,
    data_dir: DataDir = None,
) -> None:
    """Show which devices and capacities would change if a GPUPool or ClusterGPUPool were defined as in a file.

    The decisions are made again from the ledger, under that definition. Agents are assumed to do what it requires.
    """
    from gpuledger.cli.commands.what_if_manifest import read_manifest  # noqa: PLC0415 - an API server's rules take time to import

    show_answer(run(_pool(read_manifest(file, namespace), since, data_dir)), output, what_if_page)


@app.command()
def quarantine(
    file: Rules,
    since: Past,
    output: OutputFormat = RowOutput.TABLE,
    no_headers: NoHeaders = False,
    data_dir: DataDir = None,
) -> None:
    """Show which nodes rules of quarantine would have set aside, beside those that were, and the pods on each then.

    Recorded reports are judged by the rules of a file. What operators released and reset counts as it was.
    """
    from gpuledger.cli.commands.quarantine import rules_in  # noqa: PLC0415 - CEL takes time to import

    answer = run(_quarantine(rules_in(file), since, data_dir))
    render(answer.rows, _SET_ASIDE, output, headers=not no_headers)
    for note in answer.notes:
        message(note)


@app.command()
def strategy(
    name: Annotated[str, typer.Argument(metavar="NAME", help="The strategy.", show_default=False)],
    since: Past,
    against: Annotated[
        str | None,
        typer.Option("--against", metavar="NAME", help="Compare with this strategy, in place of what was recorded."),
    ] = None,
    seed: Annotated[int, typer.Option("--seed", help="The seed of what `Random` draws.")] = 1,
    output: OutputFormat = RowOutput.TABLE,
    no_headers: NoHeaders = False,
    data_dir: DataDir = None,
) -> None:
    """Show how pods that came since a moment would have been placed on shared GPUs by a strategy, beside how they were.

    ALLOCATED and RATE are means over the time, of the GPUs that pods had. FRAGMENT is how many of the free ones these
    pods could not use, on average. Pods that had GPUs at the beginning keep them.
    """
    answer = run(_strategy(name, since, against, seed, data_dir))
    render(answer.rows, _PLACEMENTS, output, headers=not no_headers)
    for note in answer.notes:
        message(note)


app.command()(rollout)


async def _strategy(name: str, since: str, against: str | None, seed: int, data_dir: Path | None) -> "StrategyAnswer":
    from gpuledger.tools.whatif.strategy import what_if_strategy  # noqa: PLC0415 - the code of a scheduler

    when = parse_as_recorded(f"-{since}" if is_duration(since) else since, system_clock())
    async with open_backend(data_dir, "what-if") as backend:
        return await what_if_strategy(backend, name, when, against, seed)


async def _quarantine(document: "QuarantineRulesApplied", since: str, data_dir: Path | None) -> "QuarantineAnswer":
    from gpuledger.tools.whatif.quarantine import what_if_quarantine  # noqa: PLC0415 - likewise

    when = parse_as_recorded(f"-{since}" if is_duration(since) else since, system_clock())
    async with open_backend(data_dir, "what-if") as backend:
        return await what_if_quarantine(backend, document, when)


async def _pool(manifest: "Manifest", since: str | None, data_dir: Path | None) -> Document:
    from gpuledger.tools.whatif.pool import what_if_pool  # noqa: PLC0415 - likewise

    when = None if since is None else parse_as_recorded(since, system_clock())
    async with open_backend(data_dir, "what-if") as backend:
        return await what_if_pool(backend, manifest, when)
