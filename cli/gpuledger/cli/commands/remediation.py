"""`gpuledger remediation`: what is done about nodes that are set aside for their faults, and what came of it."""

from pathlib import Path
from typing import Annotated

import typer

from gpuledger.cli.backend import open_backend
from gpuledger.cli.commands.document_file import STDIN, document_in
from gpuledger.cli.options import DataDir, NoHeaders, OutputFormat
from gpuledger.cli.render import Column, Output, View, message, render
from gpuledger.cli.run import run
from gpuledger.events.remediation import RemediationRulesApplied
from gpuledger.tools.applied_documents import VERSION_SHOWN_CHARS, outcome_text
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

File = Annotated[str, typer.Option("-f", "--file", metavar="FILE", help=f"The document; {STDIN} for stdin.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Only check the document.")]
Id = Annotated[str, typer.Argument(metavar="ID", help="The remediation's id, or how it begins.", show_default=False)]


@app.command()
def apply(file: File, dry_run: DryRun = False, data_dir: DataDir = None) -> None:
    """Put the remedies of a document into force, in place of all others.

    What was reported before leads to nothing. Remedies that are under way go on as they were requested.
    """
    document = document_in(file, parse)
    count = len(document.remedies)
    if dry_run:
        message(f"{document.file} is valid: {count} remedies, version {document.digest[:VERSION_SHOWN_CHARS]}.")
        return
    run(_apply(data_dir, document))


@app.command()
def rules(output: OutputFormat = Output.TABLE, no_headers: NoHeaders = False, data_dir: DataDir = None) -> None:
    """List the remedies in force."""
    render(run(_rules(data_dir)), _RULES, output, headers=not no_headers)


@app.command("list")
def list_all(output: OutputFormat = Output.TABLE, no_headers: NoHeaders = False, data_dir: DataDir = None) -> None:
    """List the remedies that nodes got, what came of each, and the nodes that wait for one or for a person."""
    render(run(_list(data_dir)), _LIST, output, headers=not no_headers)


@app.command()
def show(remediation: Id, output: OutputFormat = Output.YAML, data_dir: DataDir = None) -> None:
    """Show one of them, with the faults that it is for."""
    render([run(_show(data_dir, remediation))], _LIST, output, headers=True)


async def _apply(data_dir: Path | None, document: RemediationRulesApplied) -> None:
    async with open_backend(data_dir, "remediation apply", records=True) as backend:
        applied = await operations.apply(backend, document)
    message(outcome_text(applied, f"{len(document.remedies)} remedies", document))


async def _rules(data_dir: Path | None) -> list[RowDict]:
    async with open_backend(data_dir, "remediation rules") as backend:
        return list(operations.rule_rows(await operations.current_state(backend)))


async def _list(data_dir: Path | None) -> list[RowDict]:
    async with open_backend(data_dir, "remediation list") as backend:
        return list(operations.rows_of(await operations.current_state(backend)))


async def _show(data_dir: Path | None, remediation: str) -> RowDict:
    async with open_backend(data_dir, "remediation show") as backend:
        return operations.one_row(await operations.current_state(backend), remediation)
