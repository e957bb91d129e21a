"""Where a command works: which servers it uses, and that the tables it reads are up to date.

Real servers when the environment names them; else those of the `gpuledger up` that runs on the data directory; else
servers that the command starts for its own duration.
"""

import asyncio
import os
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from gpuledger.cli.errors import CliError, ExitCode
from gpuledger.cli.render import message, progress
from gpuledger.db.engine import connect
from gpuledger.db.revision import check_current, needs_migration
from gpuledger.deciders.bootstrap.projection import BootstrapProjection
from gpuledger.deciders.inventory.projection import InventoryProjection
from gpuledger.deciders.pools.projection import PoolsProjection
from gpuledger.deciders.sources.projection import SourcesProjection
from gpuledger.ledger.jetstream import JetStreamLedger, connect_ledger
from gpuledger.local.servers.datadir import UP, embedded_servers, read_running
from gpuledger.projection.definition import Projection
from gpuledger.projection.runner import Runner
from gpuledger.projection.store import Store
from gpuledger.readmodels.catalogue import read_models
from gpuledger.runtime.clock import system_clock
from gpuledger.runtime.settings import Settings, read_settings

if TYPE_CHECKING:
    from gpuledger.db.migrate import MigrationResult

OTHER_COMMAND_WAIT_S = 60.0
"""How long a command waits for another one that has started the servers of the same data directory."""

CURRENT_WAIT_S = 15.0
"""How long a command waits for a running projector to reach the head of the log."""

POLL_S = 0.02


@dataclass(frozen=True, slots=True)
class Backend:
    """The servers that a command works with. `embedded` names the data directory, where one is used."""

    ledger: JetStreamLedger
    database_url: str
    nats_url: str
    data_dir: Path | None


def all_projections() -> list[Projection]:
    """A new instance of every projection of the product."""
    return [*read_models(), SourcesProjection(), InventoryProjection(), BootstrapProjection(), PoolsProjection()]


def named_projections(names: Sequence[str]) -> list[Projection]:
    """The projections of these names; all of them for none.

    Raises:
        CliError: there is no projection of that name.
    """
    known = {projection.name: projection for projection in all_projections()}
    unknown = [name for name in names if name not in known]
    if unknown:
        raise CliError(f"There is no projection {unknown[0]!r}", f"Choose from {', '.join(known)}", code=ExitCode.USAGE)
    return [known[name] for name in names] or list(known.values())


@asynccontextmanager
async def backend(data_dir: Path | None, command: str) -> AsyncIterator[Backend]:
    """Find or start the servers, and connect.

    Args:
        data_dir: as given on the command line.
        command: what this process is, for those who find the data directory in use.
    """
    settings = read_settings(os.environ, data_dir)
    if settings.servers is not None and data_dir is not None:
        message("NATS_URL and DATABASE_URL are set: they are used, and --data-dir is not.")
    async with AsyncExitStack() as stack:
        nats_url, database_url = await _servers(stack, settings, command)
        ledger = await stack.enter_async_context(connect_ledger(nats_url, name=f"gpuledger {command}"))
        yield Backend(ledger, database_url, nats_url, None if settings.servers else settings.data_dir)


def _migrate_if_needed(database_url: str) -> None:
    """Most commands find a current schema, and need not wait for Alembic to be imported."""
    if needs_migration(database_url):
        _migrate(database_url)


def _migrate(database_url: str) -> "MigrationResult":
    from gpuledger.db.migrate import migrate  # noqa: PLC0415 - takes a second to import

    return migrate(database_url)


async def migrated(data_dir: Path | None) -> "MigrationResult":
    """Migrate the database, and nothing else."""
    settings = read_settings(os.environ, data_dir)
    if settings.servers is not None:
        return await asyncio.to_thread(_migrate, settings.servers.database_url)
    running = read_running(settings.data_dir)
    if running is not None and running.command == UP:
        return await asyncio.to_thread(_migrate, running.endpoints.database_url)
    starting = embedded_servers(settings.data_dir, command="migrate", now=system_clock(), wait_s=OTHER_COMMAND_WAIT_S)
    async with starting as servers:
        return await asyncio.to_thread(_migrate, servers.endpoints.database_url)


async def _servers(stack: AsyncExitStack, settings: Settings, command: str) -> tuple[str, str]:
    if settings.servers is not None:
        if command == UP:
            await asyncio.to_thread(_migrate_if_needed, settings.servers.database_url)
        else:
            await asyncio.to_thread(check_current, settings.servers.database_url)
        return settings.servers.nats_url, settings.servers.database_url
    running = read_running(settings.data_dir)
    if running is not None and running.command == UP and command != UP:
        return running.endpoints.nats_url, running.endpoints.database_url
    starting = embedded_servers(settings.data_dir, command=command, now=system_clock(), wait_s=OTHER_COMMAND_WAIT_S)
    servers = await stack.enter_async_context(starting)
    await asyncio.to_thread(_migrate_if_needed, servers.endpoints.database_url)
    return servers.endpoints.nats_url, servers.endpoints.database_url


async def bring_current(place: Backend, projections: Sequence[Projection] | None = None) -> None:
    """Wait until the tables hold everything that is in the log now; where nobody projects, do it here.

    A projector that does not get there in time is said on stderr: what is shown is then of its checkpoint.
    """
    head = await place.ledger.head()
    for projection in projections or all_projections():
        if await _left(place, projection, head) == 0:
            continue
        if left := await _project(place, projection, head):
            message(
                f"Projection {projection.name} is {left} events behind the log; what follows is as of its checkpoint."
            )


async def _project(place: Backend, projection: Projection, head: int) -> int:
    """Project, or wait for whoever does; they may end before `head`, so it is tried again. Returns what is left."""
    deadline = asyncio.get_running_loop().time() + CURRENT_WAIT_S
    with progress(f"Projecting {projection.name}", total=head) as advance:
        runner = Runner(
            projection, place.ledger, place.database_url, on_flush=lambda checkpoint: advance.to(checkpoint.position)
        )
        while not await runner.catch_up(head):
            left = await _left(place, projection, head)
            if left == 0 or asyncio.get_running_loop().time() > deadline:
                return head if left is None else left
            await asyncio.sleep(POLL_S)
    return 0


async def _left(place: Backend, projection: Projection, head: int) -> int | None:
    """How many events up to `head` have no rows yet; None where the projection was never begun."""
    async with connect(place.database_url, application_name="gpuledger position") as connection:
        checkpoint = await Store(connection, projection).checkpoint()
    if checkpoint is None:
        return None
    return max(0, head - (checkpoint.position if checkpoint.generation == place.ledger.generation else 0))
