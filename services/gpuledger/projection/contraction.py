"""Makes the documents of rows that an earlier build has left jsonb, once that build does not come back.

An administrator says so. From then on builds of before jsonb refuse the database. The rows stay what they are, and the
tables change their types projection by projection, each in one transaction that fences whoever writes it: that process
loads its rows again and goes on. Whoever was interrupted begins again, and does what is left.
"""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final

import psycopg
from psycopg import AsyncConnection
from psycopg.sql import Identifier

from gpuledger.db.engine import connect
from gpuledger.db.json_columns import JSON_COLUMNS, convert, text_columns
from gpuledger.db.locks import LOCK_WAIT_MAX_S, VIEWS_LOCK, lock_until_commit, try_hold
from gpuledger.db.revision import JSONB_REVISION, check_connection, schema_over
from gpuledger.db.views import drop_views_async, recreate_views_async
from gpuledger.projection.checkpoint import LIVE, NEXT, PREV, schema_of
from gpuledger.projection.definition import Projection
from gpuledger.projection.editions import rebuild_lock, renew_edition
from gpuledger.projection.errors import NotContractedError, RebuildBusyError
from gpuledger.projection.rows import create_like
from gpuledger.projection.store import ProjectionStore
from gpuledger.runtime.clock import NewId, random_id

CONVERSION_MAX_S: Final = 60
"""How long a table may take to be written anew, while nobody reads it."""


async def contract_documents(
    projections: Iterable[Projection], database_url: str, *, new_id: NewId = random_id
) -> Sequence[str]:
    """Make the documents of rows jsonb; returns the tables that were text, by schema and name.

    Raises:
        NotContractedError: rows of an older build are there, to which it could return; somebody reads a table for too
            long; to write it anew takes too long; or something that is not ours to drop depends on a document.
        RebuildBusyError: a rebuild of such rows is running.
        SchemaOutdatedError: the database has to be migrated first.
    """
    concerned = [one for one in projections if any(spec.name in JSON_COLUMNS for spec in one.specs)]
    changed: list[str] = []
    async with connect(database_url, application_name="gpuledger migrate") as connection:
        schema = await check_connection(connection)
        if schema.is_newer:
            raise NotContractedError(
                f"A newer build has migrated the database to revision {schema.revision}; nothing was changed. Use that "
                "build's `gpuledger migrate --jsonb`."
            )
        for projection in concerned:
            await _hold(connection, projection)
        for projection in concerned:
            await _refuse_older(connection, projection)
        await connection.execute(schema.noting(JSONB_REVISION))
        for projection in concerned:
            with _worded(projection):
                changed += await _contract(connection, projection, new_id)
    return changed


async def create_shadows(connection: AsyncConnection[Any], projection: Projection) -> None:
    """Create the empty tables of a rebuild, like those that serve.

    Their documents are jsonb where older builds have been given up: so tables that are too large to be written anew
    while nobody reads them change their types as well.
    """
    has_jsonb = (await schema_over(connection)).has_jsonb
    for spec in projection.specs:
        shadow, served = Identifier(schema_of(NEXT), spec.name), Identifier(schema_of(LIVE), spec.name)
        async with connection.transaction():
            await create_like(connection, shadow, served, spec.by_month)
            if has_jsonb:
                await convert(connection, schema_of(NEXT), spec.name)


async def _hold(connection: AsyncConnection[Any], projection: Projection) -> None:
    if await try_hold(connection, rebuild_lock(projection)) is None:
        raise RebuildBusyError(
            f"A rebuild of projection {projection.name} is running; nothing was changed. Wait for it or cancel it."
        )


async def _refuse_older(connection: AsyncConnection[Any], projection: Projection) -> None:
    """Refuse rows of another version: an older build wrote them, and could go back to them and go on."""
    name = projection.name
    for edition in (LIVE, PREV):
        found = await ProjectionStore(connection, projection, edition).checkpoint()
        if found is None or found.version == projection.version:
            continue
        if edition == LIVE:
            raise NotContractedError(
                f"The rows of projection {name} that serve are of version {found.version}, and this build's of "
                f"version {projection.version}; nothing was changed. Run `gpuledger up` of this build until it has "
                "built its own."
            )
        raise NotContractedError(
            f"The rows of projection {name} from before the upgrade, version {found.version}, are kept for a rollback "
            f"to the older build; nothing was changed. If it does not come back, let `gpuledger replay {name}` put "
            "rows of this build into their place."
        )


async def _contract(connection: AsyncConnection[Any], projection: Projection, new_id: NewId) -> list[str]:
    """The tables of one projection, in one transaction."""
    tables = [
        (schema_of(edition), spec.name)
        for edition in (LIVE, PREV)
        for spec in projection.specs
        if spec.name in JSON_COLUMNS
    ]
    if not [one for one in tables if await text_columns(connection, *one)]:
        return []
    store = ProjectionStore(connection, projection)
    async with connection.transaction():
        await lock_until_commit(connection, VIEWS_LOCK)
        await connection.execute(f"SET LOCAL statement_timeout = '{CONVERSION_MAX_S}s'".encode())
        await store.hold_beginning()
        served = await store.checkpoint(lock=True)
        await _refuse_older(connection, projection)
        await drop_views_async(connection)
        changed = [f"{schema}.{table}" for schema, table in tables if await convert(connection, schema, table)]
        await recreate_views_async(connection)
        if served is not None:
            await renew_edition(connection, projection, served, new_id())
    return changed


@contextmanager
def _worded(projection: Projection) -> Iterator[None]:
    """Say what keeps PostgreSQL from changing the tables of a projection, which it then leaves as they were."""
    held = f"The documents of projection {projection.name} stay text, and those of others may be jsonb already: "
    try:
        yield
    except psycopg.errors.LockNotAvailable as error:
        raise NotContractedError(
            f"{held}somebody held the tables for more than {LOCK_WAIT_MAX_S} s. End that query, and run it again."
        ) from error
    except psycopg.errors.QueryCanceled as error:
        raise NotContractedError(
            f"{held}to write a table anew takes more than {CONVERSION_MAX_S} s. `gpuledger replay {projection.name}` "
            "makes rows with jsonb beside those that serve; then run it again."
        ) from error
    except psycopg.errors.FeatureNotSupported as error:
        raise NotContractedError(
            f"{held}{error.diag.message_detail or error.diag.message_primary}, and that is not ours to drop. "
            "Drop it, run the command again, and make it anew."
        ) from error
