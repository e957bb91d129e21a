"""`gpuledger up`: servers, projections and the Kubernetes edge in one process, until a signal stops it.

It must end in an orderly way on SIGINT and SIGTERM, whatever it is doing. The command imports what it runs only when it
runs, because these imports take longer than most other commands.
"""

import os
from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from gpuledger.cli.errors import CliError, ExitCode
from gpuledger.cli.options import DataDir
from gpuledger.cli.render import Console, message_unless_closed, quiet_pipe
from gpuledger.cli.run import run
from gpuledger.runtime.export_settings import EXPORT as EXPORT_SETTINGS
from gpuledger.runtime.export_settings import read_export_settings
from gpuledger.runtime.extender_settings import read_extender_options
from gpuledger.runtime.garbage import seldom_collected, short_walks
from gpuledger.runtime.placement_settings import read_node
from gpuledger.runtime.settings import Settings, read_settings
from gpuledger.runtime.sharing_settings import read_sharing_names
from gpuledger.runtime.tasks import run_until_stopped
from gpuledger.runtime.telemetry import configure_logging
from gpuledger.runtime.telemetry_http import ListenError, parse_address

if TYPE_CHECKING:
    from gpuledger.compose.up import UpEndpoints

Listen = Annotated[
    str | None,
    typer.Option(
        "--listen",
        metavar="HOST:PORT",
        help="Address of /metrics and /healthz (or $GPULEDGER_METRICS_LISTEN); port 0 means any free port.",
        show_default="127.0.0.1:0",
    ),
]


Fleet = Annotated[
    str | None,
    typer.Option(
        "--fleet", metavar="SPEC", help="Simulate a fleet, such as nodes=16,gpus=8,profile=h200 (docs/kube-api.md)."
    ),
]
Speed = Annotated[float, typer.Option("--speed", help="Simulated seconds per real second.")]
Seed = Annotated[
    int, typer.Option("--seed", help="Seed of the simulation: the same seed gives the same fleet and the same events.")
]
NoRules = Annotated[
    bool,
    typer.Option(
        "--no-rules", help="With --fleet: leave out the rules of quarantine that a fleet's first start puts into force."
    ),
]
KubeListen = Annotated[
    str, typer.Option("--kube-listen", metavar="HOST:PORT", help="Address of the embedded Kubernetes API.")
]
NoKube = Annotated[
    bool, typer.Option("--no-kube", help="Run without Kubernetes: no API server, watchers, status writer or webhooks.")
]

Kube = Annotated[
    bool,
    typer.Option("--kube", help="Join the cluster of KUBECONFIG, although the data directory never met it."),
]
TakeOver = Annotated[
    bool,
    typer.Option("--take-over", help="Make the cluster belong to this ledger, even if it belongs to another one."),
]
Only = Annotated[
    str | None,
    typer.Option(
        "--only",
        metavar="NAME,...",
        help="Run these services alone, beside processes with the others: projections, edge, snapshots, export.",
    ),
]


def up(
    data_dir: DataDir = None,
    listen: Listen = None,
    fleet: Fleet = None,
    speed: Speed = 1.0,
    seed: Seed = 1,
    no_rules: NoRules = False,
    kube_listen: KubeListen = "127.0.0.1:0",
    no_kube: NoKube = False,
    kube: Kube = False,
    take_over: TakeOver = False,
    only: Only = None,
) -> None:
    """Run the embedded servers, all projections and the Kubernetes edge until Ctrl-C.

    If NATS_URL and DATABASE_URL are set, it uses these servers and starts none. If KUBECONFIG is set, or in a pod with
    a service account token, it uses that cluster in place of the embedded API server; a data directory joins the
    cluster of KUBECONFIG the first time only with --kube. Other commands with the same --data-dir find the running
    servers.
    """
    with seldom_collected():
        from gpuledger.cli.local_servers import local_servers  # noqa: PLC0415 - takes a second to import
        from gpuledger.compose.edge import FleetOptions, check_fleet, check_module  # noqa: PLC0415
        from gpuledger.compose.up import EDGE, EXPORT, Reports, UpOptions, serve, services_named  # noqa: PLC0415

    configure_logging()
    settings = read_settings(os.environ, data_dir)
    address = listen or settings.metrics_listen
    _check_addresses(address, kube_listen, *filter(None, [settings.webhooks.listen, settings.preflight.listen]))
    fleet_options = FleetOptions.read(fleet, speed, seed, has_rules=not no_rules) if fleet else None
    _check_fleet_options(fleet, no_rules=no_rules, no_kube=no_kube)
    if no_kube and (kube or take_over):
        raise CliError("--kube and --take-over are about a cluster", "Leave out --no-kube", code=ExitCode.USAGE)
    services = services_named(only)
    export = read_export_settings(os.environ)
    if EXPORT in services and export is None:
        raise CliError("--only export names no endpoint", f"Set {EXPORT_SETTINGS}", code=ExitCode.USAGE)
    has_edge = not no_kube and (not services or EDGE in services)
    if not has_edge and not no_kube and (fleet or kube or take_over):
        raise CliError("--fleet, --kube and --take-over are about a cluster", "Add edge to --only", code=ExitCode.USAGE)
    if has_edge:
        check_module(settings)
        check_fleet(settings, fleet_options)
    sharing, extender = read_sharing_names(os.environ), read_extender_options(os.environ)
    node = read_node(os.environ)
    options = UpOptions(address, has_edge, fleet_options, kube, take_over, services, export, sharing, extender, node)
    show = partial(_show_endpoints, settings)
    work = serve(settings, options, local_servers(settings.data_dir, kube_listen), Reports(show, message_unless_closed))
    with short_walks():
        run(run_until_stopped(work, message_unless_closed))


def _check_fleet_options(fleet: str | None, *, no_rules: bool, no_kube: bool) -> None:
    if no_rules and not fleet:
        raise CliError("--no-rules is about a simulated fleet", "Add --fleet", code=ExitCode.USAGE)
    if no_kube and fleet:
        raise CliError("--fleet needs the Kubernetes API", "Leave out --no-kube", code=ExitCode.USAGE)


def _check_addresses(*addresses: str) -> None:
    try:
        for address in addresses:
            parse_address(address)
    except ListenError as error:
        raise CliError(str(error), code=ExitCode.USAGE) from error


def _show_endpoints(settings: Settings, endpoints: "UpEndpoints") -> None:
    """Show how to reach everything; passwords only of servers that belong to this user."""
    lines = ["gpuledger is up; Ctrl-C stops it.", ""]
    if endpoints.kubeconfig is not None:
        lines += [f"  export KUBECONFIG={endpoints.kubeconfig}"]
    if endpoints.cluster is not None:
        lines += [f"  cluster  {endpoints.cluster}"]
    if settings.servers is None:
        lines += [f"  export NATS_URL={endpoints.nats_url}", f"  export DATABASE_URL={endpoints.database_url}", ""]
        lines += [f"  data     {settings.data_dir}"]
    if endpoints.rules is not None:
        file, since = endpoints.rules
        lines += [
            f"  rules    {file}, in force from {since} on: a card's fault sets its node aside",
            "           (gpuledger quarantine rules|status; without them: up --no-rules)",
        ]
    lines += [f"  metrics  {endpoints.telemetry_url}/metrics", f"  health   {endpoints.telemetry_url}/healthz", ""]
    console = Console.standard()
    with quiet_pipe(console.out):
        console.out.write("\n".join(lines) + "\n")
