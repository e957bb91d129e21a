"""`gpuledger runtime-proxy`: stands between a node's kubelet and its container runtime, and gives containers devices.

It needs neither the ledger nor the database nor the Kubernetes API.
"""

import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from gpuledger.runtime.settings import METRICS_LISTEN
from gpuledger.runtimeproxy import settings as names
from gpuledger.runtimeproxy.settings import read_proxy_settings

Listen = Annotated[
    str | None,
    typer.Option(
        "--listen",
        metavar="unix://PATH",
        help=f"The socket for the kubelet's --container-runtime-endpoint (or ${names.LISTEN}).",
        show_default=names.DEFAULT_LISTEN,
    ),
]
Runtime = Annotated[
    str | None,
    typer.Option(
        "--runtime",
        metavar="unix://PATH",
        help=f"The socket of the container runtime (or ${names.RUNTIME}).",
        show_default=names.DEFAULT_RUNTIME,
    ),
]
Folder = Annotated[
    Path | None,
    typer.Option(
        "--dir",
        metavar="DIR",
        help=f"The folder that the node's agent shares (or ${names.FOLDER}).",
        show_default=names.DEFAULT_FOLDER,
    ),
]
Metrics = Annotated[
    str | None,
    typer.Option(
        "--metrics", metavar="HOST:PORT", help=f"Where to serve /metrics and /healthz (or ${METRICS_LISTEN})."
    ),
]


def runtime_proxy(
    listen: Listen = None, runtime: Runtime = None, folder: Folder = None, metrics: Metrics = None
) -> None:
    """Pass all calls of a node's kubelet to its container runtime, and put pods' shared devices into their containers.

    docs/sharing.md says how to switch a node to it and back.
    """
    given = {names.LISTEN: listen, names.RUNTIME: runtime, names.FOLDER: folder, METRICS_LISTEN: metrics}
    environ = {**os.environ, **{name: str(value) for name, value in given.items() if value is not None}}
    read_proxy_settings(environ)
    sys.stderr.flush()
    os.execve(sys.executable, [sys.executable, "-m", "gpuledger.runtimeproxy"], environ)  # noqa: S606 - our own program
