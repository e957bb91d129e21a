"""The options that several commands share, so that they read and behave alike everywhere."""

from pathlib import Path
from typing import Annotated

import typer

from gpuledger.cli.render import Output
from gpuledger.runtime.settings import DATA_DIR, DEFAULT_DATA_DIR, KUBECONFIG

DataDir = Annotated[
    Path | None,
    typer.Option(
        "--data-dir",
        help=f"Folder of the embedded servers (or ${DATA_DIR}); not used where NATS_URL and DATABASE_URL are set.",
        show_default=str(DEFAULT_DATA_DIR),
    ),
]
Kubeconfig = Annotated[
    Path | None,
    typer.Option(
        "--kubeconfig", help=f"The cluster's kubeconfig (or ${KUBECONFIG}).", show_default="that of `gpuledger up`"
    ),
]
Context = Annotated[str | None, typer.Option("--context", help="The kubeconfig's context to use.")]
OutputFormat = Annotated[Output, typer.Option("--output", "-o", help="How to show the rows.")]
NoHeaders = Annotated[bool, typer.Option("--no-headers", help="Leave out the header line.")]
At = Annotated[
    str | None,
    typer.Option("--at", metavar="TIME", help="As it was at this time (RFC 3339, a date, or relative such as -2h)."),
]
AsRecorded = Annotated[
    str | None,
    typer.Option(
        "--as-recorded",
        metavar="POSITION|TIME",
        help="As it was known when the log had come this far: a position (1500 or 1/1500) or a time of recording.",
    ),
]
