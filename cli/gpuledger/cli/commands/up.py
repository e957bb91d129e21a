"""`gpuledger up`: servers, projections and the Kubernetes edge in one process, until it is told to stop.

It must end in an orderly way on SIGINT and SIGTERM, whatever it is just doing. What it runs is imported only then,
because that takes longer than most other commands.
"""

import os
from typing import Annotated

import typer

from gpuledger.cli.errors import CliError, ExitCode
from gpuledger.cli.options import DataDir
from gpuledger.cli.run import run
from gpuledger.cli.stopping import until_stopped
from gpuledger.runtime.garbage import short_walks
from gpuledger.runtime.settings import read_settings
from gpuledger.runtime.telemetry import configure_logging
from gpuledger.runtime.telemetry_http import ListenError, parse_address

Listen = Annotated[
    str | None,
    typer.Option(
        "--listen",
        metavar="HOST:PORT",
        help="Where /metrics and /healthz are served (or $GPULEDGER_METRICS_LISTEN); port 0 is any free one.",
        show_default="127.0.0.1:0",
    ),
]


Fleet = Annotated[
    str | None,
    typer.Option(
        "--fleet", metavar="SPEC", help="Simulate a fleet, for example nodes=16,gpus=8,profile=h200 (see the docs)."
    ),
]
Speed = Annotated[float, typer.Option("--speed", help="How many simulated seconds a real one is.")]
Seed = Annotated[int, typer.Option("--seed", help="What the fleet's identity and everything that happens follow from.")]
KubeListen = Annotated[
    str, typer.Option("--kube-listen", metavar="HOST:PORT", help="Where the embedded Kubernetes API is served.")
]
NoKube = Annotated[bool, typer.Option("--no-kube", help="Run without a Kubernetes API and what belongs to it.")]


def up(
    data_dir: DataDir = None,
    listen: Listen = None,
    fleet: Fleet = None,
    speed: Speed = 1.0,
    seed: Seed = 1,
    kube_listen: KubeListen = "127.0.0.1:0",
    no_kube: NoKube = False,
) -> None:
    """Run the embedded servers, all projections and the Kubernetes edge until Ctrl-C.

    With NATS_URL and DATABASE_URL set, those servers are used and none are started; with KUBECONFIG set, or in a pod
    with a service account's token, that cluster instead of the embedded API server. Any other command with the same
    --data-dir finds what runs here.
    """
    from gpuledger.cli.edge import EdgeOptions, FleetOptions, check_options  # noqa: PLC0415 - takes a second to import
    from gpuledger.cli.serving import serve  # noqa: PLC0415

    configure_logging()
    settings = read_settings(os.environ, data_dir)
    address = listen or settings.metrics_listen
    _check_address(address)
    _check_address(kube_listen)
    if settings.webhooks.listen is not None:
        _check_address(settings.webhooks.listen)
    simulated = FleetOptions.read(fleet, speed, seed) if fleet else None
    if no_kube and simulated:
        raise CliError("--fleet needs the Kubernetes API", "Leave out --no-kube", code=ExitCode.USAGE)
    edge = None if no_kube else EdgeOptions(kube_listen, simulated)
    if edge is not None:
        check_options(settings, edge)
    with short_walks():
        run(until_stopped(serve(settings, address, edge)))


def _check_address(address: str) -> None:
    try:
        parse_address(address)
    except ListenError as error:
        raise CliError(str(error), code=ExitCode.USAGE) from error
