"""Options that several commands share, so that they have the same names, help and defaults everywhere."""

from pathlib import Path
from typing import Annotated

import typer

from gpuledger.cli.render import Output
from gpuledger.runtime.settings import DATA_DIR, DEFAULT_DATA_DIR, KUBECONFIG

DataDir = Annotated[
    Path | None,
    typer.Option(
        "--data-dir",
        help=f"Directory of the embedded servers (or ${DATA_DIR}). Ignored if NATS_URL and DATABASE_URL are set.",
        show_default=str(DEFAULT_DATA_DIR),
    ),
]
Kubeconfig = Annotated[
    Path | None,
    typer.Option(
        "--kubeconfig", help=f"Path to the kubeconfig file (or ${KUBECONFIG}).", show_default="that of `gpuledger up`"
    ),
]
Context = Annotated[str | None, typer.Option("--context", help="The kubeconfig context to use.")]
OutputFormat = Annotated[Output, typer.Option("--output", "-o", help="Output format.")]
NoHeaders = Annotated[bool, typer.Option("--no-headers", help="Do not print headers.")]
At = Annotated[
    str | None,
    typer.Option(
        "--at", metavar="TIME", help="Show the state at this time: RFC 3339, a date, or relative such as -2h."
    ),
]
AsRecorded = Annotated[
    str | None,
    typer.Option(
        "--as-recorded",
        metavar="POSITION|TIME",
        help="Show what was recorded up to this position (1500 or 1/1500) or time of recording.",
    ),
]
ArchiveLocation = Annotated[
    str | None,
    typer.Option(
        "--archive",
        metavar="LOCATION",
        help="Ask this archive of the log in place (`gpuledger log archive`): a folder, or s3://BUCKET/PREFIX.",
    ),
]
