"""`gpuledger credentials`: passwords and certificates of the servers that the chart brings, for its jobs."""

from pathlib import Path
from typing import Annotated

import typer

from gpuledger.api.bundled import BundledServers
from gpuledger.cli.options import NoHeaders, OutputFormat
from gpuledger.cli.render import Column, Output, View, render
from gpuledger.cli.run import run
from gpuledger.edge.kube.client import open_client
from gpuledger.edge.kube.kubeconfig import KUBECONFIG
from gpuledger.runtime.clock import random_secret, system_clock
from gpuledger.tools.bundled.secrets import Written, write_secrets

PlainKubeconfig = Annotated[
    Path | None,
    typer.Option("--kubeconfig", help=f"The cluster's kubeconfig (or ${KUBECONFIG}).", show_default="~/.kube/config"),
]
WRITTEN = View("Secret", (Column("name"), Column("change")), "name")

app = typer.Typer(help="Passwords and certificates of the servers that the chart brings.", no_args_is_help=True)


@app.callback()
def credentials() -> None:
    """Passwords and certificates of the servers that the chart brings."""


@app.command("create")
def create(
    namespace: Annotated[str, typer.Option("--namespace", "-n", help="The namespace of the release.")],
    name: Annotated[str, typer.Option("--name", help="How the names of the release's objects begin.")],
    nats: Annotated[bool, typer.Option("--nats/--no-nats", help="Whether the release brings NATS.")] = True,
    postgres: Annotated[
        bool, typer.Option("--postgres/--no-postgres", help="Whether the release brings PostgreSQL.")
    ] = True,
    kubeconfig: PlainKubeconfig = None,
    output: OutputFormat = Output.TABLE,
    no_headers: NoHeaders = False,
) -> None:
    """Create the Secrets that are missing, and renew certificates whose time has come; all else stays as it is."""
    servers = BundledServers(name, namespace, nats, postgres)
    rows = [one._asdict() for one in run(_create(servers, kubeconfig))]
    render(rows, WRITTEN, output, headers=not no_headers)


async def _create(servers: BundledServers, kubeconfig: Path | None) -> list[Written]:
    async with open_client(kubeconfig) as client:
        return await write_secrets(client, servers, system_clock, random_secret)
