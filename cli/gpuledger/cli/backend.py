"""Opens the servers that a command works with.

Real servers when the environment names them; else those of the `gpuledger up` that runs on the data directory; else
embedded servers that run for as long as the command.
"""

import asyncio
import os
from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, aclosing, asynccontextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from gpuledger.cli.render import TerminalReporter, message
from gpuledger.db.engine import connect
from gpuledger.db.replica import check_replica
from gpuledger.db.revision import check_current, needs_migration
from gpuledger.ledger.errors import ClosingError, RestoreInterruptedError
from gpuledger.ledger.jetstream import connect_ledger
from gpuledger.local.servers.datadir import UP, read_running
from gpuledger.projection.contraction import contract_documents
from gpuledger.projection.followed_log import FollowedLog
from gpuledger.runtime.clock import system_clock
from gpuledger.runtime.settings import Servers, Settings, read_settings
from gpuledger.tools.archive.past import ArchivedGenerations
from gpuledger.tools.own_views import lost_views
from gpuledger.tools.preparation import PreparedLedger, prepare_ledger
from gpuledger.tools.queries.backend import Backend, all_projections
from gpuledger.tools.queries.replica import Replica

if TYPE_CHECKING:
    from gpuledger.db.migrate import MigrationResult
    from gpuledger.local.servers.embedded import EmbeddedServers

OTHER_COMMAND_WAIT_S = 60.0
"""How long a command waits for another one that has started the servers of the same data directory."""


@asynccontextmanager
async def open_backend(
    data_dir: Path | None, command: str, *, begins: bool = False, records: bool = False, asks: bool = False
) -> AsyncIterator[Backend]:
    """Find or start the servers, and connect to them.

    Args:
        data_dir: from the command line.
        command: the name that other commands see while this one uses the data directory.
        begins: whether the command may begin a data directory, and make its ledger.
        records: whether the command records events, for which rows and log have to belong together.
        asks: whether the command only asks, so that the read replica answers where one is named.

    Raises:
        LogChangedError: the command records, and the rows in the database follow another log.
    """
    settings = read_settings(os.environ, data_dir)
    async with open_servers(data_dir, command, begins=begins, asks=asks) as servers, AsyncExitStack() as stack:
        opening = connect_ledger(
            servers.nats_url,
            name=f"gpuledger {command}",
            identity=servers.nats_identity,
            archives=ArchivedGenerations(),
        )
        ledger = await stack.enter_async_context(opening)
        if records:
            async with aclosing(FollowedLog(all_projections(), ledger, servers.database_url)) as followed:
                stack.enter_context(ledger.relying_on(await followed.confirm()))
        data_directory = None if settings.servers else settings.data_dir
        reporter, read_url = TerminalReporter(), servers.database_read_url if asks else None
        yield Backend(
            ledger,
            servers.database_url,
            servers.nats_url,
            data_directory,
            reporter,
            servers.nats_identity,
            settings.objects_url,
            None if read_url is None else Replica(read_url, ledger, reporter),
        )


@asynccontextmanager
async def open_servers(
    data_dir: Path | None, command: str, *, begins: bool = False, restores: bool = False, asks: bool = False
) -> AsyncIterator[Servers]:
    """Find or start the servers; see `open_backend`.

    Args:
        data_dir: from the command line.
        command: as `open_backend` takes it.
        begins: as `open_backend` takes it.
        restores: whether the command goes on with a restore, or with closing, that was interrupted.
        asks: as `open_backend` takes it.
    """
    settings = read_settings(os.environ, data_dir)
    if settings.servers is not None and data_dir is not None:
        message("NATS_URL and DATABASE_URL are set: they are used, and --data-dir is not.")
    async with AsyncExitStack() as stack:
        passed_over = (RestoreInterruptedError, ClosingError) if restores else ()
        yield await _servers(stack, settings, command, begins=begins, asks=asks, passed_over=passed_over)


def _migrate_if_needed(database_url: str) -> None:
    """Most commands find a current schema and need not import Alembic."""
    if needs_migration(database_url):
        _migrate(database_url)


def _migrate(database_url: str) -> "MigrationResult":
    from gpuledger.db.migrate import migrate  # noqa: PLC0415 - takes a second to import

    return migrate(database_url)


async def migrated(data_dir: Path | None, partitions: int | None = None) -> "tuple[MigrationResult, PreparedLedger]":
    """Migrate the database, and make the ledger, with so many partitions, where there is none."""
    settings = read_settings(os.environ, data_dir)
    partitions = partitions or settings.partitions
    if settings.servers is not None:
        return await _migrate_all(settings.servers, partitions)
    running = read_running(settings.data_dir)
    if running is not None and running.command == UP:
        return await _migrate_all(Servers(running.endpoints.nats_url, running.endpoints.database_url), partitions)
    starting = _starting(settings, "migrate")
    async with starting as servers:
        return await _migrate_all(Servers(servers.endpoints.nats_url, servers.endpoints.database_url), partitions)


class Contracted(NamedTuple):
    """The tables whose documents were made jsonb, and the views of people's own that did not come back with them."""

    tables: Sequence[str]
    lost_views: Sequence[str]


async def contracted(data_dir: Path | None) -> Contracted:
    """Make documents that an earlier build has left as text jsonb.

    Raises:
        NotContractedError: as `contract_documents` raises it.
    """
    async with open_servers(data_dir, "migrate") as servers, AsyncExitStack() as stack:
        connecting = connect(servers.database_url, application_name="gpuledger migrate")
        connection = await stack.enter_async_context(connecting)
        before = await lost_views(connection)
        tables = await contract_documents(all_projections(), servers.database_url)
        return Contracted(tables, [one for one in await lost_views(connection) if one not in before])


async def confirm_migrated(data_dir: Path | None) -> None:
    """Return where somebody has migrated the database and made the ledger; changes nothing.

    Raises:
        SchemaOutdatedError: the database has to be migrated.
        NoLedgerError: there is no ledger.
    """
    async with open_backend(data_dir, "migrate"):
        pass


async def _migrate_all(servers: Servers, partitions: int | None) -> "tuple[MigrationResult, PreparedLedger]":
    migration = await asyncio.to_thread(_migrate, servers.database_url)
    return migration, await prepare_ledger(
        servers.nats_url,
        servers.database_url,
        identity=servers.nats_identity,
        replicas=servers.nats_replicas,
        partitions=partitions,
        may_alter=True,
    )


async def _servers(
    stack: AsyncExitStack,
    settings: Settings,
    command: str,
    *,
    begins: bool,
    asks: bool,
    passed_over: tuple[type[Exception], ...] = (),
) -> Servers:
    if settings.servers is not None:
        if command == UP:
            await asyncio.to_thread(_migrate_if_needed, settings.servers.database_url)
        elif asks and settings.servers.database_read_url is not None:
            await asyncio.to_thread(check_replica, settings.servers.database_read_url)
        else:
            await asyncio.to_thread(check_current, settings.servers.database_url)
        return settings.servers
    running = read_running(settings.data_dir)
    if running is not None and running.command == UP and command != UP:
        return Servers(running.endpoints.nats_url, running.endpoints.database_url)
    starting = _starting(settings, command)
    servers = await stack.enter_async_context(starting)
    await asyncio.to_thread(_migrate_if_needed, servers.endpoints.database_url)
    with suppress(*passed_over):
        await prepare_ledger(
            servers.endpoints.nats_url,
            servers.endpoints.database_url,
            may_create=begins,
            partitions=settings.partitions if begins else None,
        )
    return Servers(servers.endpoints.nats_url, servers.endpoints.database_url)


def _starting(settings: Settings, command: str) -> "AbstractAsyncContextManager[EmbeddedServers]":
    """Most commands find servers that run, and need not import what starts them."""
    from gpuledger.local.servers.embedded import embedded_servers  # noqa: PLC0415 - as above

    return embedded_servers(settings.data_dir, command=command, now=system_clock(), wait_s=OTHER_COMMAND_WAIT_S)
