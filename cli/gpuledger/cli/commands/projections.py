"""`gpuledger verify` and `gpuledger replay`: prove that the tables are what the log says, and rebuild them from it."""

import os
from collections.abc import Awaitable, Callable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from gpuledger.cli.backend import open_backend
from gpuledger.cli.errors import CliError, ExitCode
from gpuledger.cli.options import Context, DataDir, Kubeconfig, NoHeaders, OutputFormat
from gpuledger.cli.render import Column, Output, View, message, render
from gpuledger.cli.render.values import csv_field
from gpuledger.cli.run import run
from gpuledger.events.position import Position
from gpuledger.ledger.errors import LogChangedError
from gpuledger.projection.definition import Projection
from gpuledger.projection.errors import ProjectionError
from gpuledger.projection.verify import Verification
from gpuledger.runtime.sharing_settings import read_sharing_names
from gpuledger.tools.cluster import KubeAccess
from gpuledger.tools.kept_snapshots import remedy, verify_snapshots
from gpuledger.tools.log_proof import GenerationProof, LogProof, prove_log
from gpuledger.tools.projections import (
    changed_words,
    difference_words,
    rebuild_projections,
    rehearse_rebuild,
    repair_objects,
    roll_back_projections,
    verify_objects,
    verify_projections,
)
from gpuledger.tools.queries.backend import Backend, named_projections
from gpuledger.tools.queries.found_rows import RowDict

if TYPE_CHECKING:
    from gpuledger.edge.statuswriter.reconcile.verify import KubeVerification

KUBERNETES = "kubernetes"
"""The name of the API server's objects among the projections."""

LOG = "log"
"""The name of the log itself among them; its rows are seals."""

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

Projections = Annotated[
    list[str] | None,
    typer.Argument(metavar="[PROJECTION]...", help="The projections; all by default.", show_default=False),
]
WithKube = Annotated[bool, typer.Option("--kube", help="Also compare the objects in Kubernetes with the ledger.")]
Repair = Annotated[
    bool,
    typer.Option("--repair", help="With --kube, first remove objects that the ledger does not have."),
]
WithLog = Annotated[bool, typer.Option("--log", help="Also compare the log with its seals, from its start.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Fold in memory, report what would change, and write nothing.")]
AcceptLoss = Annotated[
    bool, typer.Option("--accept-loss", help="Rebuild from a log that has lost events, after a restore of an old copy.")
]
FromStart = Annotated[
    bool, typer.Option("--from-start", help="Begin at the first event, even where there is a snapshot.")
]
Rollback = Annotated[bool, typer.Option("--rollback", help="Go back to the rows of before the last replay.")]


def verify(
    projections: Projections = None,
    kube: WithKube = False,
    log: WithLog = False,
    repair: Repair = False,
    output: OutputFormat = Output.TABLE,
    no_headers: NoHeaders = False,
    kubeconfig: Kubeconfig = None,
    context: Context = None,
    data_dir: DataDir = None,
) -> None:
    """Verify that the tables are what the log says: fold it from its start and compare every row.

    Without names the snapshots at which services begin are compared as well, each with a fold up to its position.
    Exits with 1 if a row differs. With --kube it compares the objects in Kubernetes in the same way, and with --log
    the log itself with the seals that were made as it grew.
    """
    if repair and not kube:
        raise CliError("--repair is about objects in Kubernetes", "Give --kube too", ExitCode.USAGE)
    access = KubeAccess(kubeconfig, context, data_dir) if kube else None
    found, objects, proof = run(_verify(projections or [], data_dir, access, log=log, repair=repair))
    render(_rows(found, objects, proof), _VIEW, output, headers=not no_headers)
    wrong = [result for result in found if result.differences]
    for result in wrong:
        assert result.first is not None
        message(f"{result.projection}: {difference_words(result.first)}")
    changed = [result for result in found if result.changed_decisions.total]
    for result in changed:
        message(f"{result.projection}: {changed_words(result)}")
    _show_objects(objects)
    if proof is not None and proof.broken is not None:
        raise _altered(proof.broken)
    if wrong:
        raise CliError(f"{sum(result.differences for result in wrong)} rows differ from the ledger", remedy(wrong))
    if objects and objects.differences:
        raise CliError(
            f"{objects.differences} objects in Kubernetes differ from the ledger",
            "Compare again, for a write may be under way; then look at the status writer's health",
        )
    if proof is not None:
        _show_proof(proof)
    compared = f"{sum(result.rows for result in found)} rows" + (f" and {objects.objects} objects" if objects else "")
    says = "what this build makes of the ledger" if changed else "as the ledger says"
    message(f"Every {'row and compared object' if objects else 'row'} is {says}: {compared} compared.")


def replay(
    projections: Projections = None,
    dry_run: DryRun = False,
    back: Rollback = False,
    accept_loss: AcceptLoss = False,
    from_start: FromStart = False,
    data_dir: DataDir = None,
) -> None:
    """Rebuild projections from the log while the old rows serve. Ctrl-C leaves the old rows as they are.

    Where an object store has a snapshot of a projection's fold, the rebuild begins with its rows and reads what was
    recorded since. With --from-start, --accept-loss and --dry-run it begins at the first event.
    """
    if dry_run + back + accept_loss > 1:
        raise CliError("--dry-run, --rollback and --accept-loss exclude each other", "Choose one", ExitCode.USAGE)
    if back and from_start:
        raise CliError("--rollback and --from-start exclude each other", "Choose one", ExitCode.USAGE)
    work = rehearse_rebuild if dry_run else roll_back_projections if back else rebuild_projections
    if accept_loss or from_start:
        work = partial(rebuild_projections, accept_loss=accept_loss, from_start=from_start)
    run(_replay(projections or [], data_dir, work))


async def _verify(
    names: list[str], data_dir: DataDir, access: KubeAccess | None, *, log: bool, repair: bool
) -> tuple[list[Verification], "KubeVerification | None", LogProof | None]:
    async with open_backend(data_dir, "verify") as backend:
        proof = await prove_log(backend) if log else None
        is_altered = proof is not None and proof.broken is not None
        try:
            found = await verify_projections(backend, names)
            found += [] if names else await verify_snapshots(backend)
        except (LogChangedError, ProjectionError):
            if is_altered:
                return [], None, proof  # that is why
            raise
        if access is not None and repair and not is_altered:
            await repair_objects(backend, access, read_sharing_names(os.environ))
        sharing = read_sharing_names(os.environ)
        objects = None if access is None else await verify_objects(backend, access, sharing)
        return found, objects, proof


def _altered(broken: GenerationProof) -> CliError:
    return CliError(
        f"The log is not what it was in generation {broken.sealed_to.generation}: {broken.first_break}",
        "Rebuild nothing from it; see docs/operations.md, The log was cut",
    )


def _show_proof(proof: LogProof) -> None:
    for number, reason in proof.unproven.items():
        message(f"Generation {number} of the log was not proven: {reason}")
    for one in proof.generations:
        sealed = f"{one.seals} seals cover the log up to {one.sealed_to}"
        none = f"Generation {one.sealed_to.generation} of the log has no seal yet"
        message(f"{sealed if one.seals else none}; {one.unsealed} events are not sealed.")
    if proof.current.newest:
        message(f"The newest seal is {proof.current.newest}; note it elsewhere to recognise a log that was made anew.")


async def _replay(
    names: list[str], data_dir: DataDir, work: Callable[[Backend, Sequence[Projection]], Awaitable[None]]
) -> None:
    async with open_backend(data_dir, "replay") as backend:
        await work(backend, named_projections(names))


def _show_objects(objects: "KubeVerification | None") -> None:
    if objects is None:
        return
    if not objects.enabled:
        message("The module is disabled by its ModuleConfig: no service keeps the objects in Kubernetes.")
    message(f"Not compared in Kubernetes: {', '.join(map(str, objects.left_out))}.")
    for one in objects.first:
        expected, actual = _value(one.expected), _value(one.found)
        message(f"{one.key.kind} {one.key.id} {one.path}: the ledger says {expected}, Kubernetes has {actual}.")


def _value(value: object) -> str:
    return "nothing" if value is None else csv_field(value)


def _rows(found: list[Verification], objects: "KubeVerification | None", proof: LogProof | None) -> Iterator[RowDict]:
    for result in found:
        first = result.first
        where = None if first is None else f"{first.table}/{'/'.join(str(part) for part in first.key)}"
        yield _row(result.projection, result.position, result.rows, result.differences, where)
    if objects:
        key = objects.first[0].key if objects.first else None
        where = None if key is None else f"{key.kind}/{key.id}"
        yield _row(KUBERNETES, objects.position, objects.objects, objects.differences, where)
    for one in proof.generations if proof else ():
        yield _row(LOG, one.sealed_to, one.seals, int(one.first_break is not None), one.first_break)


def _row(name: str, position: Position, rows: int, differences: int, first: str | None) -> RowDict:
    return {
        "projection": name,
        "position": str(position),
        "rows": rows,
        "differences": differences,
        "first_difference": first,
    }
