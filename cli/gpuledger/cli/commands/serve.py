"""`gpuledger serve`: NATS, PostgreSQL and the extender as the chart's pods run them, in the foreground."""

import os
import platform
import tempfile
from pathlib import Path
from typing import Annotated

import typer

from gpuledger.api.bundled import NATS_MONITORING_PORT, NATS_PORT, POSTGRES_PORT
from gpuledger.cli.render import message_unless_closed
from gpuledger.cli.run import run
from gpuledger.local.pods.foreground import PodServer, serve
from gpuledger.local.pods.nats import NatsOptions, PodNats
from gpuledger.local.pods.patroni import PodPatroni
from gpuledger.local.pods.patroni_config import member_of
from gpuledger.local.pods.postgres import PodPostgres
from gpuledger.local.pods.postgres_pod import PostgresOptions, link_programs
from gpuledger.runtime.extender_settings import read_extender_options
from gpuledger.runtime.settings import DEFAULT_NAMESPACE, read_settings
from gpuledger.runtime.sharing_settings import read_sharing_names
from gpuledger.runtime.tasks import run_until_stopped
from gpuledger.runtime.telemetry import configure_logging

Secret = Annotated[
    Path, typer.Option("--secret", metavar="DIR", help="Where the server's Secret is mounted; renewals are followed.")
]
Data = Annotated[Path, typer.Option("--data", metavar="DIR", help="Where the server keeps its data.")]
Runtime = Annotated[
    Path | None,
    typer.Option("--runtime", metavar="DIR", help="For what lasts as long as the server.", show_default="a new one"),
]
Peers = Annotated[
    list[str] | None,
    typer.Option("--peer", metavar="HOST", help="Each server of the cluster, this one included.", show_default="alone"),
]
Name = Annotated[str | None, typer.Option("--name", help="The server's name.", show_default="that of the host")]
Port = Annotated[int, typer.Option("--port", help="Where to listen for clients.")]
Namespace = Annotated[str, typer.Option("--namespace", help="Where the pods of the cluster are.")]
MonitoringPort = Annotated[int, typer.Option("--monitoring-port", help="Where to answer probes.")]

app = typer.Typer(help="Run a server that the chart brings, in the foreground.", no_args_is_help=True)


@app.command("nats")
def nats(
    secret: Secret,
    data: Data,
    runtime: Runtime = None,
    peer: Peers = None,
    name: Name = None,
    port: Port = NATS_PORT,
    monitoring_port: MonitoringPort = NATS_MONITORING_PORT,
) -> None:
    """Run nats-server with JetStream, over TLS, with the logins of the Secret."""
    peers = tuple(peer or ())
    options = NatsOptions(secret, data, _folder(runtime), name or platform.node(), peers, port, monitoring_port)
    _run(PodNats(options))


@app.command("postgres")
def postgres(
    secret: Secret,
    data: Data,
    runtime: Runtime = None,
    peer: Peers = None,
    name: Name = None,
    namespace: Namespace = DEFAULT_NAMESPACE,
    port: Port = POSTGRES_PORT,
) -> None:
    """Run PostgreSQL with the database `gpuledger`, over TLS, with the password of the Secret.

    With peers, Patroni runs it as one of several servers, whose leader is elected by ConfigMaps of the namespace.
    """
    folder = _folder(runtime)
    link_programs(folder)
    options = PostgresOptions(secret, data, folder, port)
    if peer:
        _run(PodPatroni(options, member_of(name or platform.node(), tuple(peer), namespace)))
    else:
        _run(PodPostgres(options))


@app.command("extender")
def extender() -> None:
    """Run the extender of kube-scheduler, which gives pods their shared devices.

    Settings come from the environment; docs/sharing.md describes them.
    """
    from gpuledger.compose.extender import ExtenderProcess  # noqa: PLC0415 - takes a second to import

    configure_logging()
    process = ExtenderProcess(
        read_settings(os.environ), read_extender_options(os.environ), read_sharing_names(os.environ)
    )
    run(run_until_stopped(process.run(message_unless_closed), message_unless_closed))


def _folder(given: Path | None) -> Path:
    if given is None:
        return Path(tempfile.mkdtemp(prefix="gpuledger-"))
    given.mkdir(mode=0o700, parents=True, exist_ok=True)
    return given


def _run(server: PodServer) -> None:
    configure_logging()
    run(run_until_stopped(serve(server), message_unless_closed))
