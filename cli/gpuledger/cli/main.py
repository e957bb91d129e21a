"""The `gpuledger` command: puts the commands together and is where errors end as one sentence."""

import sys

import typer

from gpuledger.cli.commands import (
    admission,
    agent,
    crds,
    demo,
    diff,
    doctor,
    imports,
    kube_api,
    migrate,
    nfd,
    pool,
    replay,
    sql,
    timeline,
    up,
    verify,
    what_if,
    why,
)
from gpuledger.cli.commands import report as reports
from gpuledger.cli.describe import command as describe
from gpuledger.cli.errors import CliError, ExitCode, report
from gpuledger.cli.get import command as get
from gpuledger.cli.help_text import let_flow
from gpuledger.cli.log import commands as log
from gpuledger.cli.run import as_cli_error

app = typer.Typer(
    name="gpuledger",
    help="The event-sourced ledger of a GPU fleet: what do we have, who holds it, and what happened at 03:12.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

INTERRUPTED = 130

app.command()(up.up)
app.add_typer(crds.app, name="crds")
app.add_typer(nfd.app, name="nfd")
app.command("kube-api")(kube_api.kube_api)
app.add_typer(imports.app, name="import")
app.command()(get.get)
app.command()(describe.describe)
app.add_typer(why.app, name="why")
app.add_typer(what_if.app, name="what-if")
app.add_typer(pool.app, name="pool")
app.command()(timeline.timeline)
app.command(context_settings={"ignore_unknown_options": True, "help_option_names": ["--help"]})(diff.diff)
app.command()(reports.report)
app.command()(sql.sql)
app.add_typer(log.app, name="log")
app.command()(verify.verify)
app.command()(replay.replay)
app.add_typer(agent.app, name="agent")
app.add_typer(admission.app, name="admission", hidden=True)
app.command()(migrate.migrate)
app.command()(doctor.doctor)
app.command()(demo.demo)
app.command()(migrate.version)
let_flow(app)


def main() -> None:
    """Run the command line; the only place that ends the process."""
    try:
        app(standalone_mode=True)
    except CliError as error:
        sys.exit(report(error, sys.stderr))
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)
    except Exception as error:
        said = as_cli_error(error)
        if said is None:
            raise
        sys.exit(report(said, sys.stderr))


__all__ = ["ExitCode", "app", "main"]
