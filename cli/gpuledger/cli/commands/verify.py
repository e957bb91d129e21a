"""`gpuledger verify`: prove that tables and Kubernetes objects are what the log says, or name the first that is not."""

from typing import TYPE_CHECKING, Annotated

import typer

from gpuledger.cli.backend import open_backend
from gpuledger.cli.errors import CliError
from gpuledger.cli.options import Context, DataDir, Kubeconfig, NoHeaders, OutputFormat
from gpuledger.cli.render import Column, Output, View, message, progress, render
from gpuledger.cli.render.values import csv_field
from gpuledger.cli.run import run
from gpuledger.edge.kube.client import KubeClient
from gpuledger.projection.verify import Difference, Verification
from gpuledger.projection.verify import verify as verify_projection
from gpuledger.tools.cluster import KubeAccess, open_kube
from gpuledger.tools.queries.backend import Backend, bring_current, named_projections
from gpuledger.tools.queries.rows import RowDict

if TYPE_CHECKING:
    from gpuledger.edge.statuswriter.reconcile.verify import KubeVerification

Projections = Annotated[
    list[str] | None, typer.Argument(metavar="[PROJECTION]...", help="Only these.", show_default=False)
]

_VIEW = View(
    "projection",
    (
        Column("projection"),
        Column("position"),
        Column("rows", right=True),
        Column("differences", right=True),
        Column("first", "first_difference"),
    ),
    "projection",
)


KUBERNETES = "kubernetes"
"""What the API server's objects are called among the projections."""

KubeToo = Annotated[
    bool, typer.Option("--kube", help="Compare the GPUDevices and GPUNodeStates of Kubernetes with the ledger, too.")
]


def verify(
    projections: Projections = None,
    kube: KubeToo = False,
    output: OutputFormat = Output.TABLE,
    no_headers: NoHeaders = False,
    kubeconfig: Kubeconfig = None,
    context: Context = None,
    data_dir: DataDir = None,
) -> None:
    """Fold the log from its start and compare every row with PostgreSQL. Exits with 1 if one differs.

    With --kube the objects of Kubernetes are compared in the same way, which needs an API server.
    """
    access = KubeAccess(kubeconfig, context, data_dir) if kube else None
    found, objects = run(_verify(projections or [], data_dir, access))
    rows = [_row(result) for result in found] + ([_kube_row(objects)] if objects else [])
    render(rows, _VIEW, output, headers=not no_headers)
    wrong = [result for result in found if result.differences]
    for result in wrong:
        assert result.first is not None
        message(f"{result.projection}: {describe(result.first)}")
    _tell_objects(objects)
    if wrong:
        raise CliError(
            f"{sum(result.differences for result in wrong)} rows differ from the ledger",
            f"Rebuild them with `gpuledger replay {' '.join(result.projection for result in wrong)}`",
        )
    if objects and objects.differences:
        raise CliError(
            f"{objects.differences} objects in Kubernetes differ from the ledger",
            "Compare again, for a write may be under way; then look at the status writer's health",
        )
    compared = f"{sum(result.rows for result in found)} rows" + (f" and {objects.objects} objects" if objects else "")
    message(f"Every {'row and object' if objects else 'row'} is as the ledger says: {compared} compared.")


def _tell_objects(objects: "KubeVerification | None") -> None:
    if objects is None:
        return
    if not objects.enabled:
        message("The module is disabled by its ModuleConfig: nobody keeps the objects in Kubernetes.")
    for one in objects.first:
        expected, found = _value(one.expected), _value(one.found)
        message(f"{one.key.kind} {one.key.id} {one.path}: the ledger says {expected}, Kubernetes has {found}.")


def _value(value: object) -> str:
    return "nothing" if value is None else csv_field(value)


async def _verify(
    names: list[str], data_dir: DataDir, access: KubeAccess | None
) -> tuple[list[Verification], "KubeVerification | None"]:
    results = []
    objects = None
    async with open_backend(data_dir, "verify") as backend:
        await bring_current(backend, named_projections(names))
        for projection in named_projections(names):
            with progress(f"Verifying {projection.name}", total=None) as advance:
                results.append(
                    await verify_projection(
                        projection, backend.ledger, backend.database_url, lambda done, _total: advance.to(done)
                    )
                )
        if access is not None:
            objects = await _compare(backend, access)
    return results, objects


async def _compare(backend: Backend, access: KubeAccess) -> "KubeVerification":
    from gpuledger.edge.statuswriter.reconcile.verify import compare  # noqa: PLC0415 - only --kube needs the status writer

    async with open_kube(access, KubeClient) as client:
        with progress("Verifying Kubernetes", total=None) as advance:
            return await compare(client, backend.ledger, lambda done, _total: advance.to(done))


def describe(difference: Difference) -> str:
    """A difference in words."""
    key = ", ".join(str(part) for part in difference.key)
    return (
        f"{difference.table} ({key}): the ledger says {_shown(difference.expected)}, "
        f"the table holds {_shown(difference.found)}."
    )


def _shown(row: tuple[object, ...] | None) -> str:
    return "no such row" if row is None else f"({', '.join(str(value) for value in row)})"


def _row(result: Verification) -> RowDict:
    first = result.first
    return {
        "projection": result.projection,
        "position": str(result.position),
        "rows": result.rows,
        "differences": result.differences,
        "first_difference": None if first is None else f"{first.table}/{'/'.join(str(part) for part in first.key)}",
    }


def _kube_row(objects: "KubeVerification") -> RowDict:
    first = objects.first[0] if objects.first else None
    return {
        "projection": KUBERNETES,
        "position": str(objects.position),
        "rows": objects.objects,
        "differences": objects.differences,
        "first_difference": None if first is None else f"{first.key.kind}/{first.key.id}",
    }
