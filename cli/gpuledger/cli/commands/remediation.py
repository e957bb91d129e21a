"""`gpuledger remediation`: what is done about nodes that are set aside for their faults, and what came of it."""

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Annotated

import typer

from gpuledger.cli.backend import open_backend
from gpuledger.cli.commands.document_file import STDIN, DryRun, RulesCommand
from gpuledger.cli.commands.reason import Reason, reason_in
from gpuledger.cli.log.skip import Yes, confirm
from gpuledger.cli.options import DataDir, NoHeaders, OutputFormat
from gpuledger.cli.render import Column, Output, View, message, render
from gpuledger.cli.run import run
from gpuledger.domain.remediation.state import Remediations
from gpuledger.tools.queries.found_rows import RowDict
from gpuledger.tools.remediation import operations
from gpuledger.tools.remediation.document import parse

app = typer.Typer(help="What is done about nodes that are set aside for their faults.", no_args_is_help=True)

_RULES = View(
    "remedy",
    (
        Column("remedy"),
        Column("group"),
        Column("scope"),
        Column("actions", wraps=True),
        Column("object", wraps=True),
        Column("timeout", "timeout_s", right=True),
        Column("escalates to", "escalate_to"),
        Column("attempts"),
        Column("retention", "retention_s", wide=True, right=True),
        Column("version", wide=True),
        Column("file", wide=True),
        Column("applied", "applied_at", wide=True),
    ),
)
_LIST = View(
    "remediation",
    (
        Column("id", wraps=True),
        Column("node"),
        Column("remedy"),
        Column("state"),
        Column("object", wraps=True),
        Column("requested", "requested_at"),
        Column("ended", "ended_at"),
        Column("detail", wraps=True),
        Column("attempt", wide=True, right=True),
        Column("group", wide=True),
        Column("device", wide=True),
        Column("action", wide=True),
        Column("created", "created_at", wide=True),
        Column("follows", wide=True),
        Column("namespace", wide=True),
    ),
)

_APPLY = RulesCommand("remediation apply", parse, operations.apply, lambda document: document.remedies, "remedies")

File = Annotated[str, typer.Option("-f", "--file", metavar="FILE", help=f"The document; {STDIN} for stdin.")]
Target = Annotated[str, typer.Argument(metavar="NODE|ID", help="The node, or a remediation's id.", show_default=False)]
Id = Annotated[str, typer.Argument(metavar="ID", help="The remediation's id, or how it begins.", show_default=False)]


@app.command()
def apply(file: File, dry_run: DryRun = False, data_dir: DataDir = None) -> None:
    """Put the remedies of a document into force, in place of all others.

    What was reported before leads to nothing. Remedies that are under way go on as they were requested.
    """
    _APPLY.put_into_force(file, data_dir, dry_run=dry_run)


@app.command()
def rules(output: OutputFormat = Output.TABLE, no_headers: NoHeaders = False, data_dir: DataDir = None) -> None:
    """List the remedies in force."""
    render(run(_rows(data_dir, "rules", operations.rule_rows)), _RULES, output, headers=not no_headers)


@app.command("list")
def list_all(output: OutputFormat = Output.TABLE, no_headers: NoHeaders = False, data_dir: DataDir = None) -> None:
    """List the remedies that nodes got, what came of each, and the nodes that wait for one or for a person."""
    render(run(_rows(data_dir, "list", operations.rows_of)), _LIST, output, headers=not no_headers)


@app.command()
def show(remediation: Id, output: OutputFormat = Output.YAML, data_dir: DataDir = None) -> None:
    """Show one of them, with the faults that it is for."""
    render(
        run(_rows(data_dir, "show", lambda state: [operations.one_row(state, remediation)])),
        _LIST,
        output,
        headers=True,
    )


@app.command()
def retry(target: Target, reason: Reason, yes: Yes = False, data_dir: DataDir = None) -> None:
    """Have the remedies of a node tried again that came to nothing, after you have mended why.

    The remedy that was last is tried again, and the attempts of the node before count no more. The node has to be set
    aside for its faults still; where its drain was given up, ask for that with `gpuledger node drain`.
    """
    run(_retry(data_dir, target, reason_in(reason), yes=yes))


async def _retry(data_dir: Path | None, target: str, reason: str, *, yes: bool) -> None:
    confirm(f"Try the remedies of {target} again?", confirmed=yes)
    async with open_backend(data_dir, "remediation retry", records=True) as backend:
        done = await operations.retry(backend, target, reason)
    message(f"{done.faults} faults of {done.node} may get their remedy again; recorded at {done.recorded}.")


async def _rows(
    data_dir: Path | None, command: str, rows_of: Callable[[Remediations], Iterable[RowDict]]
) -> list[RowDict]:
    async with open_backend(data_dir, f"remediation {command}") as backend:
        return list(rows_of(await operations.current_state(backend)))
