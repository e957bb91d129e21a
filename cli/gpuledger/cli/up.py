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
from gpuledger.settings import read_settings
from gpuledger.telemetry import configure_logging
from gpuledger.telemetry_http import ListenError, parse_address

Listen = Annotated[
    str | None,
    typer.Option(
        "--listen",
        metavar="HOST:PORT",
        help="Where /metrics and /healthz are served (or $GPULEDGER_METRICS_LISTEN); port 0 is any free one.",
        show_default="127.0.0.1:0",
    ),
]


def up(data_dir: DataDir = None, listen: Listen = None) -> None:
    """Run the embedded servers and all projections until Ctrl-C.

    With NATS_URL and DATABASE_URL set, those servers are used and none are started. Any other command with the same
    --data-dir finds what runs here.
    """
    from gpuledger.cli.serving import serve  # noqa: PLC0415 - takes a second to import

    configure_logging()
    settings = read_settings(os.environ, data_dir)
    address = listen or settings.metrics_listen
    _check_address(address)
    run(until_stopped(serve(settings, address)))


def _check_address(address: str) -> None:
    try:
        parse_address(address)
    except ListenError as error:
        raise CliError(str(error), code=ExitCode.USAGE) from error
