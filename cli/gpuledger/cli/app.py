"""The `gpuledger` command line: all commands under their names.

A paragraph of a help text is as wide as the terminal, however its source is broken into lines.
"""

import inspect

import typer

from gpuledger.cli.commands import (
    agent,
    cluster,
    demo,
    diff,
    doctor,
    imports,
    kube_api,
    migrate,
    permissions,
    pool,
    projections,
    report,
    timeline,
    up,
    what_if,
    why,
)
from gpuledger.cli.describe import command as describe
from gpuledger.cli.get import command as get
from gpuledger.cli.log import archive, backup, skip, stats, tail

VERBATIM = "\b"
"""Begins a paragraph whose lines stay as they are."""

app = typer.Typer(
    name="gpuledger",
    help="The event-sourced ledger of a GPU fleet: what do we have, who holds it, and what happened at 03:12.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


log = typer.Typer(help="Inspect the log itself, export and restore it.", no_args_is_help=True)
log.command()(tail.tail)
log.command()(tail.show)
log.command()(stats.stats)
log.command()(archive.export)
log.command("import")(archive.restore)
log.command()(backup.backup)
log.command()(backup.restore)
log.command()(stats.gaps)
log.command()(skip.skip)


def reflow(commands: typer.Typer) -> None:
    """Reflow the help of all commands, those of groups included."""
    for command in commands.registered_commands:
        command.help = reflowed(command.help or inspect.getdoc(command.callback) or "")
    for group in commands.registered_groups:
        if group.typer_instance is not None:
            reflow(group.typer_instance)


def reflowed(text: str) -> str:
    """The text with each paragraph on one line."""
    return "\n\n".join(one if one.startswith(VERBATIM) else " ".join(one.split()) for one in text.split("\n\n"))


app.command()(up.up)
app.add_typer(cluster.crds, name="crds")
app.add_typer(cluster.nfd, name="nfd")
app.command("kube-api")(kube_api.kube_api)
app.add_typer(imports.app, name="import")
app.command()(get.get)
app.command()(describe.describe)
app.add_typer(why.app, name="why")
app.add_typer(what_if.app, name="what-if")
app.add_typer(pool.app, name="pool")
app.command()(timeline.timeline)
app.command(context_settings={"ignore_unknown_options": True, "help_option_names": ["--help"]})(diff.diff)
app.command()(report.report)
app.command()(report.sql)
app.add_typer(log, name="log")
app.command()(projections.verify)
app.command()(projections.replay)
app.add_typer(agent.app, name="agent")
app.command()(permissions.permissions)
app.add_typer(cluster.admission, name="admission", hidden=True)
app.command()(migrate.migrate)
app.command()(doctor.doctor)
app.command()(demo.demo)
app.command()(migrate.version)
reflow(app)
