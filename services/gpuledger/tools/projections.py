"""Verifies projections and the objects in Kubernetes against the log, rebuilds projections, and rolls rebuilds back."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from gpuledger.api.sharing import SharingNames
from gpuledger.db.engine import connect
from gpuledger.edge.kube.client import KubeClient
from gpuledger.events.position import events_up_to, is_origin
from gpuledger.ledger.api import Ledger
from gpuledger.projection.checkpoint import PREV
from gpuledger.projection.definition import Projection
from gpuledger.projection.errors import NotBuiltError, VersionError
from gpuledger.projection.rebuild import RebuildResult, rebuild, rollback
from gpuledger.projection.replay import fold_until
from gpuledger.projection.store import ProjectionStore
from gpuledger.projection.verify import Difference, Verification, verify
from gpuledger.tools.cluster import KubeAccess, open_kube
from gpuledger.tools.errors import ToolError
from gpuledger.tools.queries.backend import Backend, bring_current, named_projections

if TYPE_CHECKING:
    from gpuledger.edge.statuswriter.reconcile.verify import KubeVerification


async def verify_projections(backend: Backend, names: Sequence[str]) -> list[Verification]:
    """Compare the rows of the named projections (all, if there are no names) with the log."""
    found = []
    await bring_current(backend, named_projections(names))
    for projection in named_projections(names):
        with backend.reporter.progress(f"Verifying {projection.name}") as advance:
            found.append(
                await verify(projection, backend.ledger, backend.database_url, lambda done, _total: advance.to(done))
            )
    return found


async def verify_objects(backend: Backend, access: KubeAccess, names: SharingNames) -> "KubeVerification":
    """Compare the objects in Kubernetes with the log."""
    from gpuledger.edge.statuswriter.reconcile.verify import compare  # noqa: PLC0415 - takes long to import

    async with open_kube(access, KubeClient) as client:
        with backend.reporter.progress("Verifying Kubernetes") as advance:
            return await compare(client, backend.ledger, lambda done, _total: advance.to(done), names)


async def repair_objects(backend: Backend, access: KubeAccess, names: SharingNames) -> None:
    """Remove the objects in Kubernetes that the log does not have, and name each."""
    from gpuledger.edge.statuswriter.reconcile.repair import remove_strange  # noqa: PLC0415 - takes long to import

    async with open_kube(access, KubeClient) as client:
        for key in await remove_strange(client, backend.ledger, names):
            backend.reporter.message(f"Removed {key.kind} {key.id}, which the ledger does not have.")


async def rebuild_projections(
    backend: Backend, projections: Sequence[Projection], *, accept_loss: bool = False, from_start: bool = False
) -> None:
    """Rebuild projections one after the other; the old rows serve until the new ones are complete.

    `accept_loss` lets them follow a log that has lost events which the old rows were folded from. They begin at the
    nearest snapshot, unless it is to be `from_start`.
    """
    for projection in projections:
        with backend.reporter.progress(
            f"Rebuilding {projection.name}", total=events_up_to(await backend.ledger.head())
        ) as advance:
            result = await rebuild(
                projection,
                backend.ledger,
                backend.database_url,
                on_progress=lambda done, _total: advance.to(done),
                accept_loss=accept_loss,
                snapshots=None if from_start else backend.snapshots,
            )
        backend.reporter.message(f"{projection.name}: rebuilt from {_origin_of(result, backend.ledger)}.")


def _origin_of(result: RebuildResult, ledger: Ledger) -> str:
    events = f"{result.events} events, up to position {result.checkpoint.position}"
    if is_origin(result.since):
        return events
    return f"the snapshot at {ledger.generations.position(result.since)} and {events}"


async def roll_back_projections(backend: Backend, projections: Sequence[Projection]) -> None:
    """Put the rows of before the last rebuild back.

    Raises:
        ToolError: one of the projections keeps no such rows; then none is rolled back.
    """
    async with connect(backend.database_url, application_name="gpuledger replay") as connection:
        kept = [
            one.name for one in projections if await ProjectionStore(connection, one, PREV).checkpoint() is not None
        ]
    if len(kept) < len(projections):
        able = f"Only {', '.join(kept)} can go back; name them" if kept else "Nothing was replayed yet"
        raise ToolError("Not every projection keeps the rows of before a replay", able)
    for projection in projections:
        found = await rollback(projection, backend.database_url)
        backend.reporter.message(
            f"{projection.name}: rolled back to the rows of version {found.version}, position {found.position}."
        )


async def rehearse_rebuild(backend: Backend, projections: Sequence[Projection]) -> None:
    """Report what a rebuild would change, and write nothing."""
    for projection in projections:
        backend.reporter.message(f"{projection.name}: {await _rehearsed(backend, projection)}")


async def _rehearsed(backend: Backend, projection: Projection) -> str:
    try:
        result = await verify(projection, backend.ledger, backend.database_url)
    except (NotBuiltError, VersionError):
        fold = await fold_until(projection, backend.ledger)
        rows = sum(len(table) for table in fold.state.tables().values())
        return f"would write {rows} rows, up to position {fold.sequence}."
    summary = f"{result.rows} rows up to position {result.position}, {result.differences} would change."
    return f"{summary} First: {difference_words(result.first)}" if result.first else summary


def changed_words(result: Verification) -> str:
    """What a verification says of decisions that another version made with another content."""
    count, last = result.changed_decisions
    assert last is not None, "there is one"
    return (
        f"{count} decisions in the log have another content than this build makes of the same facts, the last at "
        f"{result.position._replace(sequence=last)}. The rows have this build's; whoever reads the log has what was "
        "recorded, until the service decides on the same object again."
    )


def difference_words(difference: Difference) -> str:
    """A difference in words."""
    key = ", ".join(str(part) for part in difference.key)
    return (
        f"{difference.table} ({key}): the ledger says {_row(difference.expected)}, "
        f"the table holds {_row(difference.found)}."
    )


def _row(row: tuple[object, ...] | None) -> str:
    return "no such row" if row is None else f"({', '.join(str(value) for value in row)})"
