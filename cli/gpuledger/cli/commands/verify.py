"""`gpuledger verify`: prove that tables and Kubernetes objects are what the log says, or name the first that is not."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from gpuledger.cli.backend import open_backend
from gpuledger.cli.errors import CliError
from gpuledger.cli.options import Context, DataDir, Kubeconfig, NoHeaders, OutputFormat
from gpuledger.cli.render import Column, Output, View, message, render
from gpuledger.cli.render.values import csv_field
from gpuledger.cli.run import run
from gpuledger.ledger.api import Position
from gpuledger.projection.verify import Difference
from gpuledger.tools.cluster import KubeAccess
from gpuledger.tools.queries.rows import RowDict

if TYPE_CHECKING:
    from gpuledger.tools.verification import Verified

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
    found = run(_verify(projections or [], data_dir, access))
    render(_rows(found), _VIEW, output, headers=not no_headers)
    wrong = [result for result in found.projections if result.differences]
    for result in wrong:
        assert result.first is not None
        message(f"{result.projection}: {describe(result.first)}")
    _show_objects(found)
    if wrong:
        raise CliError(
            f"{sum(result.differences for result in wrong)} rows differ from the ledger",
            f"Rebuild them with `gpuledger replay {' '.join(result.projection for result in wrong)}`",
        )
    if found.objects and found.objects.differences:
        raise CliError(
            f"{found.objects.differences} objects in Kubernetes differ from the ledger",
            "Compare again, for a write may be under way; then look at the status writer's health",
        )
    rows = sum(result.rows for result in found.projections)
    compared = f"{rows} rows" + (f" and {found.objects.objects} objects" if found.objects else "")
    message(f"Every {'row and object' if found.objects else 'row'} is as the ledger says: {compared} compared.")


def _show_objects(found: "Verified") -> None:
    if found.objects is None:
        return
    if not found.objects.enabled:
        message("The module is disabled by its ModuleConfig: nobody keeps the objects in Kubernetes.")
    for one in found.objects.first:
        expected, actual = _value(one.expected), _value(one.found)
        message(f"{one.key.kind} {one.key.id} {one.path}: the ledger says {expected}, Kubernetes has {actual}.")


def _value(value: object) -> str:
    return "nothing" if value is None else csv_field(value)


async def _verify(names: list[str], data_dir: DataDir, access: KubeAccess | None) -> "Verified":
    from gpuledger.tools.verification import verify_all  # noqa: PLC0415 - takes long to import

    async with open_backend(data_dir, "verify") as backend:
        return await verify_all(backend, names, access)


def describe(difference: Difference) -> str:
    """A difference in words."""
    key = ", ".join(str(part) for part in difference.key)
    return (
        f"{difference.table} ({key}): the ledger says {_shown(difference.expected)}, "
        f"the table holds {_shown(difference.found)}."
    )


def _shown(row: tuple[object, ...] | None) -> str:
    return "no such row" if row is None else f"({', '.join(str(value) for value in row)})"


def _rows(found: "Verified") -> Iterator[RowDict]:
    for result in found.projections:
        first = result.first
        where = None if first is None else f"{first.table}/{'/'.join(str(part) for part in first.key)}"
        yield _row(result.projection, result.position, result.rows, result.differences, where)
    if objects := found.objects:
        key = objects.first[0].key if objects.first else None
        where = None if key is None else f"{key.kind}/{key.id}"
        yield _row(KUBERNETES, objects.position, objects.objects, objects.differences, where)


def _row(name: str, position: Position, rows: int, differences: int, first: str | None) -> RowDict:
    return {
        "projection": name,
        "position": str(position),
        "rows": rows,
        "differences": differences,
        "first_difference": first,
    }
