"""`gpuledger agent`: runs the agent of one node, probes its cards, prints its permissions, and injects faults.

The agent needs the ledger, and neither the database nor the Kubernetes API.
"""

import asyncio
import os
import sys
from typing import Annotated, NoReturn

import typer

from gpuledger.agent import settings as names
from gpuledger.agent.footprint import ENVIRONMENT
from gpuledger.agent.settings import checked_node, read_agent_settings, read_hardware, read_state_dir
from gpuledger.cli.commands.agent_options import (
    Allocate,
    Credentials,
    Exporter,
    Hardware,
    KubeletDir,
    Listen,
    NatsUrl,
    Node,
    StateDir,
)
from gpuledger.cli.commands.agent_probe import KeepIds, Moments, Record, show_probe, write_probe
from gpuledger.cli.errors import CliError, ExitCode
from gpuledger.cli.options import NoHeaders, OutputFormat
from gpuledger.cli.render import Console, Output, message, quiet_pipe
from gpuledger.runtime.placement_settings import NODE_NAME
from gpuledger.runtime.settings import METRICS_LISTEN, NATS_CREDENTIALS, NATS_URL
from gpuledger.runtime.telemetry_http import ListenError, parse_address

app = typer.Typer(help="The agent of one node: run it, probe its cards, inject faults.", no_args_is_help=True)

Fault = Annotated[
    str, typer.Argument(metavar="FAULT", help="Such as xid:79, xid:48@1, off-bus@0000:19:00.0, thermal, recover.")
]


@app.command("run")
def run_agent(
    node: Node = None,
    nats_url: NatsUrl = None,
    credentials: Credentials = None,
    hardware: Hardware = None,
    kubelet_dir: KubeletDir = None,
    allocate: Allocate = None,
    exporter: Exporter = None,
    state_dir: StateDir = None,
    listen: Listen = None,
) -> None:
    """Monitor one node's GPUs, offer them to its kubelet, and record their state, until Ctrl-C."""
    given = {
        NODE_NAME: node,
        NATS_URL: nats_url,
        NATS_CREDENTIALS: credentials,
        names.HARDWARE: hardware,
        names.KUBELET_DIR: kubelet_dir,
        names.ALLOCATE: allocate,
        names.EXPORTER_URL: exporter,
        names.STATE_DIR: state_dir,
        METRICS_LISTEN: listen,
    }
    environ = {**os.environ, **{name: str(value) for name, value in given.items() if value is not None}}
    settings = read_agent_settings(environ)
    try:
        parse_address(settings.listen)
    except ListenError as error:
        raise CliError(str(error), code=ExitCode.USAGE) from error
    _become_agent(environ)


@app.command("probe")
def probe(
    hardware: Hardware = None,
    output: OutputFormat = Output.TABLE,
    no_headers: NoHeaders = False,
    record: Record = None,
    moments: Moments = 1,
    keep_ids: KeepIds = False,
) -> None:
    """Show the cards of this machine as an agent would see them, or record them into a file.

    Exits with 1 where no driver answers.
    """
    given = {names.HARDWARE: hardware} if hardware else {}
    text = read_hardware({**os.environ, **given})
    if record is not None:
        write_probe(text, record, moments=moments, anonymous=not keep_ids)
    else:
        show_probe(text, os.environ.get(names.XID_CLASSES, ""), output, headers=not no_headers)


@app.command("permissions")
def show_permissions(
    node: Annotated[str | None, typer.Argument(metavar="[NODE]")] = None,
    accounts: Annotated[
        bool, typer.Option("--accounts", help="Print what the accounts of ledger and agents share instead.")
    ] = False,
) -> None:
    """Print the permissions of a node's agent for the configuration of nats-server.

    Without a node: the templated form, for a scoped signing key. docs/agent-credentials.md explains all of them.
    """
    from gpuledger.ledger import permissions  # noqa: PLC0415 - only this command needs it

    if accounts:
        text = f"# in the account {permissions.LEDGER_ACCOUNT}\n{permissions.exports_text()}\n"
        text += f"# in the account {permissions.AGENTS_ACCOUNT}\n{permissions.imports_text()}"
    elif node:
        text = permissions.user_text(checked_node(node))
    else:
        text = permissions.permissions_text(permissions.templated_permissions())
    console = Console.standard()
    with quiet_pipe(console.out):
        console.out.write(f"{text}\n")


@app.command("inject")
def inject_fault(fault: Fault, state_dir: StateDir = None) -> None:
    """Make a simulated card of a running agent fail, or recover."""
    from gpuledger.agent.control import request_fault  # noqa: PLC0415 - only this command needs it
    from gpuledger.agent.errors import AgentError  # noqa: PLC0415

    folder = read_state_dir({names.STATE_DIR: str(state_dir or os.environ.get(names.STATE_DIR, ""))})
    try:
        message(asyncio.run(request_fault(folder, fault)))
    except AgentError as error:
        raise CliError(str(error)) from error


def _become_agent(environ: dict[str, str]) -> NoReturn:
    """Replace this process, which holds the whole command line in memory, with the agent's own."""
    sys.stderr.flush()
    os.execve(sys.executable, [sys.executable, "-m", "gpuledger.agent"], {**ENVIRONMENT, **environ})  # noqa: S606 - our own program
