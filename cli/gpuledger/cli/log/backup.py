"""`gpuledger log backup` and `log restore`: the streams of a NATS server, exactly as they are, in a folder."""

import os
from pathlib import Path
from typing import Annotated

import typer

from gpuledger.cli.errors import CliError, ExitCode
from gpuledger.cli.render import TerminalReporter, message
from gpuledger.cli.run import run
from gpuledger.events.position import number_of
from gpuledger.runtime.settings import Servers, read_settings
from gpuledger.tools.log_backup import back_up, bring_back

Target = Annotated[Path, typer.Argument(metavar="FOLDER", help="The folder to write; it must not exist.")]
Source = Annotated[Path, typer.Argument(metavar="FOLDER", help="A folder that `gpuledger log backup` wrote.")]


def backup(folder: Target) -> None:
    """Copy the ledger's streams into a folder, as of now, while gpuledger runs; take PostgreSQL's backup first.

    Its NATS user must be allowed to copy streams (`gpuledger permissions operator`).
    """
    servers = _servers()
    for copy in run(back_up(servers.nats_url, servers.nats_identity, folder, TerminalReporter())):
        message(f"Copied {copy.name} up to position {number_of(copy.last_sequence):,}.")


def restore(folder: Source) -> None:
    """Give the ledger's streams back to a NATS server that has none. Stop `gpuledger up` first."""
    servers = _servers()
    for copy in run(bring_back(servers.nats_url, servers.nats_identity, folder, TerminalReporter())):
        message(f"Restored {copy.name} up to position {number_of(copy.last_sequence):,}.")


def _servers() -> Servers:
    servers = read_settings(os.environ).servers
    if servers is None:
        hint = "Stop `gpuledger up` and copy the data directory; or set NATS_URL and DATABASE_URL"
        raise CliError("Embedded servers are not copied stream by stream", hint, ExitCode.USAGE)
    return servers
