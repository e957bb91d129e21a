"""Takes, lists and checks the snapshots of folds, and deletes those that nobody needs.

One process takes them at a time: it holds a lock in the database. Should two take them all the same, both write what
follows from the log.
"""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import datetime
from typing import Final, NamedTuple

from gpuledger.db.engine import connect
from gpuledger.db.locks import SNAPSHOTS_LOCK, try_hold, unlock_all
from gpuledger.events.position import Position
from gpuledger.projection.errors import ProjectionError
from gpuledger.projection.fold_snapshots.check import CheckedSnapshot, check_snapshots
from gpuledger.projection.fold_snapshots.manifest import SnapshotManifest, fold_key
from gpuledger.projection.fold_snapshots.reader import FoldSnapshots
from gpuledger.projection.fold_snapshots.retention import Collected, SnapshotRetention, collect
from gpuledger.projection.fold_snapshots.taking import Hearers, take_snapshots
from gpuledger.projection.fold_snapshots.writer import FoldSnapshotSettings
from gpuledger.runtime.objects import ObjectsError, open_objects
from gpuledger.runtime.settings import OBJECTS_URL
from gpuledger.tools.errors import RequestError, ToolBusyError, ToolError
from gpuledger.tools.queries.backend import Backend, named_projections


class StoredSnapshot(NamedTuple):
    """One snapshot: of which projection, where, when its last event was recorded, and how large it is.

    `size` counts the bytes of its pieces, which other snapshots may share.
    """

    projection: str
    at: Position
    recorded_at: datetime
    rows: int
    size: int
    build: str


class Taken(NamedTuple):
    """How many snapshots were written, and the errors of the folds that stopped."""

    snapshots: int
    stopped: list[ProjectionError]


DUE: Final = FoldSnapshotSettings()


async def take(
    backend: Backend,
    names: Sequence[str],
    *,
    also_last: bool,
    settings: FoldSnapshotSettings = DUE,
) -> Taken:
    """Take the snapshots that are due, of the named projections or all; with `also_last` also one at the log's head.

    Raises:
        ToolBusyError: another process takes snapshots.
        RequestError: there is no object store, or no such projection.
        ToolError: the object store cannot be used.
    """
    projections, written, stopped = named_projections(names), list[SnapshotManifest](), list[ProjectionError]()
    async with _taking(backend):
        with backend.reporter.progress("Taking snapshots", unit="events") as advance:
            hearers = Hearers(written.append, stopped.append, advance.to)
            try:
                await take_snapshots(
                    projections, backend.ledger, _snapshots(backend), hearers, settings=settings, also_last=also_last
                )
            except ObjectsError as error:
                raise _unusable(error) from error
    return Taken(len(written), stopped)


async def clean(backend: Backend, now: datetime, retention: SnapshotRetention | None = None) -> Collected:
    """Delete the snapshots that are not kept, and the pieces that none of the others has; raises as `take`."""
    identity = backend.ledger.identity
    layouts = [fold_key(one, identity).folder for one in named_projections([])]
    async with _taking(backend):
        try:
            objects = open_objects(_url(backend))
            return await collect(objects, identity.ledger_id, layouts, now, retention or SnapshotRetention())
        except ObjectsError as error:
            raise _unusable(error) from error


async def stored(backend: Backend, names: Sequence[str]) -> list[StoredSnapshot]:
    """The snapshots that this build can use, the last ones first; raises as `take`."""
    snapshots, found = _snapshots(backend), []
    try:
        for projection in named_projections(names):
            pieces = snapshots.pieces(projection)
            for place in await pieces.places():
                one = await pieces.manifest(place)
                at = backend.ledger.generations.position(place.sequence)
                found.append(StoredSnapshot(projection.name, at, one.recorded_at, one.rows, one.size, one.build))
    except ObjectsError as error:
        raise _unusable(error) from error
    return found


async def checked(backend: Backend, names: Sequence[str]) -> AsyncIterator[CheckedSnapshot]:
    """Compare each snapshot with a fold from the one before; raises as `take`."""
    snapshots = _snapshots(backend)
    for projection in named_projections(names):
        try:
            with backend.reporter.progress(f"Checking {projection.name}"):
                async for one in check_snapshots(projection, backend.ledger, snapshots):
                    yield one
        except ObjectsError as error:
            raise _unusable(error) from error


@asynccontextmanager
async def _taking(backend: Backend) -> AsyncIterator[None]:
    _url(backend)
    async with connect(backend.database_url, application_name="gpuledger snapshots") as connection:
        if await try_hold(connection, SNAPSHOTS_LOCK) is None:
            raise ToolBusyError("Another process takes snapshots", "Wait for it")
        try:
            yield
        finally:
            await unlock_all(connection)


def _snapshots(backend: Backend) -> FoldSnapshots:
    _url(backend)
    try:
        snapshots = backend.snapshots
    except ObjectsError as error:
        raise _unusable(error) from error
    assert snapshots is not None, "there is a URL"
    return snapshots


def _url(backend: Backend) -> str:
    if backend.objects_url is None:
        raise RequestError("There is no object store", f"Set {OBJECTS_URL} to file:/folder or s3://bucket/prefix")
    return backend.objects_url


def _unusable(error: ObjectsError) -> ToolError:
    return ToolError(str(error))
