"""The options of `gpuledger agent`, each of which is also a variable of the agent's environment."""

from pathlib import Path
from typing import Annotated

import typer

from gpuledger.agent import settings as names
from gpuledger.runtime.placement_settings import NODE_NAME
from gpuledger.runtime.settings import METRICS_LISTEN, NATS_CREDENTIALS, NATS_URL

Node = Annotated[str | None, typer.Option("--node", metavar="NAME", help=f"Which node this is (or ${NODE_NAME}).")]
NatsUrl = Annotated[str | None, typer.Option("--nats-url", metavar="URL", help=f"The ledger (or ${NATS_URL}).")]
Credentials = Annotated[
    Path | None,
    typer.Option(
        "--nats-credentials",
        metavar="FILE",
        help=f"A .creds file, or one with a seed, or a user and password (or ${NATS_CREDENTIALS}).",
    ),
]
Exporter = Annotated[
    str | None,
    typer.Option(
        "--exporter",
        metavar="URL",
        help=f"The metrics of the node's dcgm-exporter (or ${names.EXPORTER_URL}).",
        show_default=names.DEFAULT_EXPORTER_URL,
    ),
]
StateDir = Annotated[
    Path | None,
    typer.Option(
        "--state-dir",
        metavar="DIR",
        help=f"The agent's folder on the node's disk (or ${names.STATE_DIR}).",
        show_default=names.DEFAULT_STATE_DIR,
    ),
]
Hardware = Annotated[
    str | None,
    typer.Option(
        "--hardware",
        metavar="KIND",
        help=f"nvml, simulated:8xH100 or recorded:FILE (or ${names.HARDWARE}).",
        show_default=names.DEFAULT_HARDWARE,
    ),
]
KubeletDir = Annotated[
    Path | None,
    typer.Option(
        "--kubelet-dir",
        metavar="DIR",
        help=f"The kubelet's folder, with device-plugins and pod-resources (or ${names.KUBELET_DIR}).",
        show_default=names.DEFAULT_KUBELET_DIR,
    ),
]
Allocate = Annotated[
    str | None,
    typer.Option(
        "--allocate",
        metavar="HOW",
        help=f"How containers get devices: env, cdi or both (or ${names.ALLOCATE}).",
        show_default="env",
    ),
]
Listen = Annotated[
    str | None,
    typer.Option(
        "--listen",
        metavar="HOST:PORT",
        help=f"Where /metrics and /healthz are served (or ${METRICS_LISTEN}); port 0 is any free one.",
        show_default="127.0.0.1:0",
    ),
]
