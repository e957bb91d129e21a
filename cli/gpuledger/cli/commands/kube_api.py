"""`gpuledger kube-api`: the embedded Kubernetes API server alone and empty, for tests and experiments."""

import asyncio
import os
from pathlib import Path
from typing import Annotated

import typer

from gpuledger.cli.options import DataDir
from gpuledger.cli.render import message_unless_closed
from gpuledger.cli.run import run
from gpuledger.runtime.clock import system_clock
from gpuledger.runtime.garbage import short_walks
from gpuledger.runtime.settings import read_settings
from gpuledger.runtime.tasks import run_until_stopped
from gpuledger.runtime.telemetry import configure_logging
from gpuledger.runtime.telemetry_http import parse_address

CERTIFICATES = "kube-api"
"""Where in the data directory the certificates lie."""

Listen = Annotated[
    str, typer.Option("--listen", metavar="HOST:PORT", help="Address to serve at; port 0 means any free port.")
]
Kubeconfig = Annotated[
    Path | None, typer.Option("--kubeconfig", metavar="FILE", help="Write a kubeconfig for the server to this file.")
]
Tls = Annotated[bool, typer.Option("--tls", help="Serve HTTPS, with a CA that is created in the data directory.")]

AllowPrivileged = Annotated[
    bool, typer.Option("--allow-privileged", help="Accept pods with privileged containers, as kube-apiserver does.")
]


def kube_api(
    listen: Listen = "127.0.0.1:0",
    kubeconfig: Kubeconfig = None,
    tls: Tls = False,
    allow_privileged: AllowPrivileged = False,
    data_dir: DataDir = None,
) -> None:
    """Serve an empty Kubernetes API in memory until Ctrl-C.

    Whoever reaches the address may do everything, so keep it on the loopback interface.
    """
    configure_logging()
    directory = read_settings(os.environ, data_dir).data_dir / CERTIFICATES if tls else None
    host, port = parse_address(listen)
    with short_walks():
        run(run_until_stopped(_serve(host, port, kubeconfig, directory, allow_privileged), message_unless_closed))


async def _serve(host: str, port: int, config: Path | None, directory: Path | None, allow_privileged: bool) -> None:
    from gpuledger.local.kubeapi import kubeconfig as files  # noqa: PLC0415 - takes a second to import
    from gpuledger.local.kubeapi.server import ApiServer  # noqa: PLC0415
    from gpuledger.local.kubeapi.tls import certificates  # noqa: PLC0415

    made = certificates(directory, host, system_clock()) if directory else None
    context = made.server_context() if made else None
    async with ApiServer(allow_privileged=allow_privileged).serving(host, port, context) as url:
        message_unless_closed(f"Serving an empty Kubernetes API at {url}.")
        if config is not None:
            text = files.kubeconfig(url, made.ca.read_bytes() if made else None)
            files.write_kubeconfig(config, text)
            message_unless_closed(f"Try: KUBECONFIG={config} kubectl get namespaces")
        await asyncio.Event().wait()
