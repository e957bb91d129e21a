"""Commands about what a cluster has installed: `crds`, `nfd`, and `admission` and `uninstall` for the chart's hooks."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer

from gpuledger.api.bundled import BundledServers
from gpuledger.api.kinds import NODE_FEATURE_RULE
from gpuledger.cli.errors import CliError, ExitCode
from gpuledger.cli.options import Context, DataDir, Kubeconfig, NoHeaders, OutputFormat
from gpuledger.cli.render import Column, Output, View, message, render
from gpuledger.cli.run import run
from gpuledger.domain.inventory.feature_rule import UnknownRuleError
from gpuledger.edge.kube import crds as definitions
from gpuledger.edge.kube.client import KubeClient, Object, open_client
from gpuledger.edge.kube.errors import ConflictError
from gpuledger.edge.kube.kubeconfig import KUBECONFIG
from gpuledger.runtime.sharing_settings import read_sharing_names
from gpuledger.tools.cluster import KubeAccess, open_kube
from gpuledger.tools.nfd_coverage import (
    RARE_NODES,
    RARE_SHARE,
    Coverage,
    coverage_of,
)
from gpuledger.tools.uninstall import Uninstalled, WebhookService, remove_hooks, report
from gpuledger.tools.uninstall import uninstall as uninstall_from

Row = dict[str, object]

PlainKubeconfig = Annotated[
    Path | None,
    typer.Option("--kubeconfig", help=f"The cluster's kubeconfig (or ${KUBECONFIG}).", show_default="~/.kube/config"),
]
Force = Annotated[bool, typer.Option("--force", help="Take over fields that others own.")]

INSTALLED = View("CRD", (Column("name"), Column("change")), "name")
COMPARED = View("CRD", (Column("name"), Column("state"), Column("path"), Column("shipped"), Column("live")), "name")
FINDINGS = View(
    "finding",
    (
        Column("node"),
        Column("finding"),
        Column("label"),
        Column("expected"),
        Column("actual"),
        Column("detail"),
    ),
    "node",
)

crds = typer.Typer(help="Install the CRDs that gpuledger brings to Kubernetes.", no_args_is_help=True)
nfd = typer.Typer(help="Check what Node Feature Discovery reports about the GPUs.", no_args_is_help=True)
admission = typer.Typer(help="Remove the admission webhooks from a cluster.", no_args_is_help=True)


@crds.command("install")
def install(
    kubeconfig: PlainKubeconfig = None,
    force: Force = False,
    output: OutputFormat = Output.TABLE,
    no_headers: NoHeaders = False,
) -> None:
    """Apply the CRDs that this build ships, and wait until the cluster serves them. No CRD is ever removed."""
    render(run(_install(kubeconfig, force=force)), INSTALLED, output, headers=not no_headers)


@crds.command("diff")
def diff(
    kubeconfig: PlainKubeconfig = None,
    output: OutputFormat = Output.TABLE,
    no_headers: NoHeaders = False,
) -> None:
    """Show where the cluster's CRDs differ from those of this build; exits with 1 if one differs or is missing."""
    compared = run(_diff(kubeconfig))
    rows = [row for comparison in compared for row in difference_rows(comparison)]
    if rows or output is not Output.TABLE:
        render(rows, COMPARED, output, headers=not no_headers)
    if rows:
        raise typer.Exit(ExitCode.ERROR)
    message(f"All {len(compared)} CRDs are as shipped.")


@nfd.callback()
def check_nfd() -> None:
    """Check what Node Feature Discovery reports about the GPUs."""


@nfd.command("coverage")
def coverage(
    output: OutputFormat = Output.TABLE,
    no_headers: NoHeaders = False,
    kubeconfig: Kubeconfig = None,
    context: Context = None,
    data_dir: DataDir = None,
) -> None:
    """Compare the labels of every GPU node with those that the shipped NodeFeatureRule derives from its PCI devices.

    Exits with 1 if labels are missing, different or left over, or if a GPU has a class that the rule does not match.
    Rare models are listed and are no failure.
    """
    found = run(_coverage(KubeAccess(kubeconfig, context, data_dir)))
    if found.rows or output is not Output.TABLE:
        render((row._asdict() for row in found.rows), FINDINGS, output, headers=not no_headers)
    if not found.is_complete:
        missing = f"The rule {NODE_FEATURE_RULE} is not in the cluster; install it"
        there = f"Look into the log of nfd-master, and at `kubectl get nodefeaturerule {NODE_FEATURE_RULE} -o yaml`"
        problem = f"Labels are wrong on {found.wrong_nodes} of {found.nodes} GPU nodes"
        raise CliError(problem, there if found.has_rule else missing)
    message(
        f"Every label is as it should be: {found.nodes} GPU nodes, {found.cards} cards, {found.models} models "
        f"(rare: on fewer than {RARE_NODES} nodes, or less than {RARE_SHARE:.0%} of the cards)."
    )


@admission.callback()
def admission_group() -> None:
    """Remove the admission webhooks from a cluster."""


@admission.command("remove")
def remove(
    only: Annotated[
        WebhookService | None, typer.Option("--only", help="The service whose webhooks go.", show_default="all")
    ] = None,
    kubeconfig: PlainKubeconfig = None,
) -> None:
    """Delete webhook configurations. A `gpuledger up` that still runs in the cluster applies them again."""
    kinds = run(_remove(kubeconfig, [only] if only else list(WebhookService)))
    message(f"Removed: {', '.join(kinds)}." if kinds else "There was nothing to remove.")


def uninstall(
    namespace: Annotated[str, typer.Option("--namespace", "-n", help="The namespace that gpuledger ran in.")],
    name: Annotated[
        str | None,
        typer.Option("--name", help="How the names of its objects began, if the release brought its servers."),
    ] = None,
    kubeconfig: PlainKubeconfig = None,
) -> None:
    """Remove what gpuledger keeps in a cluster, and release people's pools, once its services have ended.

    Pools, the CRDs and the ledger remain. A `gpuledger up` that still runs in the cluster puts everything back.
    """
    servers = BundledServers(name, namespace) if name else None
    for line in report(run(_uninstall(kubeconfig, namespace, servers))):
        message(line)


def difference_rows(comparison: definitions.Comparison) -> Iterator[Row]:
    """A row for every place that differs; one without a place for a missing CRD, none for an equal one."""
    row: Row = {"name": comparison.name, "state": "different"}
    if comparison.state == "missing":
        yield row | {"state": "missing", "path": None, "shipped": None, "live": None}
    yield from (row | difference._asdict() for difference in comparison.differences)


async def _install(kubeconfig: Path | None, *, force: bool) -> list[Row]:
    async with open_client(kubeconfig) as client:
        try:
            return [one._asdict() for one in await definitions.install(client, _shipped(), force=force)]
        except ConflictError as error:
            owned = "; ".join(f"{cause.field} ({cause.message})" for cause in error.causes)
            hint = "Take them with `gpuledger crds install --force`"
            raise CliError(f"Fields of a CRD belong to somebody else: {owned or error}", hint) from error


async def _diff(kubeconfig: Path | None) -> list[definitions.Comparison]:
    async with open_client(kubeconfig) as client:
        return await definitions.diff(client, _shipped())


def _shipped() -> tuple[Object, ...]:
    return definitions.shipped(read_sharing_names(os.environ))


async def _coverage(access: KubeAccess) -> Coverage:
    async with open_kube(access, KubeClient) as client:
        try:
            return await coverage_of(client)
        except UnknownRuleError as error:
            raise CliError(str(error), "Use a build whose check and rule belong together") from error


async def _uninstall(kubeconfig: Path | None, namespace: str, servers: BundledServers | None) -> Uninstalled:
    async with open_client(kubeconfig) as client:
        return await uninstall_from(client, namespace, servers, read_sharing_names(os.environ))


async def _remove(kubeconfig: Path | None, services: list[WebhookService]) -> list[str]:
    async with open_client(kubeconfig) as client:
        return await remove_hooks(client, services)
