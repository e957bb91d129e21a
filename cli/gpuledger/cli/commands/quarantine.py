"""`gpuledger quarantine`: the rules by which reports of health monitors set nodes aside, and the circuit breaker."""

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Annotated

import typer

from gpuledger.cli.backend import open_backend
from gpuledger.cli.commands.document_file import DryRun, RulesCommand, document_in
from gpuledger.cli.commands.reason import Reason, reason_in
from gpuledger.cli.log.skip import Yes, confirm
from gpuledger.cli.options import DataDir, NoHeaders, OutputFormat
from gpuledger.cli.render import Column, Output, View, message, render
from gpuledger.cli.run import run
from gpuledger.domain.quarantine.state import Quarantine
from gpuledger.events.quarantine import QuarantineRulesApplied
from gpuledger.tools.quarantine import operations
from gpuledger.tools.quarantine.document import parse
from gpuledger.tools.queries.found_rows import RowDict

app = typer.Typer(help="The rules that set nodes aside because of their health.", no_args_is_help=True)

_RULES = View(
    "ruleset",
    (
        Column("ruleset"),
        Column("enabled"),
        Column("priority", right=True),
        Column("actions", wraps=True),
        Column("matched", right=True),
        Column("failed", right=True),
        Column("failure", wraps=True),
        Column("version", wide=True),
        Column("file", wide=True),
        Column("applied", "applied_at", wide=True),
    ),
)
_STATUS = View(
    "quarantine",
    (
        Column("breaker"),
        Column("since"),
        Column("nodes", right=True),
        Column("set aside", right=True),
        Column("held back", right=True),
        Column("faults", right=True),
        Column("failing rulesets", right=True),
        Column("detail", wraps=True),
        Column("version", wide=True),
        Column("reset by", wide=True),
    ),
)
_FAULTS = View(
    "fault",
    (
        Column("node"),
        Column("ruleset"),
        Column("check"),
        Column("entity"),
        Column("state"),
        Column("reported", "reported_at"),
        Column("monitor", wide=True),
        Column("last", "last_at", wide=True),
        Column("owner", wide=True),
        Column("report", wide=True),
    ),
)

_APPLY = RulesCommand("quarantine apply", parse, operations.apply, lambda document: document.rulesets, "rulesets")

File = Annotated[str, typer.Option("-f", "--file", metavar="FILE", help="The document of rules; - for stdin.")]


@app.command()
def apply(file: File, dry_run: DryRun = False, data_dir: DataDir = None) -> None:
    """Put the rules of a document into force, in place of all others.

    Nodes that are set aside stay so until they are healthy again; what was reported before leads to nothing.
    """
    _APPLY.put_into_force(file, data_dir, dry_run=dry_run)


@app.command()
def rules(output: OutputFormat = Output.TABLE, no_headers: NoHeaders = False, data_dir: DataDir = None) -> None:
    """List the rulesets in force, with how often each matched and could not be evaluated."""
    render(run(_rows(data_dir, "rules", operations.rule_rows)), _RULES, output, headers=not no_headers)


@app.command()
def status(output: OutputFormat = Output.TABLE, no_headers: NoHeaders = False, data_dir: DataDir = None) -> None:
    """Show the circuit breaker, and how many nodes are set aside and held back."""
    render(
        run(_rows(data_dir, "status", lambda state: [operations.status_row(state)])),
        _STATUS,
        output,
        headers=not no_headers,
    )


@app.command()
def faults(output: OutputFormat = Output.TABLE, no_headers: NoHeaders = False, data_dir: DataDir = None) -> None:
    """List the standing faults that rules match, and what is done about each."""
    render(run(_rows(data_dir, "faults", operations.fault_rows)), _FAULTS, output, headers=not no_headers)


@app.command()
def reset(reason: Reason, yes: Yes = False, data_dir: DataDir = None) -> None:
    """Close the circuit breaker; its window begins anew.

    Faults that it held back, and that are still fresh, set their nodes aside then; older ones wait for another report.
    """
    run(_reset(data_dir, reason_in(reason), yes=yes))


async def _rows(
    data_dir: Path | None, command: str, rows_of: Callable[[Quarantine], Iterable[RowDict]]
) -> list[RowDict]:
    async with open_backend(data_dir, f"quarantine {command}") as backend:
        return list(rows_of(await operations.current_state(backend)))


async def _reset(data_dir: Path | None, reason: str, *, yes: bool) -> None:
    confirm("Let the rules set nodes aside again?", confirmed=yes)
    async with open_backend(data_dir, "quarantine reset", records=True) as backend:
        recorded = await operations.reset(backend, reason)
    message(f"The circuit breaker is closed; recorded at {recorded}.")


def rules_in(file: str) -> QuarantineRulesApplied:
    """The rules in a file, or in stdin for `-`; raises as `document_in` does."""
    return document_in(file, parse)
