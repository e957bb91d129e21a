"""A rebuild's new tables take the rows of a snapshot over connections of their own, and only while they are its own."""

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from typing import Any

import pytest
from psycopg import AsyncConnection
from psycopg.sql import Identifier

from gpuledger.db.engine import connect
from gpuledger.domain.devices.fold import SLOT, Slot
from gpuledger.ledger.memory import MemoryLedger
from gpuledger.projection.checkpoint import LIVE, NEXT, Checkpoint, schema_of
from gpuledger.projection.editions import drop_edition
from gpuledger.projection.errors import WriterFencedError
from gpuledger.projection.fold_snapshots.parquet import arrow_of, csv_of
from gpuledger.projection.rows import Piece, create_like
from gpuledger.projection.shadow_rows import ShadowRows
from gpuledger.projection.store import ProjectionStore
from gpuledger.readmodels.projections import DevicesProjection
from support.projections import execute
from support.waiting import eventually

PROJECTION = DevicesProjection()
SLOTS = [Slot(f"s{number}", None, None, None, 0, 0, datetime(2026, 1, 1, tzinfo=UTC), None) for number in range(3)]


async def test_a_table_has_the_rows_and_indexes_that_it_had_as_one_that_serves(url: str) -> None:
    async with connect(url, application_name="test") as connection:
        begun = await _begin(connection, "ours")
        await _shadow(connection, begun, url).fill(SLOT.name, _pieces())
    assert _stored(url) == [(one.slot,) for one in SLOTS]
    indexes = "SELECT count(*) FROM pg_index WHERE indrelid = to_regclass(%s)"
    assert execute(url, indexes, "gpuledger_next.slot") == execute(url, indexes, "gpuledger_live.slot")


async def test_nothing_is_written_once_another_rebuild_has_begun(url: str) -> None:
    async with connect(url, application_name="test") as connection:
        ours = await _begin(connection, "ours")
        await drop_edition(connection, PROJECTION, NEXT)
        theirs = await _begin(connection, "theirs")
        await _shadow(connection, theirs, url).fill(SLOT.name, _pieces())
        with pytest.raises(WriterFencedError):
            await _shadow(connection, ours, url).fill(SLOT.name, _pieces())
        assert _stored(url) == [(one.slot,) for one in SLOTS], "the rows of the other rebuild are still there"


async def test_who_waits_for_a_table_sees_who_has_begun_meanwhile(url: str) -> None:
    ((database,),) = execute(url, "SELECT current_database()")
    execute(url, f'ALTER DATABASE "{database}" SET default_transaction_isolation = "repeatable read"')
    async with connect(url, application_name="test") as connection:
        shadow = _shadow(connection, await _begin(connection, "ours"), url)
        async with connection.transaction():
            await connection.execute("LOCK TABLE gpuledger_next.slot")
            filling = asyncio.create_task(shadow.fill(SLOT.name, _pieces()))
            await eventually(lambda: _waits(url))
            await connection.execute("UPDATE gpuledger.projection SET incarnation = 'theirs' WHERE edition = 'next'")
        with pytest.raises(WriterFencedError):
            await filling


async def _waits(url: str) -> bool:
    """Whether a session waits for the table."""
    waiting = "SELECT 1 FROM pg_locks WHERE NOT granted AND relation = 'gpuledger_next.slot'::regclass"
    return bool(execute(url, waiting))


async def _begin(connection: AsyncConnection[Any], incarnation: str) -> Checkpoint:
    for spec in PROJECTION.specs:
        new, old = (Identifier(schema_of(one), spec.name) for one in (NEXT, LIVE))
        await create_like(connection, new, old, spec.by_month)
    return await ProjectionStore(connection, PROJECTION, NEXT).create(MemoryLedger().identity, incarnation)


def _shadow(connection: AsyncConnection[Any], begun: Checkpoint, url: str) -> ShadowRows:
    return ShadowRows(ProjectionStore(connection, PROJECTION, NEXT), begun, url)


async def _pieces() -> AsyncIterator[Piece]:
    yield Piece(csv_of(arrow_of(SLOT, SLOTS)))


def _stored(url: str) -> list[tuple[Any, ...]]:
    return execute(url, "SELECT slot FROM gpuledger_next.slot ORDER BY slot")
