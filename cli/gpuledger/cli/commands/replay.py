"""`gpuledger replay`: build the tables anew from the log while the old ones serve, or go back to them."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Annotated

import typer

from gpuledger.cli.backend import open_backend
from gpuledger.cli.commands.verify import Projections, describe
from gpuledger.cli.errors import CliError, ExitCode
from gpuledger.cli.options import DataDir
from gpuledger.cli.render import message, progress
from gpuledger.cli.run import run
from gpuledger.db.engine import connect
from gpuledger.projection.asof import fold_until
from gpuledger.projection.definition import Projection
from gpuledger.projection.errors import NotBuiltError, VersionError
from gpuledger.projection.rebuild import rebuild, rollback
from gpuledger.projection.store import PREV, Store
from gpuledger.projection.verify import verify
from gpuledger.tools.queries.backend import Backend, named_projections

Work = Callable[[Backend, Projection], Awaitable[None]]


def replay(
    projections: Projections = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Fold in memory, say what would change, and write nothing.")
    ] = False,
    back: Annotated[bool, typer.Option("--rollback", help="Put the rows of before the last replay back.")] = False,
    data_dir: DataDir = None,
) -> None:
    """Rebuild one or all projections from the log. Ctrl-C leaves the old rows as they are."""
    if dry_run and back:
        raise CliError("--dry-run and --rollback exclude each other", "Choose one", ExitCode.USAGE)
    work = _rehearse if dry_run else _roll_back if back else _rebuild
    run(_each(projections or [], data_dir, work))


async def rebuild_all(backend: Backend, projections: Sequence[Projection]) -> None:
    """Rebuild these projections one after the other, with progress."""
    for projection in projections:
        await _rebuild(backend, projection)


async def _each(names: list[str], data_dir: DataDir, work: Work) -> None:
    async with open_backend(data_dir, "replay") as backend:
        projections = named_projections(names)
        if work is _roll_back:
            await _check_kept(backend, projections)
        for projection in projections:
            await work(backend, projection)


async def _check_kept(backend: Backend, projections: Sequence[Projection]) -> None:
    """All of them can go back, or none does."""
    async with connect(backend.database_url, application_name="gpuledger replay") as connection:
        kept = [one.name for one in projections if await Store(connection, one, PREV).checkpoint() is not None]
    if len(kept) < len(projections):
        able = f"Only {', '.join(kept)} can go back; name them" if kept else "Nothing was replayed yet"
        raise CliError("Not every projection keeps the rows of before a replay", able)


async def _rebuild(backend: Backend, projection: Projection) -> None:
    with progress(f"Rebuilding {projection.name}", total=await backend.ledger.head()) as advance:
        result = await rebuild(
            projection, backend.ledger, backend.database_url, on_progress=lambda done, _total: advance.to(done)
        )
    message(f"{projection.name}: rebuilt from {result.events} events, up to position {result.checkpoint.position}.")


async def _roll_back(backend: Backend, projection: Projection) -> None:
    checkpoint = await rollback(projection, backend.database_url)
    message(
        f"{projection.name}: rolled back to the rows of version {checkpoint.version}, position {checkpoint.position}."
    )


async def _rehearse(backend: Backend, projection: Projection) -> None:
    try:
        result = await verify(projection, backend.ledger, backend.database_url)
    except (NotBuiltError, VersionError):
        fold = await fold_until(projection, backend.ledger)
        rows = sum(len(table) for table in fold.state.tables().values())
        message(f"{projection.name}: would write {rows} rows, up to position {fold.sequence}.")
        return
    said = f"{projection.name}: {result.rows} rows up to position {result.position}, {result.differences} would change."
    message(f"{said} First: {describe(result.first)}" if result.first else said)
