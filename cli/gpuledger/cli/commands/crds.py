"""`gpuledger crds`: bring the product's kinds into a cluster, and see whether a cluster has them as shipped."""

from pathlib import Path
from typing import Annotated

import typer

from gpuledger.cli.errors import CliError, ExitCode
from gpuledger.cli.options import NoHeaders, OutputFormat
from gpuledger.cli.render import Column, Output, View, message, render
from gpuledger.cli.run import run
from gpuledger.edge.kube import crds
from gpuledger.edge.kube.client import open_client
from gpuledger.edge.kube.errors import ConflictError
from gpuledger.edge.kube.kubeconfig import KUBECONFIG

Row = dict[str, object]

Kubeconfig = Annotated[
    Path | None,
    typer.Option("--kubeconfig", help=f"The cluster's kubeconfig (or ${KUBECONFIG}).", show_default="~/.kube/config"),
]
Force = Annotated[bool, typer.Option("--force", help="Take fields that others own.")]

INSTALLED = View("CRD", (Column("name"), Column("change")), "name")
COMPARED = View("CRD", (Column("name"), Column("state"), Column("path"), Column("shipped"), Column("live")), "name")

app = typer.Typer(help="Install the kinds that gpuledger brings to Kubernetes.", no_args_is_help=True)


@app.command("install")
def install(
    kubeconfig: Kubeconfig = None,
    force: Force = False,
    output: OutputFormat = Output.TABLE,
    no_headers: NoHeaders = False,
) -> None:
    """Apply the CRDs that this build ships, and wait until the cluster serves them. No CRD is ever removed."""
    render(run(_install(kubeconfig, force=force)), INSTALLED, output, headers=not no_headers)


@app.command("diff")
def diff(
    kubeconfig: Kubeconfig = None,
    output: OutputFormat = Output.TABLE,
    no_headers: NoHeaders = False,
) -> None:
    """Show where the cluster's CRDs differ from those of this build; exits with 1 where one does, or is missing."""
    compared = run(_diff(kubeconfig))
    rows = [row for comparison in compared for row in difference_rows(comparison)]
    if rows or output is not Output.TABLE:
        render(rows, COMPARED, output, headers=not no_headers)
    if rows:
        raise typer.Exit(ExitCode.ERROR)
    message(f"All {len(compared)} CRDs are as shipped.")


def difference_rows(comparison: crds.Comparison) -> list[Row]:
    """A row for every place that differs, one without a place for a CRD that is missing, none for one that is alike."""
    if comparison.state == "missing":
        return [{"name": comparison.name, "state": "missing", "path": None, "shipped": None, "live": None}]
    return [
        {"name": comparison.name, "state": "different", **difference._asdict()} for difference in comparison.differences
    ]


async def _install(kubeconfig: Path | None, *, force: bool) -> list[Row]:
    async with open_client(kubeconfig) as client:
        try:
            return [one._asdict() for one in await crds.install(client, force=force)]
        except ConflictError as error:
            raise CliError(_owned(error), "Take them with `gpuledger crds install --force`") from error


async def _diff(kubeconfig: Path | None) -> list[crds.Comparison]:
    async with open_client(kubeconfig) as client:
        return await crds.diff(client)


def _owned(error: ConflictError) -> str:
    owned = "; ".join(f"{cause.field} ({cause.message})" for cause in error.causes)
    return f"Fields of a CRD belong to somebody else: {owned or error}"
