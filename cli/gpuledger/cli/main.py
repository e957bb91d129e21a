"""The `gpuledger` command: puts the commands together and is where errors end as one sentence."""

import sys

import typer

from gpuledger.cli.errors import CliError, ExitCode, report

app = typer.Typer(
    name="gpuledger",
    help="The event-sourced ledger of a GPU fleet: what do we have, who holds it, and what happened at 03:12.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

INTERRUPTED = 130


def main() -> None:
    """Run the command line; the only place that ends the process."""
    try:
        app(standalone_mode=True)
    except CliError as error:
        sys.exit(report(error, sys.stderr))
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)


__all__ = ["ExitCode", "app", "main"]
