"""Verifies the snapshots at which services begin against a fold of the log from its start."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from gpuledger.db.engine import AsyncConnection, connect
from gpuledger.ledger.api import Ledger
from gpuledger.projection.snapshot_store import SnapshotDamagedError
from gpuledger.projection.verify import SNAPSHOT, Verification
from gpuledger.tools.errors import ToolError
from gpuledger.tools.queries.backend import Backend

if TYPE_CHECKING:
    from gpuledger.projection.snapshot_verify import ComparedFold


async def verify_snapshots(backend: Backend) -> list[Verification]:
    """Compare every snapshot at which this build would begin with the log.

    Raises:
        ToolError: the rows of a snapshot are not those that were written.
    """
    from gpuledger.projection.snapshot_verify import verify_snapshot  # noqa: PLC0415 - takes long to import

    found = []
    async with connect(backend.database_url, application_name="gpuledger verify snapshots") as connection:
        for compared in _compared(backend.ledger, await _names(connection)):
            name = compared.layout.name
            with backend.reporter.progress(f"Verifying snapshot {name}") as advance:
                try:
                    outcome = await verify_snapshot(
                        compared, backend.ledger, connection, lambda done, _total: advance.to(done)
                    )
                except SnapshotDamagedError as error:
                    raise ToolError(str(error), removal(name)) from error
            if outcome is not None:
                found.append(outcome)
    return found


def remedy(wrong: Sequence[Verification]) -> str:
    """What to do with projections, and snapshots, whose rows differ from the log."""
    names = [one.projection for one in wrong]
    snapshots = [name.removeprefix(SNAPSHOT) for name in names if name.startswith(SNAPSHOT)]
    projections = [name for name in names if not name.startswith(SNAPSHOT)]
    rebuild = [f"Rebuild them with `gpuledger replay {' '.join(projections)} --from-start`"] if projections else []
    return "; ".join([*rebuild, *map(removal, snapshots)])


def removal(name: str) -> str:
    """What to do with a snapshot that is wrong."""
    statement = f"DELETE FROM gpuledger.snapshot WHERE name = '{name}'"  # noqa: S608 - for a person to run
    return f"Remove the snapshot with `{statement}` and restart the service: it then folds the log from its start"


async def _names(connection: AsyncConnection) -> set[str]:
    cursor = await connection.execute("SELECT DISTINCT name FROM gpuledger.snapshot")
    return {name for (name,) in await cursor.fetchall()}


def _compared(ledger: Ledger, names: set[str]) -> "Iterator[ComparedFold]":
    """The folds that have a snapshot of one of these names."""
    from gpuledger.edge.admission.cache import CacheProjection  # noqa: PLC0415 - these take long to import
    from gpuledger.edge.statuswriter.desired.fold import DesiredProjection  # noqa: PLC0415
    from gpuledger.edge.watchers.compared import compared_journals  # noqa: PLC0415
    from gpuledger.projection.snapshot_verify import ComparedProjection  # noqa: PLC0415
    from gpuledger.tools.simulation.fleet_journal import ComparedFleet  # noqa: PLC0415
    from gpuledger.tools.simulation.recorded import SNAPSHOT_PREFIX  # noqa: PLC0415

    for projection in (CacheProjection(), DesiredProjection()):
        if projection.name in names:
            yield ComparedProjection(projection, ledger)
    yield from (one for one in compared_journals(ledger) if one.layout.name in names)
    for name in sorted(names):
        if name.startswith(SNAPSHOT_PREFIX):
            yield ComparedFleet(ledger, name.removeprefix(SNAPSHOT_PREFIX))
